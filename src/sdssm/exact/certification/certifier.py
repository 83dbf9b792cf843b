"""`certify`: prove a length up to which a model classifies every valid string correctly.

The model is represented by the numbers that its layer computes with: the float32 matrices of the symbols, mixed and
normalised once, the float32 start state and the float32 weights of the readout. For these numbers two statements are
proved. In exact arithmetic the labels are correct up to `horizon`. If the matrices are applied one after the other and
every operation, including those of the readout, is rounded to float32, the labels are correct up to `float_horizon`,
in any order of summation. Every bound is computed in float64 and accounts for its own rounding (`ball_arithmetic`).

The proof has up to three parts. All short strings are checked one by one (`exhaustive`). Longer ones are bounded from
there (`proved_length`, with the inequality of `transformed_system` in the coordinates of `coordinates`). If the numbers
are integers, a finite search may prove every length (`integer_orbit`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.exact.certification.coordinates import choose_coordinates
from sdssm.exact.certification.counterexamples import find_counterexample
from sdssm.exact.certification.exhaustive import ExhaustiveSearch, affordable_length
from sdssm.exact.certification.integer_orbit import find_orbit
from sdssm.exact.certification.linear_system import LinearSystem, build_system
from sdssm.exact.certification.proved_length import float_range_length, prove_length
from sdssm.exact.certification.readout_bounds import ReadoutBounds
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.models import Classifier
from sdssm.settings import check_at_least

#: A float horizon that the orbit search could not decide.
UNDECIDED = -1
#: Limits for words: how many matrices are multiplied out, how many transitions of the machine by such words there are,
#: and how many multiplications it takes to transform them.
MOST_WORDS, MOST_EDGES, MOST_WORK = 512, 1 << 16, 1 << 31
#: Limit on the symbols of a word.
LONGEST_WORD = 16


@dataclass(frozen=True)
class Certificate:
    """The certified length of a model for a machine; a horizon of None stands for every length.

    Every valid string up to `horizon` is provably classified correctly in exact arithmetic, and up to `float_horizon`
    with float32 rounding of the recurrence, one symbol after the other (not of the parallel scan, which multiplies
    matrices first). `exhaustive` is the length up to which every string was checked one by one. If `exact`, the states
    of the model are integers that return to finitely many directions.

    The other fields explain the horizon. In the norm of the subspace of `dimension` entries, `residual` is the distance
    from the image of a representative under one symbol to the next representative, `norms` are the factors by which
    one symbol and a word of `word` symbols multiply an error, and `margin` is the error below which no label can
    change. `states` counts the machine states that valid strings reach.
    """

    horizon: int | None
    float_horizon: int | None
    exhaustive: int
    exact: bool
    reason: str
    counterexample: tuple[int, ...] | None = None
    residual: float | None = None
    norms: tuple[float, float] | None = None
    margin: float | None = None
    dimension: int | None = None
    word: int | None = None
    states: int = 0

    @property
    def fails_at(self) -> int | None:
        """The first length for which nothing is proved, or None."""
        return None if self.horizon is None else self.horizon + 1

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain values."""
        return {**asdict(self), "fails_at": self.fails_at}


def certify(
    model: Classifier,
    machine: Machine,
    valid: Machine | None = None,
    *,
    strings: int = 1 << 17,
    longest: int = 1_000_000,
    search: int = 1_000,
    seed: int = 0,
) -> Certificate:
    """Prove a length up to which the model predicts the machine's output after every valid string.

    Args:
        model: a single SD-SSM. A model with an input matrix B, a bias or several layers is refused, because its
            prediction depends on more than the direction of one state.
        machine: what the model should emulate.
        valid: the machine of valid strings; None if every string is valid.
        strings: limit on the strings that are checked one by one.
        longest: the length at which counting stops, unless every length is proved.
        search: if the horizon is finite, search for a misclassified string up to this length; 0 for no search.
        seed: of the random strings.

    >>> from sdssm.automata import get_machine
    >>> from sdssm.exact import compile
    >>> certify(compile("parity"), get_machine("parity")).horizon is None
    True
    """
    check_at_least("strings", strings, 1)
    check_at_least("longest", longest, 1)
    check_at_least("search", search, 0)
    system = build_system(model, machine, valid)
    certificate = _certify_by_orbit(system)
    if certificate is None:
        certificate = _certify_by_bounds(system, strings, longest, np.random.default_rng(seed))
    elif certificate.float_horizon == UNDECIDED:
        bounded = _certify_by_bounds(system, strings, longest, np.random.default_rng(seed))
        float_horizon = _shorter(certificate.horizon, bounded.float_horizon)
        certificate = replace(certificate, float_horizon=float_horizon)
    if not system.is_in_float32_range:
        reason = f"{certificate.reason}; some of its numbers may overflow or underflow in float32"
        certificate = replace(certificate, float_horizon=0, reason=reason)
    if certificate.horizon is None or certificate.counterexample is not None:
        return certificate
    generator = torch.Generator().manual_seed(seed)
    counterexample = find_counterexample(model, system.machine, search, generator) if search else None
    return replace(certificate, counterexample=counterexample)


def _certify_by_orbit(system: LinearSystem) -> Certificate | None:
    """Certify a model of integers whose directions are finite in number; None if it is not one."""
    orbit = find_orbit(system, rounded=False)
    if orbit is None:
        return None
    states = len(system.machine.table)
    if orbit.counterexample is not None:
        length = len(orbit.counterexample) - 1
        reason = f"a string of length {length + 1} is misclassified"
        return Certificate(length, UNDECIDED, length, True, reason, orbit.counterexample, states=states)
    rounded = find_orbit(system, rounded=True)
    float_horizon = None if rounded is not None and rounded.counterexample is None else UNDECIDED
    reason = f"the states return to {orbit.n_pairs:,} directions exactly, and each has the correct label"
    return Certificate(None, float_horizon, 0, True, reason, residual=0.0, margin=orbit.margin, states=states)


def _certify_by_bounds(system: LinearSystem, strings: int, longest: int, generator: np.random.Generator) -> Certificate:
    """Certify a model by checking short strings and bounding the states of longer ones."""
    states = len(system.machine.table)
    coordinates = choose_coordinates(system, generator)
    transformed = None if coordinates is None else TransformedSystem.build(system, coordinates)
    if transformed is None:
        reason = "the states of the model do not cluster by the states of the machine, so nothing is proved"
        return Certificate(0, 0, 0, False, reason, states=states)
    word = _word_length(system, transformed.coordinates.dimension)
    by_symbol = transformed.error_recurrence(1, rounded=False)
    by_word = by_symbol if word == 1 else transformed.error_recurrence(word, rounded=False)
    checked = affordable_length(transformed, strings)
    norms = _extend_norms(transformed.word_matrices(word)[1], checked + 1)
    results = ExhaustiveSearch(transformed, checked, norms).run()
    readout = ReadoutBounds(transformed)
    exact = prove_length(readout, results[False], [by_symbol, by_word], longest, rounded=False)
    recurrences = [transformed.error_recurrence(m, rounded=True) for m in sorted({1, word})]
    rounded = prove_length(readout, results[True], recurrences, longest, rounded=True)
    float_horizon = rounded.length
    if not system.rescale:
        float_horizon = _shorter(float_horizon, float_range_length(transformed, recurrences[0], rounded.largest_errors))
    residual = by_symbol.r1.max()
    return Certificate(
        horizon=exact.length,
        float_horizon=_shorter(exact.length, float_horizon),
        exhaustive=results[False].length,
        exact=False,
        reason=exact.reason,
        counterexample=results[False].counterexample,
        residual=float(residual) if np.isfinite(residual) else None,
        norms=(float(by_symbol.n11.max()), float(by_word.n11.max())),
        margin=readout.margin,
        dimension=transformed.coordinates.dimension,
        word=word,
        states=states,
    )


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


def _shorter(horizon: int | None, other: int | None) -> int | None:
    """Return the shorter of two horizons, of which None is the longest."""
    return other if horizon is None else horizon if other is None else min(horizon, other)
