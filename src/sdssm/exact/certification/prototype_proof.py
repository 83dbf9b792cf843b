"""The proof that moving the state to the nearest prototype every m symbols is exact, at every length.

The proof is by induction over the blocks of m symbols. At the start of a block the state is one of finitely many
vectors: the start state or a prototype, each of which stands for a state of the machine. From each of them all strings
of up to m symbols are read. If every label on the way is that of the machine, and the prototype nearest to the end
stands for the state that the machine is in then, the model is exact at every length. The strings are read in float64;
the result holds in float32 too, in any order of summation, because a label or a prototype counts only if it leads by
more than the rounding of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdssm.automata import Machine
from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.ball_arithmetic import U32, gamma
from sdssm.exact.certification.certificate import Certificate
from sdssm.exact.certification.linear_readout import as_floats
from sdssm.exact.errors import ExactError
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.models.snapped_recurrence import SnappedRecurrence

#: Limit on the strings that a proof reads, and on those that it reads at a time.
MOST_STRINGS, AT_A_TIME = 1 << 23, 1 << 14
#: A state whose norm after one symbol is not between these may overflow or underflow in float32.
SMALLEST, LARGEST = 1e-12, 1e12


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Vectors `points` (P, N) of norm 1, and the state of the machine that each stands for (P,).

    No string leads to a prototype with the state -1.
    """

    points: Floats
    states: Ints


@dataclass(frozen=True)
class Failure:
    """Why moving to the nearest prototype is not proved to be exact."""

    prototype: int  #: -1 for the start state
    word: tuple[int, ...]
    is_label: bool  #: whether a label is wrong or not clear; otherwise the nearest prototype

    @property
    def fault(self) -> str:
        """What is wrong after the word, for a message."""
        return "the label is wrong or not clear" if self.is_label else "the nearest prototype is another state's"


class PrototypeProof:
    """Tries to prove that a recurrence with prototypes has the labels of a machine after every string."""

    def __init__(
        self,
        A: Floats,
        start: Floats,
        rows: Floats,
        row_labels: Ints,
        machine: Machine,
        every: int,
        watch: Watch = UNWATCHED,
    ) -> None:
        """Take float32 numbers in float64: A (V, N, N), start (N,), rows (R, N); and the labels of the rows (R,)."""
        self.A, self.start, self.rows, self.row_labels = A, start, rows, row_labels
        self.machine, self.every, self.watch = machine, every, watch
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
        sources = np.flatnonzero(states >= 0)
        for part in self._split(sources):
            failure = self._read(points[part], states[part], part - 1, prototypes, (), 0)
            if failure is not None:
                return failure
        return None

    def find_states(self, points: Floats) -> Prototypes:
        """Return prototypes (P, N) with the state of the machine in which each is first reached; -1 for never.

        If a prototype is reached in several states, the proof fails, whichever of them it has.
        """
        states = np.full(len(points), -1)
        frontier = [(self.start[None], np.array([self.machine.start]))]
        while frontier:
            fresh = set[int]()
            for x, before in frontier:
                for after, state in self._ends(x, before, self.every):
                    nearest = (after @ points.T).argmax(1)
                    for p in np.flatnonzero(states[nearest] < 0).tolist():
                        if states[nearest[p]] < 0:
                            states[nearest[p]] = state[p]
                            fresh.add(int(nearest[p]))
            frontier = [(points[part], states[part]) for part in self._split(np.array(sorted(fresh), dtype=np.int64))]
        return Prototypes(points, states)

    def _split(self, rows: Ints) -> list[Ints]:
        """Return the rows in parts that are read at a time."""
        size = max(1, AT_A_TIME // len(self.A))
        return [rows[first : first + size] for first in range(0, len(rows), size)]

    def _ends(self, x: Floats, states: Ints, remaining: int) -> Iterator[tuple[Floats, Ints]]:
        """Yield the states of model and machine after each string of `remaining` symbols from x (B, N)."""
        if not remaining:
            yield x, states
            return
        for symbol in range(len(self.A)):
            self.watch.tick()
            self.watch.check()
            after = x @ self.A[symbol].T
            after = after / np.maximum(np.sqrt(np.square(after).sum(1, keepdims=True)), 1e-30)
            yield from self._ends(after, self.machine.table[states, symbol], remaining - 1)

    def _read(
        self,
        x: Floats,
        states: Ints,
        number: Ints,
        prototypes: Prototypes,
        word: tuple[int, ...],
        depth: int,
        size: Floats | None = None,
    ) -> Failure | None:
        """Read one more symbol after `word` from all states x (B, N), and the symbols after it."""
        size = np.abs(x) if size is None else size
        for symbol in range(len(self.A)):
            self.watch.tick()
            self.watch.check()
            after, bound = x @ self.A[symbol].T, size @ np.abs(self.A[symbol]).T
            norm = np.sqrt(np.square(after).sum(1, keepdims=True))
            in_range = (norm > SMALLEST) & (norm < LARGEST)
            norm = np.where(in_range, norm, 1)
            after, bound = after / norm, bound / norm
            following, longer = self.machine.table[states, symbol], (*word, symbol)
            slack = self.rounding * (depth + 2) * (1 + 1e-3)
            correct = self.machine.outputs[following][:, None] == self.row_labels
            bad = ~_leads(after, bound, slack, self.rows, correct) | ~in_range[:, 0]
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


def certify_snapped(module: SnappedRecurrence, machine: Machine, task: str | None, watch: Watch) -> Certificate:
    """Prove that a recurrence with prototypes has the labels of a machine after every string, or that nothing is known.

    The proof reads nothing but the tensors of the module: it finds out itself for which state a prototype stands.
    """
    watch.start("prove the prototypes")
    smallest, labels = machine.minimise(), module.row_labels
    A, start, rows, points = map(as_floats, (module.A, module.start, module.rows, module.points))
    row_labels = np.arange(len(rows)) if labels is None else labels.detach().cpu().numpy()
    proof = PrototypeProof(A, start, rows, row_labels, smallest, module.every, watch)
    prototypes = proof.find_states(points)
    failure = proof.find_failure(prototypes)
    if failure is None:
        return describe_proof(int((prototypes.states >= 0).sum()), module.every, smallest.n_states, task)
    source = "the start state" if failure.prototype < 0 else f"prototype {failure.prototype}"
    reason = f"after the string {machine.decode(failure.word)[:80]!r} from {source} {failure.fault}"
    return Certificate(0, 0, 0, False, reason, states=smallest.n_states, task=task)


def describe_proof(prototypes: int, every: int, states: int, task: str | None) -> Certificate:
    """Return the certificate of a model with proved prototypes: every length."""
    strings = "each symbol" if every == 1 else f"every string of up to {every} symbols"
    return Certificate(
        horizon=None,
        float_horizon=None,
        exhaustive=0,
        exact=False,
        reason=f"from each of the {prototypes:,} prototypes and the start state, {strings} has the correct "
        "labels and ends nearest to a prototype of the correct state",
        states=states,
        task=task,
    )
