"""What is certified: a model as matrices and rows of its readout, and what the machine says of every valid string."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sdssm.automata import Machine
from sdssm.automata.refinement import reachable
from sdssm.exact.certification.ball_arithmetic import U64, Floats, MatrixBall, gamma, round_up, vector_norm
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier
from sdssm.tasks.validity import label_states, live_states

Ints = NDArray[np.int64]
#: Powers of two within which numbers are ordinary.
ORDINARY = 20
#: A place that no valid string passes through.
DEAD = -1


@dataclass(frozen=True, eq=False)
class TrimMachine:
    """The reachable pairs of the machine's state and that of the valid strings which some valid string goes on from.

    `table` (Q, V) is DEAD where no valid string goes on; `labels` (Q,) are -1 where no string may end. The empty
    string is not asked.
    """

    table: Ints
    start: int
    labels: Ints

    @classmethod
    def of(cls, machine: Machine, valid: Machine | None) -> TrimMachine:
        """From a machine and the machine of its valid strings.

        >>> from sdssm.tasks import get_task
        >>> TrimMachine.of(get_task("arithmetic").machine, get_task("arithmetic").valid).table.shape[1]
        8
        """
        if valid is not None and valid.n_symbols != machine.n_symbols:
            raise ExactError(
                f"the machine reads {machine.n_symbols} symbols but that of valid strings {valid.n_symbols}; both "
                "need the same alphabet"
            )
        table, start, labels = label_states(machine, valid)
        live = live_states(table, labels >= 0)
        if not live[start] or not live[table[start]].any():
            raise ExactError("no string is valid, so there is nothing to certify; choose another machine of them")
        closed = np.where(live[table], table, np.arange(len(table))[:, None])  # a step that no valid string takes
        kept = np.flatnonzero(reachable(closed, start))
        number = np.full(len(table), DEAD)
        number[kept] = np.arange(len(kept))
        found = np.where(live[table[kept]], number[table[kept]], DEAD)
        return cls(found.astype(np.int64), int(number[start]), labels[kept].astype(np.int64))

    @property
    def edges(self) -> tuple[Ints, Ints, Ints]:
        """From, symbol, to: of each step that a valid string may take."""
        here, symbol = np.nonzero(self.table != DEAD)
        return here, symbol, self.table[here, symbol]


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """x_t = A_s x_{t-1}, at any positive scale, and the class with the greatest of rows x.

    A (V, N, N) and x0 (N,) are the very float32 numbers that the layer computes with. The label depends on the
    direction of x alone: LayerNorm without a shift, the projection and the cosine come down to `rows` (C, N) up to a
    factor that is positive and the same for all classes. `off` (C,) bounds what is rounded in them, and `coarse` (C, N)
    holds absolute values: whatever the order, float32 computes each logit to within `rounding` times coarse |x|.
    """

    A: Floats
    x0: Floats
    rows: Floats
    off: Floats
    coarse: Floats
    rounding: float
    rescale: bool
    asked: TrimMachine
    tame: bool  #: whether float32 has room for all of these numbers, and for what is made of them


def build_system(model: Classifier, machine: Machine, valid: Machine | None) -> LinearSystem:
    """The model and the machine side by side, or one line on why they cannot be."""
    _check(model, machine)
    asked = TrimMachine.of(machine, valid)
    with torch.no_grad():
        symbols = model._symbols()
        start = model.initial_state
    A = symbols.A.detach().cpu().double().numpy()
    n = A.shape[-1]
    rows, off, coarse = _rows(model, n)
    if model.query is not None:  # one more step before every readout
        rows, off = _times(rows, off, A[model.query])
        coarse = coarse @ np.abs(A[model.query])
    settings = model.settings.mixer
    return LinearSystem(
        A=A[: model.n_symbols],
        x0=start.detach().cpu().double().numpy(),
        rows=rows,
        off=off,
        coarse=coarse * (1 + 1e-9),
        rounding=gamma(10 * n + 100, 2.0**-24),
        rescale=bool(getattr(settings, "rescale", False)),
        asked=asked,
        tame=_tame(model, A, start.detach().cpu().double().numpy()),
    )


def _tame(model: Classifier, A: Floats, x0: Floats) -> bool:
    """Whether the largest numbers of every matrix, of every row of the readout and of the start are ordinary.

    Bounds on rounding are relative, which holds while float32 neither overflows nor runs out of small numbers. Where
    all of these are within 2^-20 to 2^20 a product, a square in LayerNorm or in a norm is within 2^-126 to 2^127.
    """
    readout, norm = model.readout, model.norm
    found = [np.abs(A).max((1, 2)), np.abs(x0).max(keepdims=True), np.abs(_array(readout._rows(model.vectors))).max(1)]
    if readout.scale is not None:
        found.append(_array(readout.scale).reshape(1))
    if readout.projection is not None:
        found.append(np.abs(_array(readout.projection)).max(keepdims=True).reshape(1) + 1)
    if norm is not None and norm.weight is not None:
        found.append(np.abs(_array(norm.weight)).max(keepdims=True))
    every = np.concatenate(found)
    return bool(((every >= 2.0**-ORDINARY) & (every <= 2.0**ORDINARY)).all())


def _array(values: torch.Tensor) -> Floats:
    return values.detach().cpu().double().numpy()


def _check(model: Classifier, machine: Machine) -> None:
    settings = model.settings
    if len(model.mixers) != 1:
        raise ExactError(f"the model has {len(model.mixers)} layers; a certificate needs a single SD-SSM")
    if not model.bare:
        raise ExactError(f"the model is {settings.name}; a certificate needs a single SD-SSM, with nothing around it")
    if model.n_symbols != machine.n_symbols:
        raise ExactError(f"the model reads {model.n_symbols} symbols but the machine {machine.n_symbols}")
    if machine.n_outputs > model.n_classes:
        raise ExactError(f"the model tells {model.n_classes} classes but the machine has {machine.n_outputs} outputs")
    if model.input_matrix is not None or model.skip is not None:
        what = "an input matrix B" if model.input_matrix is not None else "a skip term D"
        raise ExactError(
            f"the model has {what}, and a certificate needs x_t = A_s x_(t-1) alone; "
            "train with input_matrix=false and skip=false, as the default preset does"
        )
    if model.initial_state is None:
        raise ExactError("the start state is given with each string; a certificate needs initial_state=learned")
    if settings.readout == "mlp":
        raise ExactError("the readout is an mlp; a certificate needs a linear or a cosine readout")
    shift = None if model.norm is None else model.norm.bias
    for name, value in (("the readout's bias", model.readout.bias), ("the shift of LayerNorm", shift)):
        if value is not None and bool((value != 0).any()):
            raise ExactError(
                f"{name} makes the label depend on the scale of the state, not only on its direction; "
                "certify a model with readout=cosine and norm=plain, the default"
            )
    if model.readout.weight.dtype not in (torch.float32, torch.float64):
        raise ExactError(f"the model computes in {model.readout.weight.dtype}; certify its float32 form, model.float()")
    if any(not bool(value.isfinite().all()) for value in model.state_dict().values()):
        raise ExactError("some weights are not finite; there is nothing to certify")
    if model.readout.scale is not None and not bool(model.readout.scale > 0):
        raise ExactError(
            f"the scale of the cosine is {float(model.readout.scale)}, and turns the order of the classes around; "
            "it must be above 0"
        )


def _rows(model: Classifier, n: int) -> tuple[Floats, Floats, Floats]:
    """The readout as rows (C, N) of the state, what is rounded in them (C,), and their absolute values (C, N)."""
    readout = model.readout
    weight = readout._rows(model.vectors).detach().cpu().double().numpy()
    off = np.zeros(len(weight))
    if readout.scale is not None:
        sizes = vector_norm(weight)
        if not (sizes > 1e-10).all():
            raise ExactError("a row of the cosine readout is zero; there is nothing to certify")
        weight = weight / np.sqrt(np.square(weight).sum(-1, keepdims=True))
        off = np.full(len(weight), round_up(gamma(2 * n + 8)))
    coarse = np.abs(weight)
    if readout.projection is not None:
        through = readout.projection.detach().cpu().double().numpy().T + np.eye(n)  # one rounding on the diagonal
        coarse = coarse @ (np.abs(through) + np.eye(n))
        off = round_up(off + U64 * vector_norm(weight) * np.abs(through).max())
        weight, off = _times(weight, off, through)
    if model.norm is not None:
        if model.norm.weight is not None:
            gain = model.norm.weight.detach().cpu().double().numpy()
            weight, coarse = weight * gain, coarse * np.abs(gain)
            off = round_up(off * np.abs(gain).max() + U64 * vector_norm(weight))
        centre = np.eye(n) - 1 / n
        coarse = coarse @ (np.eye(n) + 1 / n)
        off = round_up(off + 4 * U64 * np.sqrt(n) * vector_norm(weight))
        weight, off = _times(weight, off, centre)
    return weight, off, coarse


def _times(rows: Floats, off: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    found = MatrixBall(rows[:, None, :], off) @ MatrixBall.exactly(matrix)
    return found.mid[:, 0], found.rad
