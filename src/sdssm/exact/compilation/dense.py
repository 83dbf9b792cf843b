"""Compile a machine to one SD-SSM: a matrix for each symbol, an encoding for each state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.exact.errors import ExactError
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.layers.selective_dense import SelectiveDense
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.settings import check_one_of

ENCODINGS = ("one-hot", "orthogonal", "independent")
#: The selection logit of a symbol's own matrix; all others are 0. exp(-1000) is 0 in float64 too.
SATURATED = 1000.0
#: Limit on the number of machine states, which is the size of the model's state.
MOST_STATES_COMPILED = 4_096
#: Limit on the bytes of the matrices, one for each symbol.
MOST_BYTES = 2 << 30


def compile_dense(
    machine: Machine,
    encoding: str,
    column_norm: float | None,
    generator: torch.Generator | None,
    n_classes: int,
    watch: Watch = UNWATCHED,
) -> Classifier:
    """Return an SD-SSM that emulates a machine.

    The columns of E encode the states: x0 = E e_start, A_v = E P_v E^-1 with the 0/1 matrices P_v, logits O E^-1 x.
    """
    check_one_of("encoding", encoding, ENCODINGS)
    _check_size(machine)
    _check_column_norm(machine, encoding, column_norm)
    watch.start("encode the states")
    codes = _encode_states(machine.n_states, encoding, generator)
    # Rescaling would divide one-hot states by 1; without it every sum consists of one 1 and zeros, and is exact.
    mixer = SelectiveDenseSettings(
        state=machine.n_states,
        dictionary=machine.n_symbols,
        column_norm=column_norm,
        input_matrix=False,
        rescale=False,
    )
    settings = ModelSettings(mixer=mixer, norm="none", readout="linear", readout_bias=False)
    watch.start("allocate the model")
    model = Classifier(settings, machine.n_symbols, n_classes, generator=torch.Generator())
    layer, indicators = model.mixers[0], output_indicators(machine.outputs, n_classes)
    assert isinstance(layer, SelectiveDense) and layer.initial_state is not None
    columns = torch.arange(machine.n_states)
    watch.start("write the matrices", total=machine.n_symbols, unit="symbols")
    with torch.no_grad():
        for symbol, matrix in enumerate(layer.dictionary):
            watch.update(symbol)
            following = torch.tensor(machine.table[:, symbol])
            if codes is None:
                matrix.zero_()
                matrix[following, columns] = 1.0
            else:
                matrix.copy_(codes.columns[:, following] @ codes.inverse)  # E P: the columns E e_next
        layer.selection.weight.copy_(SATURATED * torch.eye(machine.n_symbols))
        layer.selection.bias.zero_()
        if codes is None:
            layer.initial_state.copy_((columns == machine.start).double())
            model.readout.weight.copy_(indicators)
        else:
            layer.initial_state.copy_(codes.columns[:, machine.start])
            model.readout.weight.copy_(indicators @ codes.inverse)
    return model.eval()


def _check_size(machine: Machine) -> None:
    """Raise an error if the model would be too large, before it takes any time or memory."""
    needed = 4 * machine.n_symbols * machine.n_states**2
    if machine.n_states <= MOST_STATES_COMPILED and needed <= MOST_BYTES:
        return
    problem = (
        f"the machine has {machine.n_states:,} states, and a state has at most {MOST_STATES_COMPILED:,} entries"
        if machine.n_states > MOST_STATES_COMPILED
        else f"the {machine.n_symbols:,} matrices of {machine.n_states:,} x {machine.n_states:,} entries need "
        f"{needed / 2**30:,.1f} GiB, and the limit is {MOST_BYTES >> 30} GiB"
    )
    smallest = machine.minimise().n_states
    if smallest == machine.n_states:
        raise ExactError(f"{problem}; no smaller machine has the same outputs, so choose another one")
    same = f"its minimal form has {smallest:,} states"
    raise ExactError(f"{problem}; {same}, pass minimise=True", shell=f"{problem}; {same}, add --minimise")


def output_indicators(outputs: np.ndarray, n_classes: int) -> Tensor:
    """Return a matrix (C, Q) in float64 that is 1 where the output of a state is the class, else 0."""
    return (torch.arange(n_classes)[:, None] == torch.tensor(outputs)).double()


def _check_column_norm(machine: Machine, encoding: str, column_norm: float | None) -> None:
    """Raise an error if normalising the columns would change the matrices.

    The columns of 0/1 matrices have l_p norm 1 for every p. The columns of orthogonal matrices have norm 1 for p = 2.
    """
    if encoding == "one-hot" or column_norm is None:
        return
    permutes = bool((np.sort(machine.table, axis=0) == np.arange(machine.n_states)[:, None]).all())
    if encoding == "orthogonal" and permutes and column_norm == 2:
        return
    reason = (
        "only p = 2 keeps an orthogonal matrix"
        if encoding == "orthogonal" and permutes
        else "not every symbol permutes the states, so their matrices are not orthogonal"
        if encoding == "orthogonal"
        else "columns of independent encodings have other norms than 1"
    )
    raise ExactError(
        f"column_norm is {column_norm} with {encoding} encodings: dividing the columns changes the map, because "
        f"{reason}; choose column_norm none, or one-hot encodings"
    )


class StateCodes(NamedTuple):
    """Encodings of the states as columns of a matrix, and the inverse of that matrix, in float64."""

    columns: Tensor
    inverse: Tensor


def _encode_states(states: int, encoding: str, generator: torch.Generator | None) -> StateCodes | None:
    """Return random encodings; None for one-hot encodings, whose matrix is the identity."""
    if encoding == "one-hot":
        return None
    if not isinstance(generator, torch.Generator):
        raise ExactError(
            f"{encoding} encodings are random and the generator is {format_value(generator)}; pass generator="
        )
    drawn = torch.randn(states, states, generator=generator, dtype=torch.float64, device=generator.device).cpu()
    if encoding == "orthogonal":
        q, r = torch.linalg.qr(drawn)
        codes = q * r.diagonal().sign()  # makes the distribution uniform over all orthogonal matrices
        return StateCodes(codes, codes.mT)
    codes = drawn / drawn.norm(dim=0)
    return StateCodes(codes, torch.linalg.inv(codes))
