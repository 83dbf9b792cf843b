"""Certify a model whose states are rounded: check short strings one by one, and bound the states of longer ones."""

from __future__ import annotations

import numpy as np

from sdssm.exact.certification.certificate import Certificate
from sdssm.exact.certification.coordinates import check_proof_size, choose_coordinates
from sdssm.exact.certification.exhaustive import ExhaustiveResult, ExhaustiveSearch, affordable_length
from sdssm.exact.certification.linear_system import LinearSystem
from sdssm.exact.certification.proved_length import ProvedLength, float_range_length, prove_length
from sdssm.exact.certification.readout_bounds import ReadoutBounds
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.watch import Watch

#: Limits for words: how many matrices are multiplied out, how many transitions of the machine by such words there are,
#: and how many multiplications it takes to transform them.
MOST_WORDS, MOST_EDGES, MOST_WORK = 512, 1 << 16, 1 << 31
#: Limit on the symbols of a word.
LONGEST_WORD = 16


def certify_by_bounds(
    system: LinearSystem, strings: int, longest: int, generator: np.random.Generator, watch: Watch
) -> Certificate:
    """Certify a model by checking short strings and bounding the states of longer ones.

    `float_reason` is set even if float32 proves as much as exact arithmetic.
    """
    states = len(system.machine.table)
    try:
        check_proof_size(system)
        coordinates = choose_coordinates(system, generator, watch)
        transformed = None if coordinates is None else TransformedSystem.build(system, coordinates, watch)
        if transformed is None:
            reason = "the states of the model do not form one cluster for each state of the machine"
            return Certificate(0, 0, 0, False, reason, states=states, float_reason=reason)
        word = _word_length(system, transformed.coordinates.dimension)
        watch.start("bound the drift of the states")
        by_symbol = transformed.error_recurrence(1, rounded=False)
        by_word = by_symbol if word == 1 else transformed.error_recurrence(word, rounded=False)
    except TimeIsUpError:
        reason = watch.stop_reason
        return Certificate(0, 0, 0, False, reason, states=states, stopped=True, float_reason=reason)
    checked, n_strings = affordable_length(transformed, strings)
    norms = _extend_norms(transformed.word_matrices(word)[1], checked + 1)
    watch.start("check short strings", total=n_strings, unit="strings")
    results = ExhaustiveSearch(transformed, checked, norms, watch).run()
    readout = ReadoutBounds(transformed)
    exact = prove_length(readout, results[False], [by_symbol, by_word], longest, rounded=False, watch=watch)
    rounded = _prove_float_length(transformed, readout, results[True], word, longest, watch)
    residual, all_norms = by_symbol.r1.max(), (float(by_symbol.n11.max()), float(by_word.n11.max()))
    smaller = rounded.at_most(exact.length, exact.reason)
    return Certificate(
        horizon=exact.length,
        float_horizon=smaller.length,
        exhaustive=results[False].length,
        exact=False,
        reason=exact.reason,
        counterexample=results[False].counterexample,
        residual=float(residual) if np.isfinite(residual) else None,
        norms=all_norms if np.isfinite(all_norms).all() else None,
        margin=readout.margin,
        dimension=transformed.coordinates.dimension,
        word=word,
        states=states,
        stopped=exact.stopped or rounded.stopped,
        float_reason=smaller.reason,
        only_float_stopped=rounded.stopped and not exact.stopped,
    )


def _prove_float_length(
    transformed: TransformedSystem,
    readout: ReadoutBounds,
    exhaustive: ExhaustiveResult,
    word: int,
    longest: int,
    watch: Watch,
) -> ProvedLength:
    """Find the largest length that is proved with float32 rounding.

    If the time is up before longer strings are bounded, it is the length of the strings that were checked one by one.
    States that are never rescaled may leave the range of float32, so nothing is claimed for them then.
    """
    try:
        watch.check()
        recurrences = [transformed.error_recurrence(m, rounded=True) for m in sorted({1, word})]
    except TimeIsUpError:
        length = exhaustive.length if transformed.system.rescale else 0
        return ProvedLength(length, watch.stop_reason, np.zeros(2), stopped=True)
    rounded = prove_length(readout, exhaustive, recurrences, longest, rounded=True, watch=watch)
    if transformed.system.rescale:
        return rounded
    in_range = float_range_length(transformed, recurrences[0], rounded.largest_errors)
    return rounded.at_most(in_range, f"beyond length {in_range:,} the states may overflow or underflow")


def _word_length(system: LinearSystem, d: int) -> int:
    """Return the length of the longest words whose matrices fit into the budget.

    d: the dimension of the subspace.
    """
    n_symbols, n_states = len(system.A), len(system.machine.table)
    for m in range(1, LONGEST_WORD):
        words = n_symbols ** (m + 1)
        if words > MOST_WORDS or words * n_states > MOST_EDGES or 8 * words * n_states * d**3 > MOST_WORK:
            return m
    return LONGEST_WORD


def _extend_norms(norms: list[float], count: int) -> list[float]:
    """Bound the norms of longer words by products of the norms of their parts."""
    norms = list(norms)
    while len(norms) < count:
        k = len(norms)
        norms.append(min(norms[j] * norms[k - j] for j in range(1, k // 2 + 1)) * (1 + 1e-12) if k > 1 else np.inf)
    return norms
