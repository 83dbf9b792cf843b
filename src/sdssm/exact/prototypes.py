"""Prototypes of the states of a model, and the proof that moving to the nearest of them every m symbols is exact.

The proof is by induction over the blocks of m symbols. At the start of a block the state is one of finitely many
vectors: the start state or a prototype, each of which stands for a state of the machine. From each of them all strings
of up to m symbols are read. If every label on the way is that of the machine, and the prototype nearest to the end
stands for the state that the machine is in then, the model is exact at every length. The strings are read in float64;
the result holds in float32 too, in any order of summation, because a label or a prototype counts only if it leads by
more than the rounding of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.exact.certification.ball_arithmetic import U32, Floats, gamma
from sdssm.exact.certification.certificate import Certificate
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.explored_classes import START, ClassGraph
from sdssm.exact.extraction.token_matrices import TokenMatrices, Word
from sdssm.exact.watch import Watch
from sdssm.models.module_settings import ModuleSettings, options_class
from sdssm.models.registry import SNAPPED_NAME, SNAPPED_PATH
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.models.wrapped_module import WrappedModule, wrap_module
from sdssm.settings import build_settings

#: Limit on the strings that a proof reads, and on those that it reads at a time.
MOST_STRINGS, AT_A_TIME = 1 << 23, 1 << 14
#: How often prototypes are replaced by the mean of what leads to them, until the proof succeeds.
ROUNDS = (0, 1, 2, 4, 8, 16, 64)


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Vectors `points` (P, N) of norm 1, and the state of the machine that each stands for (P,)."""

    points: Floats
    states: Ints


@dataclass(frozen=True)
class Failure:
    """Why moving to the nearest prototype is not proved to be exact."""

    prototype: int  #: -1 for the start state
    word: Word
    is_label: bool  #: whether a label is wrong or not clear; otherwise the nearest prototype


class PrototypeProof:
    """Tries to prove that a recurrence with prototypes has the labels of a machine after every string."""

    def __init__(self, matrices: TokenMatrices, machine: Machine, every: int, watch: Watch) -> None:
        self.machine, self.every, self.watch = machine, every, watch
        self.A, self.rows = matrices.A.double().numpy(), matrices.rows.double().numpy()
        self.start, self.row_labels = matrices.start.double().numpy(), matrices.row_labels.numpy()
        symbols, size = self.A.shape[:2]
        self.rounding = gamma(size + 8, U32) + gamma(size + 8)  # of one product, in both arithmetics
        needed = machine.n_states * symbols**every
        if needed > MOST_STRINGS:
            most = max(1, int(np.log(MOST_STRINGS / machine.n_states) / np.log(max(symbols, 2))))
            problem = f"every is {every}, so the proof reads {needed:,.0f} strings, and the limit is {MOST_STRINGS:,}"
            raise ExactError(f"{problem}; pass at most every={most}", shell=f"{problem}; pass at most --every {most}")

    def find_failure(self, prototypes: Prototypes) -> Failure | None:
        """Return the first string for which the proof fails, or None if every length is proved."""
        points = np.concatenate([self.start[None], prototypes.points])
        states = np.append(self.machine.start, prototypes.states)
        chunk = max(1, AT_A_TIME // self.A.shape[0])
        for first in range(0, len(points), chunk):
            part = slice(first, first + chunk)
            number = np.arange(first, min(first + chunk, len(points))) - 1
            failure = self._read(points[part], states[part], number, prototypes, (), 0)
            if failure is not None:
                return failure
        return None

    def _read(
        self,
        x: Floats,
        states: Ints,
        number: Ints,
        prototypes: Prototypes,
        word: Word,
        depth: int,
        size: Floats | None = None,
    ) -> Failure | None:
        """Read one more symbol after `word` from all states x (B, N), and the symbols after it."""
        size = np.abs(x) if size is None else size
        for symbol in range(len(self.A)):
            self.watch.tick()
            self.watch.check()
            after, bound = x @ self.A[symbol].T, size @ np.abs(self.A[symbol]).T
            norm = np.maximum(np.sqrt(np.square(after).sum(1, keepdims=True)), 1e-30)
            after, bound = after / norm, bound / norm
            following, longer = self.machine.table[states, symbol], (*word, symbol)
            slack = self.rounding * (depth + 2) * (1 + 1e-3)
            correct = self.machine.outputs[following][:, None] == self.row_labels
            bad = ~_leads(after, bound, slack, self.rows, correct)
            if bad.any():
                return Failure(int(number[bad.argmax()]), longer, is_label=True)
            if depth + 1 == self.every:
                allowed = prototypes.states[None, :] == following[:, None]
                bad = ~_leads(after, bound, slack, prototypes.points, allowed)
                if bad.any():
                    return Failure(int(number[bad.argmax()]), longer, is_label=False)
                continue
            failure = self._read(after, following, number, prototypes, longer, depth + 1, bound)
            if failure is not None:
                return failure
        return None


def _leads(x: Floats, bound: Floats, slack: float, rows: Floats, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the largest product of x (B, N) with rows (C, N) is certainly with a row that is allowed (B, C).

    The true x is within `slack` times `bound` of x, entry by entry.
    """
    scores, errors = x @ rows.T, slack * (bound @ np.abs(rows).T)
    best = np.where(allowed, scores - errors, -np.inf).max(1)
    return np.asarray(best > np.where(allowed, -np.inf, scores + errors).max(1))


def choose_prototypes(
    matrices: TokenMatrices, graph: ClassGraph, machine: Machine, every: int, watch: Watch
) -> Prototypes:
    """Return prototypes that are proved to be exact every `every` symbols; raise ExactError if none are found.

    The first ones are the states that the extraction found first. If the proof fails, each is replaced by the mean of
    the states that one symbol leads to from the others, again and again; then by one prototype for each state of the
    machine.
    """
    watch.start("prove the prototypes")
    proof = PrototypeProof(matrices, machine, every, watch)
    states = _machine_states(graph, machine)
    first = Prototypes(graph.points.double().numpy()[START + 1 :], states[START + 1 :])
    failure = None
    for merged in (False, True):
        prototypes = _merge(first) if merged else first
        done = 0
        for rounds in ROUNDS:
            for _ in range(rounds - done):
                prototypes = _average(matrices, prototypes, machine)
            done = rounds
            latest = proof.find_failure(prototypes)
            if latest is None:
                return prototypes
            failure = failure or latest
    assert failure is not None
    raise _not_proved(graph, machine, failure)


def _not_proved(graph: ClassGraph, machine: Machine, failure: Failure) -> ExactError:
    word = (*graph.words[failure.prototype + 1], *failure.word)
    what = "the label is wrong or not clear" if failure.is_label else "the nearest prototype is another state's"
    text = f"no prototypes are proved to be exact: after the string {machine.decode(word)[:80]!r} {what}"
    return ExactError(
        f"{text}; pass a smaller every, or snap without every", shell=f"{text}; pass a smaller --every, or leave it out"
    )


def _machine_states(graph: ClassGraph, machine: Machine) -> Ints:
    """Return the state of the machine that each class of the graph stands for: (Q,)."""
    states = np.full(len(graph.labels), machine.start)
    for q, word in enumerate(graph.words):
        states[q] = machine.run(word)
    return states


def _merge(prototypes: Prototypes) -> Prototypes:
    """Return one prototype for each state: the mean of all."""
    states = np.unique(prototypes.states)
    points = np.stack([prototypes.points[prototypes.states == q].mean(0) for q in states])
    return Prototypes(_unit(points), states)


def _average(matrices: TokenMatrices, prototypes: Prototypes, machine: Machine) -> Prototypes:
    """Replace each prototype by the mean of the states after one symbol that are nearest to it among its own."""
    points = torch.from_numpy(prototypes.points).float()
    after = matrices.successors(points).flatten(0, 1)
    following = machine.table[prototypes.states].ravel()
    scores = (after @ points.T).numpy()
    nearest = np.where(prototypes.states == following[:, None], scores, -np.inf).argmax(1)
    sums = np.zeros_like(prototypes.points)
    np.add.at(sums, nearest, after.double().numpy())
    reached = np.bincount(nearest, minlength=len(points)) > 0
    return Prototypes(_unit(np.where(reached[:, None], sums, prototypes.points)), prototypes.states)


def _unit(points: Floats) -> Floats:
    return (
        np.asarray(points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-30))
        .astype(np.float32)
        .astype(np.float64)
    )


def build_snapped(matrices: TokenMatrices, prototypes: Prototypes, every: int) -> WrappedModule:
    """Return the model that moves its state to the nearest prototype every `every` symbols."""
    symbols, size = matrices.A.shape[:2]
    sizes = {
        "state": size,
        "prototypes": len(prototypes.points),
        "every": every,
        "centres": len(matrices.rows) if matrices.has_centres else 0,
    }
    options = build_settings(options_class(SnappedRecurrence), sizes)
    module = SnappedRecurrence(symbols, matrices.n_classes, **sizes)
    with torch.no_grad():
        module.A.copy_(matrices.A)
        module.start.copy_(matrices.start)
        module.rows.copy_(matrices.rows)
        module.points.copy_(torch.from_numpy(prototypes.points))
        if module.row_labels is not None:
            module.row_labels.copy_(matrices.row_labels)
    settings = ModuleSettings(name=SNAPPED_NAME, import_path=SNAPPED_PATH, options=options)
    return wrap_module(module.eval(), symbols, matrices.n_classes, settings=settings)


def certificate_of(machine: Machine, prototypes: Prototypes, every: int, task: str | None) -> Certificate:
    """Return the certificate of a model with proved prototypes: every length."""
    strings = "each symbol" if every == 1 else f"every string of up to {every} symbols"
    return Certificate(
        horizon=None,
        float_horizon=None,
        exhaustive=0,
        exact=False,
        reason=f"from each of the {len(prototypes.points):,} prototypes and the start state, {strings} has the correct "
        "labels and ends nearest to a prototype of the correct state",
        states=machine.n_states,
        task=task,
    )
