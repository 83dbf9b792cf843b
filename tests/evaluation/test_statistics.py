from __future__ import annotations

import numpy as np
import pytest

from sdssm.evaluation.statistics import band_of_each, band_of_lengths, band_of_strings

STRINGS, LENGTHS = 100, 200


def failing(generator: np.random.Generator) -> np.ndarray:
    """(B, L) whether each string is right at each length: once wrong, for ever wrong, 0.5 % at each symbol."""
    fails = generator.geometric(0.005, size=STRINGS)
    return fails[:, None] > np.arange(1, LENGTHS + 1)


TRUE_MEAN = float(np.mean((1 - 0.005) ** np.arange(1, LENGTHS + 1)))


def test_the_band_of_the_mean_covers_and_the_naive_one_does_not() -> None:
    generator = np.random.default_rng(0)
    covered, naive_covered, wider = 0, 0, []
    trials = 200
    for _ in range(trials):
        right = failing(generator)
        low, high = band_of_strings(right.mean(1), generator)
        naive_low, naive_high = band_of_lengths(right.sum(0), STRINGS, generator)
        covered += low <= TRUE_MEAN <= high
        naive_covered += naive_low <= TRUE_MEAN <= naive_high
        wider.append((high - low) / (naive_high - naive_low))
    assert 0.90 <= covered / trials <= 0.99
    assert naive_covered / trials < 0.5
    assert np.mean(wider) > 4


def test_the_band_of_fresh_strings_covers() -> None:
    generator = np.random.default_rng(1)
    share = np.linspace(1.0, 0.3, LENGTHS)
    trials, covered = 200, 0
    for _ in range(trials):
        low, high = band_of_lengths(generator.binomial(STRINGS, share), STRINGS, generator)
        covered += low <= share.mean() <= high
    assert 0.90 <= covered / trials <= 0.99


@pytest.mark.parametrize("right", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("strings", [1, 100])
def test_strings_that_fare_alike_are_not_all_there_are(right: float, strings: int) -> None:
    low, high = band_of_strings(np.full(strings, right), np.random.default_rng(3))
    assert 0.0 <= low <= right <= high <= 1.0
    assert high - low > 3 / 100  # the rule of three
    low, high = band_of_lengths(np.array([0, 50, 50]) * round(right), 50, np.random.default_rng(3))
    assert 0.015 < high - low < 0.2


@pytest.mark.parametrize("lost", [0.002, 0.005, 0.01])
def test_the_band_of_a_model_that_is_hardly_ever_wrong_covers(lost: float) -> None:
    """In many trials no string of 100 fails, and one that does fails at every length."""
    generator = np.random.default_rng(4)
    trials = [band_of_strings((generator.random(100) >= lost).astype(float), generator) for _ in range(200)]
    assert np.mean([low <= 1 - lost <= high for low, high in trials]) > 0.93


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_the_band_of_one_length_covers(share: float) -> None:
    correct = np.random.default_rng(2).binomial(512, share, size=4000)
    low, high = band_of_each(correct, 512)
    assert np.mean((low <= share) & (share <= high)) > 0.93
    assert (low <= correct / 512).all()
    assert (correct / 512 <= high).all()
