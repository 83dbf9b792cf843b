"""Advance the error bound length by length until it no longer proves the labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdssm.automata.refinement import Floats
from sdssm.exact.certification.error_recurrence import ErrorRecurrence
from sdssm.exact.certification.exhaustive import ExhaustiveResult
from sdssm.exact.certification.readout_bounds import ReadoutBounds
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.exact.watch import UNWATCHED, Watch

#: Up to this length each machine state has its own bound; beyond it one bound covers all states.
MOST_SEPARATE = 2_048
#: Initial number of words between two checks of the labels, when one bound covers all states.
STRIDE = 512
#: Upper bound on the effect of rounding on the norm of a state in one step, as a power of two.
ROUNDING_EXPONENT = 1e-3
#: Number of latest lengths that are compared to see whether the errors still grow.
WINDOW = 64


class ProvedLength(NamedTuple):
    """The largest proved length, and why it is not larger."""

    length: int | None  #: None stands for every length
    reason: str
    largest_errors: Floats  #: (2,): the largest e1 and e2 up to that length
    stopped: bool = False  #: whether the time limit is the reason

    def at_most(self, length: int | None, reason: str) -> ProvedLength:
        """Return this length, or a smaller one with its own reason."""
        if length is None or (self.length is not None and self.length <= length):
            return self
        return self._replace(length=length, reason=reason)


def prove_length(
    readout: ReadoutBounds,
    exhaustive: ExhaustiveResult,
    recurrences: list[ErrorRecurrence],
    longest: int,
    *,
    rounded: bool,
    watch: Watch = UNWATCHED,
) -> ProvedLength:
    """Find the largest length that the exhaustive search or the bound on the states proves.

    The bound at a length is the smallest of three: the errors that the exhaustive search found, the bound one symbol
    before advanced by a symbol, and the bound one word before advanced by a word. If the time is up, the strings that
    the exhaustive search has checked still count.
    """
    watch.start(f"bound longer strings ({'float32' if rounded else 'exact'} arithmetic)", unit="symbols")
    history, length = exhaustive.errors[:1], 0

    def largest_errors() -> Floats:
        return np.asarray(np.max(history, axis=(0, 1)))

    window = max(WINDOW, *(recurrence.m for recurrence in recurrences))
    while length < min(longest, MOST_SEPARATE):
        watch.update(length)
        if watch.is_over:
            proved = min(max(length, exhaustive.length), longest)
            history += exhaustive.errors[length + 1 : proved + 1]
            return ProvedLength(proved, watch.stop_reason, largest_errors(), stopped=True)
        bounds = [step(history[length + 1 - step.m]) for step in recurrences if step.m <= length + 1]
        checked = length + 1 < len(exhaustive.errors)
        errors = np.minimum.reduce([*bounds, exhaustive.errors[length + 1]] if checked else bounds)
        if not (errors[:, 0] >= 0).any():  # there are finitely many valid strings
            return ProvedLength(None, "every valid string is shorter", largest_errors())
        by_search = checked and exhaustive.proved[length + 1]
        if not by_search and not readout.can_prove_labels(errors, rounded=rounded):
            return ProvedLength(length, _reason_to_stop(exhaustive, length + 1), largest_errors())
        history.append(errors)
        length += 1
        if length % WINDOW == 0 and _has_settled(readout, history[-window:], recurrences, rounded):
            return ProvedLength(None, "the bound on the drift of the states no longer grows", 1.1 * largest_errors())
    if length >= longest:
        return ProvedLength(longest, f"longer strings than {longest:,} were not considered", largest_errors())
    latest = np.max(history[-window:], axis=(0, 1))
    return _prove_with_one_bound(readout, latest, recurrences[-1].worst_case(), length, longest, rounded, watch)


def _reason_to_stop(exhaustive: ExhaustiveResult, length: int) -> str:
    if exhaustive.counterexample is not None and len(exhaustive.counterexample) == length:
        return f"a string of length {length} is misclassified"
    return f"at length {length:,} the bound on the drift of the states is too wide to prove the label"


def _has_settled(
    readout: ReadoutBounds, window: list[Floats], recurrences: list[ErrorRecurrence], rounded: bool
) -> bool:
    """Whether a bound slightly above the latest errors maps below itself, and so holds at every length."""
    errors = np.max(window, axis=0)
    for spare in (1e-9, 1e-3, 0.1):
        bound = np.where(errors >= 0, errors * (1 + spare) + 1e-300, errors)
        after = np.minimum.reduce([step(bound) for step in recurrences])
        if (after <= bound).all() and readout.can_prove_labels(bound, rounded=rounded):
            return True
    return False


def _prove_with_one_bound(
    readout: ReadoutBounds,
    errors: Floats,
    recurrence: ErrorRecurrence,
    length: int,
    longest: int,
    rounded: bool,
    watch: Watch,
) -> ProvedLength:
    """Continue from `length`, a word at a time, with one bound for all machine states."""
    count = len(readout.transformed.coordinates.centres)
    bound, stride = errors[None], STRIDE
    while length < longest:
        watch.update(length)
        if watch.is_over:
            return ProvedLength(length, watch.stop_reason, bound[0], stopped=True)
        # The labels are checked only after `stride` words: the bound never shrinks meanwhile.
        later = bound
        for _ in range(stride):
            later = np.maximum(later, recurrence(later))
        if readout.can_prove_labels(np.repeat(later, count, axis=0), rounded=rounded):
            bound, length = later, length + stride * recurrence.m
        elif stride > 1:
            stride = max(1, stride // 8)
        else:
            reason = f"at length {length + 1:,} the bound on the drift of the states is too wide to prove the label"
            return ProvedLength(length, reason, bound[0])
    return ProvedLength(longest, f"longer strings than {longest:,} were not considered", bound[0])


def float_range_length(transformed: TransformedSystem, by_symbol: ErrorRecurrence, largest_errors: Floats) -> int:
    """Return how many steps states that are never rescaled stay within the range of float32.

    The scale must stay within a factor 2^30 of its start. A step multiplies it by the factor of the symbol times
    lambda + phi' A e, and by a factor from rounding; the representatives have different norms, too.
    """
    growth = transformed.growth_factors()
    deviation = float(by_symbol.eta1.max() * largest_errors[0] + by_symbol.eta2.max() * largest_errors[1])
    if not (growth > 0).all() or not deviation < 0.5:
        return 0
    symbol = transformed.system.machine.edges[1]
    exponents = np.abs(np.log2(growth * transformed.coordinates.factors[symbol]))
    per_step = exponents.max() + 3 * deviation + ROUNDING_EXPONENT
    norms = np.sqrt(np.square(transformed.coordinates.centres).sum(1))
    spread = float(np.log2(norms.max() / norms.min())) + 2
    return int(max(0.0, 30 - spread) / per_step)
