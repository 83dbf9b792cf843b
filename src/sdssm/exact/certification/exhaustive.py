"""Check every valid string up to a length at which there are still few enough of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.ball_arithmetic import U64, frobenius_norm, gamma, round_up, vector_norm
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.exact.certification.trim_machine import DEAD
from sdssm.exact.watch import UNWATCHED, Watch

#: Number of strings processed in one batch.
BATCH = 1 << 13
#: No string longer than this is checked, even if there are few of them.
MOST_LENGTH = 64


@dataclass(eq=False)
class ExhaustiveResult:
    """What the valid strings of each length 0, 1, ... showed.

    `errors[t]` (Q, 2) bounds e1 and e2 over all strings of length t in each machine state, -1 if there is no such
    string. `proved[t]` says whether every label after t symbols is proved correct. `counterexample` is a string that
    is proved to be misclassified.
    """

    errors: list[Floats]
    proved: list[bool]
    counterexample: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """The length up to which every valid string was checked and is classified correctly."""
        first = next((t for t, proved in enumerate(self.proved) if not proved), len(self.proved))
        return first - 1


def affordable_length(transformed: TransformedSystem, strings: int) -> tuple[int, int]:
    """Return the largest length with at most `strings` valid strings and prefixes up to it, and their number."""
    machine = transformed.system.machine
    table = machine.table
    counts = np.zeros(len(table), dtype=object)
    counts[machine.start] = 1
    total, length = 0, 0
    while True:
        longer = np.zeros(len(table), dtype=object)
        for symbol in range(table.shape[1]):
            alive = table[:, symbol] != DEAD
            np.add.at(longer, table[alive, symbol], counts[alive])
        added = sum(longer)
        if total + added > strings or length >= MOST_LENGTH or not added:
            return length, int(total)
        total += added
        counts, length = longer, length + 1


@dataclass(eq=False)
class ExhaustiveSearch:
    """A depth-first search over all valid strings, in batches of strings of the same length.

    Strings share the work on common prefixes. One pass finds what holds in exact arithmetic and what holds with float32
    rounding. `norms` bounds the norm of the words of each length below `longest`, for the accumulated rounding.
    If the time is up, the result ends before the shortest string that was not checked.
    """

    transformed: TransformedSystem
    longest: int
    norms: list[float]
    watch: Watch = UNWATCHED

    def __post_init__(self) -> None:
        n_states = len(self.transformed.system.machine.table)
        self._ends = dict.fromkeys((False, True), self.longest)  # the length at which each search stops
        self._visited = 0
        self.results = {
            rounded: ExhaustiveResult(
                [np.full((n_states, 2), -1.0) for _ in range(self.longest + 1)], [True] * (self.longest + 1)
            )
            for rounded in self._ends
        }
        A = self.transformed.A
        self._symbol_norms = A.spectral_norm()
        self._product_errors = round_up(A.radius + gamma(A.centre.shape[-1]) * frobenius_norm(A.centre))

    def run(self) -> dict[bool, ExhaustiveResult]:
        """Return the result in exact arithmetic (key False) and the result with float32 rounding (key True)."""
        transformed = self.transformed
        x, start = transformed.x0.centre.T, np.array([transformed.system.machine.start])
        errors = np.reshape(transformed.x0.radius, 1)
        self._visit(x, errors, start, np.zeros((1, 0), dtype=np.int64), [])
        # Lengths after an unproved label, and from the first string skipped for lack of time, are not complete.
        for rounded, end in self._ends.items():
            del self.results[rounded].errors[end + 1 :], self.results[rounded].proved[end + 1 :]
        return self.results

    def _visit(self, x: Floats, errors: Floats, states: Ints, strings: Ints, per_step: list[float]) -> None:
        """Check a batch of strings (B, t) and all their continuations.

        The states of the model x (B, N) are known up to `errors` (B,); `states` (B,) are those of the machine and
        `per_step` bounds the rounding of each step so far.
        """
        length = strings.shape[1]
        if length and self.watch.is_over:
            self._ends = {rounded: min(end, length - 1) for rounded, end in self._ends.items()}
            return
        self._check(x, errors, states, strings, per_step)
        self._visited += len(strings) if length else 0  # the empty string is not classified
        self.watch.update(self._visited)
        if length >= max(self._ends.values()):
            return
        parts = []
        for symbol, matrix in enumerate(self.transformed.A.centre):
            successors = self.transformed.system.machine.table[states, symbol]
            alive = successors != DEAD
            if not alive.any():
                continue
            before = x[alive]
            propagated = self._symbol_norms[symbol] * errors[alive]
            new_errors = round_up(propagated + self._product_errors[symbol] * (vector_norm(before) + errors[alive]))
            extended = np.concatenate([strings[alive], np.full((len(before), 1), symbol)], axis=1)
            parts.append((before @ matrix.T, new_errors, successors[alive], extended))
        if not parts:
            return
        per_step = [*per_step, self.transformed.rounding_of_step(x, errors)]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        for first in range(0, len(columns[0]), BATCH):
            a, b, c, d = (column[first : first + BATCH] for column in columns)
            self._visit(a, b, c, d, per_step)

    def _check(self, x: Floats, errors: Floats, states: Ints, strings: Ints, per_step: list[float]) -> None:
        """Check the labels of strings of one length, and bound their errors e1 and e2.

        For any factor f > 0 write x = f (c + e). The part of e along c is then removed, as in `transformed_system`.
        """
        transformed, position = self.transformed, strings.shape[1]
        d = transformed.coordinates.dimension
        to_metric, _, phi, centre_norm, complement = (values[states] for values in transformed.state_norms)
        functionals, centres = transformed.coordinates.functionals[states], transformed.coordinates.centres[states]
        phi_c = (functionals * centres[:, :d]).sum(1)
        factor = (functionals * x[:, :d]).sum(1) / phi_c
        positive = (factor > 0) & np.isfinite(factor)
        factor = np.where(positive, factor, 1)
        e = x / factor[:, None] - centres
        measured = np.einsum("bij,bj->bi", transformed.to_metric.centre[states], e[:, :d])
        norm = vector_norm(e[:, :d])
        metric_error = transformed.to_metric.radius[states]
        metric_error = metric_error + gamma(d + 1) * frobenius_norm(transformed.to_metric.centre)[states]
        measured_error = round_up(metric_error * norm)
        # `phi_c` is rounded too, and the more so the larger the angle between phi and c.
        along = round_up(
            np.abs((functionals * e[:, :d]).sum(1) / phi_c) + gamma(3 * d + 16) * phi * norm * (1 + phi * centre_norm)
        )
        rounding = 8 * U64 * (vector_norm(x) / factor + centre_norm)
        for rounded, end in self._ends.items():
            if position > end:
                continue
            known = round_up(errors + transformed.accumulated_rounding(per_step, self.norms)) if rounded else errors
            if position:
                self._check_labels(x, known, states, strings, rounded)
            scaled_error = round_up(known / factor + rounding)
            removed = round_up(along + phi * scaled_error)
            usable = positive & (removed < 1)
            remaining = np.where(usable, 1 - removed, 1)
            e1 = round_up(vector_norm(measured) + measured_error + to_metric * scaled_error) / remaining
            e2 = round_up(vector_norm(e[:, d:]) + scaled_error + complement * removed) / remaining
            bounds = self.results[rounded].errors[position]
            for column, values in enumerate((e1, e2)):
                np.maximum.at(bounds[:, column], states, np.where(usable, round_up(values), np.inf))

    def _check_labels(self, x: Floats, errors: Floats, states: Ints, strings: Ints, rounded: bool) -> None:
        """Record whether all labels of strings of one length are proved correct, or one is proved wrong."""
        transformed, position = self.transformed, strings.shape[1]
        labels = transformed.system.machine.labels[states]
        valid = np.flatnonzero(labels >= 0)
        row_labels = transformed.system.row_labels
        if not len(valid) or (row_labels == row_labels[0]).all():
            return
        x, errors, labels = x[valid], errors[valid], labels[valid]
        logits, largest = x @ transformed.rows.T, vector_norm(transformed.rows).max()
        norm = round_up(vector_norm(x) + errors)
        uncertainty = round_up(
            largest * errors + (transformed.row_errors.max() + gamma(x.shape[1] + 4) * largest) * norm
        )
        if rounded:
            slack = transformed.system.readout_rounding * transformed.row_magnitudes.max() * norm
            uncertainty = round_up(uncertainty + slack)
        is_correct = labels[:, None] == row_labels  # (B, R)
        gap = np.where(is_correct, logits, -np.inf).max(1) - np.where(is_correct, -np.inf, logits).max(1)
        if (gap > 2 * round_up(uncertainty)).all():
            return
        result = self.results[rounded]
        result.proved[position] = False
        self._ends[rounded] = min(self._ends[rounded], position)
        misclassified = np.flatnonzero(gap < -2 * round_up(uncertainty))
        if len(misclassified) and (result.counterexample is None or len(result.counterexample) > position):
            result.counterexample = tuple(strings[valid[misclassified[0]]].tolist())
