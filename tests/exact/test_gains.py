"""Gains of states, and the growth of errors: against a plain algorithm, and on models with known gains."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sdssm
from sdssm.checking.forecast import Forecast
from sdssm.checking.section_results import ForecastSection
from sdssm.exact.measurement.cycle_means import find_heaviest_cycle
from sdssm.exact.measurement.measured_gains import growth_of_errors, measure_gains
from sdssm.models import Classifier
from sdssm.tasks import get_task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def heaviest_mean_by_karp(targets: Ints, weights: Floats) -> float:
    """The greatest cycle mean by Karp's theorem, from the heaviest walks of each length."""
    nodes = len(targets)
    heaviest = np.full((nodes + 1, nodes), -np.inf)
    heaviest[0] = 0
    for k in range(nodes):
        for node, edge in np.ndindex(*targets.shape):
            if (end := targets[node, edge]) >= 0:
                heaviest[k + 1, end] = max(heaviest[k + 1, end], heaviest[k, node] + weights[node, edge])
    return max(
        (
            min(
                (heaviest[-1, end] - heaviest[k, end]) / (nodes - k) for k in range(nodes) if heaviest[k, end] > -np.inf
            )
            for end in range(nodes)
            if heaviest[-1, end] > -np.inf
        ),
        default=-np.inf,
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_heaviest_cycle_is_that_of_a_plain_algorithm(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = int(random.integers(1, 9)), int(random.integers(1, 4))
    targets = np.where(random.random(shape) < random.choice([0.1, 0.6]), -1, random.integers(shape[0], size=shape))
    weights = random.normal(size=shape) if seed % 2 else random.integers(-3, 4, size=shape).astype(float)
    cycle, expected = find_heaviest_cycle(targets, weights), heaviest_mean_by_karp(targets, weights)
    if cycle is None:
        assert expected == -np.inf
        return
    assert cycle.mean == pytest.approx(expected, abs=1e-9)
    node, total = cycle.node, 0.0
    for edge in cycle.edges:
        total += weights[node, edge]
        node = int(targets[node, edge])
    assert node == cycle.node and total / len(cycle.edges) == pytest.approx(expected, abs=1e-9)


def test_the_growth_does_not_depend_on_the_lengths_of_the_vectors() -> None:
    """Other lengths of the vectors of the states add a potential to the log gains, which cancels in every cycle."""
    random = np.random.default_rng(0)
    table = random.integers(6, size=(6, 3))
    gains, lengths = random.normal(size=(6, 3)), random.normal(size=6)
    first = growth_of_errors(table, gains).growth
    second = growth_of_errors(table, gains + lengths[table] - lengths[:, None]).growth
    assert first is not None and second is not None
    assert first == pytest.approx(second, rel=1e-6)
    assert growth_of_errors(table, lengths[table] - lengths[:, None]).growth == pytest.approx(1.0, rel=1e-6)


def test_states_that_every_long_string_merges_have_no_growth() -> None:
    assert growth_of_errors(np.array([[0, 1], [0, 1]]), np.zeros((2, 2))).growth is None


def scaled_model(gains: dict[int, float]) -> Classifier:
    """The compiled machine of 'b occurs', with other gains of symbol a in some states."""
    model = sdssm.compile("regex:a*b(a|b)*")
    assert isinstance(model, Classifier)
    with torch.no_grad():
        for state, gain in gains.items():
            model.dictionary[0][:, state] *= gain
            model.layers[0].mixer.column_norm = None  # type: ignore[union-attr]  # it is a layer
    return model


def test_gains_of_a_model_with_known_gains() -> None:
    task = get_task("regex:a*b(a|b)*")
    equal = measure_gains(scaled_model({}), task)
    assert equal is not None and equal.growth == pytest.approx(1) and equal.rounding_length is None
    assert np.abs(equal.log_gains).max() < 1e-6 and "no error grows" in equal.describe()
    gains = measure_gains(scaled_model({0: 1.5, 1: 0.5}), task)
    assert gains is not None and gains.growth is not None and gains.rounding_length is not None
    assert gains.growth == pytest.approx(3) and gains.word == (0,) and gains.state != gains.other
    assert gains.rounding_length == pytest.approx(24 * math.log(2) / math.log(3))
    assert sorted(np.exp(gains.log_gains[:, 0]).round(4).tolist()) == [0.5, 1.5]
    assert "an error can grow by 3 a symbol" in gains.describe() and "while a is repeated" in gains.describe()


def test_models_without_gains() -> None:
    assert measure_gains(sdssm.compile("parity", model="complex-diagonal"), get_task("parity")) is None


def test_the_report_card_shows_gains() -> None:
    gains = measure_gains(scaled_model({0: 2.0}), get_task("regex:a*b(a|b)*"))
    section = ForecastSection(Forecast(None), None, None, gains)
    assert "an error can grow by 2 a symbol" in section.facts()["gains"]
    assert json.loads(json.dumps(section.to_json()))["gains"]["growth"] == pytest.approx(2)
    assert "gains" not in ForecastSection(Forecast(None), None, None).facts()


def test_horizon_shows_gains() -> None:
    result = sdssm.horizon(scaled_model({0: 2.0}), "regex:a*b(a|b)*", max_length=64, strings=8)
    assert result.gains is not None and any("an error can grow by 2" in note for note in result.to_table().notes)
    values = json.loads(json.dumps(result.to_json()))
    assert values["gains"]["growth"] == pytest.approx(2) and values["gains"]["word"] == [0]


@pytest.mark.filterwarnings("error")
def test_a_model_of_zeros_has_no_gain() -> None:
    model = sdssm.compile("parity")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    gains = measure_gains(model, get_task("parity"))
    assert gains is not None and gains.spread is None and gains.growth is None
    assert gains.describe() == "no gain is known: the model's state is 0, or not finite, after every string"
    json.dumps(gains.to_json(), allow_nan=False)
