"""`certify`: a length up to which every valid string is proved to be told right.

The model is what its layer computes with when it reads tokens: the float32 matrices of the symbols, mixed and
normalised once, the float32 start state and the float32 weights of the readout. Of these very numbers two things are
proved: that the labels are right in exact arithmetic, and that they are right when the matrices are applied one after
the other and everything, the readout too, is rounded to float32 after every operation, in whatever order sums are
added up. Every bound is computed in float64 with its own rounding accounted for (`intervals`). First all short strings
are looked at (`exhaustive`); from where they are, longer ones are bounded (`bounds`, in coordinates that `choose_coordinates`
chooses). Models of whole numbers are searched to the end (`find_orbit`), which proves every length.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.exact.certification.ball_arithmetic import Floats
from sdssm.exact.certification.coordinates import choose_coordinates
from sdssm.exact.certification.counterexamples import find_counterexample
from sdssm.exact.certification.error_recurrence import ErrorRecurrence
from sdssm.exact.certification.exhaustive import ExhaustiveResult, ExhaustiveSearch, affordable_length
from sdssm.exact.certification.integer_orbit import find_orbit
from sdssm.exact.certification.linear_system import LinearSystem, build_system
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.models import Classifier
from sdssm.settings import check_at_least

#: A float horizon that is still to be found.
UNKNOWN = -1
#: Words whose matrices are multiplied out, edges of the machine with such words, and the work of turning them.
MOST_WORDS, MOST_EDGES, MOST_WORK = 512, 1 << 16, 1 << 31
#: Symbols of a word at most, however few symbols there are.
LONGEST_WORD = 16
#: Lengths bounded state by state; after them all states are treated alike.
EACH = 2_048
#: Words between looks at the labels, to begin with.
STRIDE = 512
#: More than rounding can do to the size of a state in one step, as a power of two.
ROUNDED = 1e-3
#: Lengths looked back on for errors that no longer grow.
WINDOW = 64


@dataclass(frozen=True)
class Certificate:
    """What is proved of a model and a machine; a horizon of None stands for every length.

    `horizon` holds in exact arithmetic, `float_horizon` with float32 rounding of the recurrence, one symbol after the
    other (not of the parallel scan, which multiplies matrices first); `exhaustive` is the part of the first that was
    found by looking at every string. Where the model is exact, its states come back to a finite number of directions.
    The rest says why the horizon is where it is: in the norm of the subspace of `dimension` entries, `residual` is how
    far one symbol leads a representative from the next, `norms` what one symbol and a word of `word` symbols multiply
    an error by, `margin` how far off a state may be before its label could change.
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
        """The first length of which nothing is proved."""
        return None if self.horizon is None else self.horizon + 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
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
    """A length up to which the model tells the machine's output after every valid string, proved.

    `strings` bounds how many are looked at one by one, `longest` how far is counted; up to length `search` a string
    that the model gets wrong is looked for where the horizon is finite. A model with an input matrix B, a bias or
    several layers is refused: its label depends on more than the direction of one state.

    >>> from sdssm.automata import get_machine
    >>> from sdssm.exact import compile
    >>> certify(compile("parity"), get_machine("parity")).horizon is None
    True
    """
    check_at_least("strings", strings, 1)
    check_at_least("longest", longest, 1)
    check_at_least("search", search, 0)
    system = build_system(model, machine, valid)
    found = _of_orbit(system)
    if found is None or found.float_horizon == UNKNOWN:
        bounds = _of_bounds(system, strings, longest, np.random.default_rng(seed))
        found = bounds if found is None else replace(found, float_horizon=_least(found.horizon, bounds.float_horizon))
    if not system.tame:
        found = replace(found, float_horizon=0, reason=f"{found.reason}; float32 has no room for some of its numbers")
    if found.horizon is None or found.counterexample is not None:
        return found
    generator = torch.Generator().manual_seed(seed)
    wrong = find_counterexample(model, system.asked, search, generator) if search else None
    return replace(found, counterexample=wrong)


def _of_orbit(system: LinearSystem) -> Certificate | None:
    """The certificate of a model of whole numbers whose directions are finite in number."""
    found = find_orbit(system, rounded=False)
    if found is None:
        return None
    states = len(system.asked.table)
    if found.wrong is not None:
        length = len(found.wrong) - 1
        reason = f"a string of length {length + 1} is told wrong"
        return Certificate(length, UNKNOWN, length, True, reason, found.wrong, states=states)
    rounded = find_orbit(system, rounded=True)
    exactly = rounded is not None and rounded.wrong is None
    reason = f"states come back to {found.pairs:,} directions exactly, and each has the right label"
    margin = found.margin
    return Certificate(None, None if exactly else UNKNOWN, 0, True, reason, residual=0.0, margin=margin, states=states)


def _of_bounds(system: LinearSystem, strings: int, longest: int, generator: np.random.Generator) -> Certificate:
    states = len(system.asked.table)
    chosen = choose_coordinates(system, generator)
    frame = None if chosen is None else TransformedSystem.of(system, chosen)
    if frame is None:
        reason = "the model's states do not lie as those of the machine should: nothing is proved"
        return Certificate(0, 0, 0, False, reason, states=states)
    word = _word(system, frame.geometry.dimension)
    one = frame.steps(1, rounded=False)
    many = one if word == 1 else frame.steps(word, rounded=False)
    seen = affordable_length(frame, strings)
    explored = ExhaustiveSearch(frame, seen, _extended(frame.words(word)[1], seen + 1)).run()
    horizon, reason, _ = _horizon(frame, explored[False], [one, many], longest, rounded=False)
    steps = [frame.steps(m, rounded=True) for m in sorted({1, word})]
    rounded, _, peak = _horizon(frame, explored[True], steps, longest, rounded=True)
    if not system.rescale:
        rounded = _in_range(frame, steps[0], peak, rounded)
    rounded = _least(horizon, rounded)
    return Certificate(
        horizon=horizon,
        float_horizon=rounded,
        exhaustive=explored[False].length,
        exact=False,
        reason=reason,
        counterexample=explored[False].wrong,
        residual=_finite(one.r1.max()),
        norms=(float(one.n11.max()), float(many.n11.max())),
        margin=frame.margin,
        dimension=frame.geometry.dimension,
        word=word,
        states=states,
    )


def _word(system: LinearSystem, d: int) -> int:
    """How many symbols the longest words have whose matrices are affordable."""
    n_symbols, n_states = len(system.A), len(system.asked.table)
    for m in range(1, LONGEST_WORD):
        words = n_symbols ** (m + 1)
        if words > MOST_WORDS or words * n_states > MOST_EDGES or 8 * words * n_states * d**3 > MOST_WORK:
            return m
    return LONGEST_WORD


def _extended(norms: list[float], count: int) -> list[float]:
    """Norms of longer words from those of their parts."""
    norms = list(norms)
    while len(norms) < count:
        k = len(norms)
        norms.append(min(norms[j] * norms[k - j] for j in range(1, k // 2 + 1)) * (1 + 1e-12) if k > 1 else np.inf)
    return norms


def _horizon(
    frame: TransformedSystem, explored: ExhaustiveResult, steps: list[ErrorRecurrence], longest: int, *, rounded: bool
) -> tuple[int | None, str, Floats]:
    """The greatest proved length, or None for all, why it is no greater, and the greatest errors on the way (2,).

    A length is proved by looking at all strings or by the bound on their states, whichever does; and the bound is the
    least of what was seen, what one symbol more may do to it, and what a whole word may.
    """
    history, length = explored.errors[:1], 0

    def peak() -> Floats:
        return np.asarray(np.max(history, axis=(0, 1)))

    window = max(WINDOW, *(step.m for step in steps))
    while length < min(longest, EACH):
        known = [step(history[length + 1 - step.m]) for step in steps if step.m <= length + 1]
        seen = length + 1 < len(explored.errors)
        errors = np.minimum.reduce([*known, explored.errors[length + 1]] if seen else known)
        if not (errors[:, 0] >= 0).any():
            return None, "every valid string is shorter", peak()  # they are finite in number
        if not (seen and explored.right[length + 1]) and not _right(frame, errors, rounded):
            return length, _why(explored, length + 1), peak()
        history.append(errors)
        length += 1
        if length % WINDOW == 0 and _settled(frame, history[-window:], steps, rounded):
            return None, "the bound on the states no longer grows", 1.1 * peak()
    if length >= longest:
        return longest, f"counted no further than {longest:,}", peak()
    return _alike(frame, np.max(history[-window:], axis=(0, 1)), steps[-1].worst(), length, longest, rounded)


def _why(explored: ExhaustiveResult, length: int) -> str:
    if explored.wrong is not None and len(explored.wrong) == length:
        return f"a string of length {length} is told wrong"
    return f"at length {length} the bound on the states no longer proves the label"


def _right(frame: TransformedSystem, errors: Floats, rounded: bool) -> bool:
    alive = errors[:, 0] >= 0
    e1, e2 = np.maximum(errors, 0).T
    if not np.isfinite(errors[alive]).all():
        return False
    return bool(
        frame.right(np.where(np.isfinite(e1), e1, 0), np.where(np.isfinite(e2), e2, 0), rounded=rounded)[alive].all()
    )


def _settled(frame: TransformedSystem, window: list[Floats], steps: list[ErrorRecurrence], rounded: bool) -> bool:
    """Whether errors no greater than a little above the latest lead to such again, and so for ever."""
    errors = np.max(window, axis=0)
    for spare in (1e-9, 1e-3, 0.1):
        more = np.where(errors >= 0, errors * (1 + spare) + 1e-300, errors)
        after = np.minimum.reduce([step(more) for step in steps])
        if (after <= more).all() and _right(frame, more, rounded):
            return True
    return False


def _alike(
    frame: TransformedSystem, errors: Floats, step: ErrorRecurrence, length: int, longest: int, rounded: bool
) -> tuple[int | None, str, Floats]:
    """Further, with one bound for all states, a word at a time."""
    count = len(frame.geometry.centres)

    def right(e: Floats) -> bool:
        return _right(frame, np.repeat(e, count, axis=0), rounded)

    e, stride = errors[None], STRIDE  # labels are looked at after that many words, errors never shrinking meanwhile
    while length < longest:
        later = e
        for _ in range(stride):
            later = np.maximum(later, step(later))
        if right(later):
            e, length = later, length + stride * step.m
        elif stride > 1:
            stride = max(1, stride // 8)
        else:
            return length, f"at length {length + 1} the bound on the states no longer proves the label", e[0]
    return longest, f"counted no further than {longest:,}", e[0]


def _in_range(frame: TransformedSystem, one: ErrorRecurrence, peak: Floats, horizon: int | None) -> int:
    """States that are never rescaled must stay within what float32 can hold: here within 2^30 of where they began.

    A step multiplies the scale of a state by its factor times lambda + phi' A e, and by what rounding does to that;
    representatives are of unlike size, too.
    """
    lead = frame.leading()
    drift = float(one.eta1.max() * peak[0] + one.eta2.max() * peak[1])
    if not (lead > 0).all() or not drift < 0.5:
        return 0
    symbol = frame.system.asked.edges[1]
    most = np.abs(np.log2(lead * frame.geometry.factors[symbol])).max() + 3 * drift + ROUNDED
    sizes = np.sqrt(np.square(frame.geometry.centres).sum(1))
    unlike = float(np.log2(sizes.max() / sizes.min())) + 2
    held = int(max(0.0, 30 - unlike) / most)
    return held if horizon is None else min(held, horizon)


def _least(one: int | None, other: int | None) -> int | None:
    """The shorter of two horizons, of which None is the longest."""
    return other if one is None else one if other is None else min(one, other)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
