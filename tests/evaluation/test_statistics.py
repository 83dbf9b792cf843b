"""Confidence intervals cover the true accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from sdssm.evaluation.statistics import (
    MOST_DRAWN,
    RESAMPLES,
    bootstrap_over_lengths,
    bootstrap_over_strings,
    wilson_intervals,
)

STRINGS, LENGTHS = 100, 200


def simulate_correct(generator: np.random.Generator) -> np.ndarray:
    """Whether each string is correct at each length, (B, L): each symbol makes 0.5 % of the strings fail for good."""
    fails = generator.geometric(0.005, size=STRINGS)
    return fails[:, None] > np.arange(1, LENGTHS + 1)


TRUE_MEAN = float(np.mean((1 - 0.005) ** np.arange(1, LENGTHS + 1)))


def test_bootstrap_over_strings_covers_the_mean_and_a_naive_interval_does_not() -> None:
    generator = np.random.default_rng(0)
    covered, naive_covered, wider = 0, 0, []
    trials = 200
    for seed in range(trials):
        correct = simulate_correct(generator)
        low, high = bootstrap_over_strings(correct.mean(1), seed)
        naive_low, naive_high = bootstrap_over_lengths(correct.sum(0), STRINGS, generator)
        covered += low <= TRUE_MEAN <= high
        naive_covered += naive_low <= TRUE_MEAN <= naive_high
        wider.append((high - low) / (naive_high - naive_low))
    assert 0.90 <= covered / trials <= 0.99
    assert naive_covered / trials < 0.5
    assert np.mean(wider) > 4


def test_bootstrap_over_lengths_covers_the_mean_of_fresh_strings() -> None:
    generator = np.random.default_rng(1)
    share = np.linspace(1.0, 0.3, LENGTHS)
    trials, covered = 200, 0
    for _ in range(trials):
        low, high = bootstrap_over_lengths(generator.binomial(STRINGS, share), STRINGS, generator)
        covered += low <= share.mean() <= high
    assert 0.90 <= covered / trials <= 0.99


@pytest.mark.parametrize("correct", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("strings", [1, 100])
def test_interval_has_a_width_if_all_strings_have_the_same_score(correct: float, strings: int) -> None:
    low, high = bootstrap_over_strings(np.full(strings, correct), 3)
    assert 0.0 <= low <= correct <= high <= 1.0
    assert high - low > 3 / 100  # the rule of three
    low, high = bootstrap_over_lengths(np.array([0, 50, 50]) * round(correct), 50, np.random.default_rng(3))
    assert 0.015 < high - low < 0.2


@pytest.mark.parametrize("strings", [1, 7, 512, 3_000])
def test_resamples_are_those_of_the_seed(strings: int) -> None:
    """The interval is the central part of the means of the resamples, whether these are kept or drawn in parts."""
    scores = np.random.default_rng(5).random(strings)
    generator, means = np.random.default_rng(6), np.empty(RESAMPLES)
    for part in np.array_split(means, -(-RESAMPLES * strings // MOST_DRAWN)):
        part[:] = scores[generator.integers(strings, size=(len(part), strings))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    expected = (low, high) if strings > 1 else tuple(x[0] for x in wilson_intervals(scores, 1))
    assert bootstrap_over_strings(scores, 6) == pytest.approx(expected, rel=0, abs=1e-15)
    assert bootstrap_over_strings(scores, 6) == bootstrap_over_strings(scores, 6)
    assert strings == 1 or bootstrap_over_strings(scores, 7) != bootstrap_over_strings(scores, 6)


@pytest.mark.parametrize("lost", [0.002, 0.005, 0.01])
def test_interval_covers_an_accuracy_close_to_one(lost: float) -> None:
    """In many trials none of 100 strings fails, and a string that fails does so at every length."""
    generator = np.random.default_rng(4)
    trials = [bootstrap_over_strings((generator.random(100) >= lost).astype(float), seed) for seed in range(200)]
    assert np.mean([low <= 1 - lost <= high for low, high in trials]) > 0.93


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_wilson_interval_covers_the_accuracy_at_one_length(share: float) -> None:
    correct = np.random.default_rng(2).binomial(512, share, size=4000)
    low, high = wilson_intervals(correct, 512)
    assert np.mean((low <= share) & (share <= high)) > 0.93
    assert (low <= correct / 512).all()
    assert (correct / 512 <= high).all()
