"""Search spaces, proposed candidates, and candidates that are stopped early."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sdssm.errors import SdssmError
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.search_space import Range, SearchSpace, take
from sdssm.experiments.sweeps.optuna_search import propose
from sdssm.experiments.sweeps.search import Search, weak_candidates
from sdssm.experiments.sweeps.study import SweepTrial
from sdssm.experiments.sweeps.sweep_spec import make_sweep_spec

RATE = Range.parse("lr", "1e-5..1e-2")
SPACE = SearchSpace(choices={"state": [32, 64]}, ranges={"lr": RATE, "dictionary": Range(low=2, high=9, whole=True)})


@pytest.mark.parametrize(
    ("text", "log"),
    [("1e-5..1e-2", True), ("1..10", True), ("1..9", False), ("0..100", False), ("-1..100", False),
     ("1e-5..1e-2:linear", False), ("1..2:log", True), (" 1 .. 20 : log ", True)],
)  # fmt: skip
def test_scale_of_a_range(text: str, log: bool) -> None:
    assert Range.parse("x", text).log is log


@pytest.mark.parametrize(
    ("text", "whole", "message"),
    [
        ("1e-5", False, "give two numbers"),
        ("a..b", False, "give two numbers"),
        ("1..2:ln", False, "give two numbers"),
        ("2..1", False, "must be below"),
        ("nan..1", False, "must be below"),
        ("0..1:log", False, "above 0"),
        ("1..2.5", True, "must be integers"),
    ],
)
def test_invalid_ranges_are_refused(text: str, whole: bool, message: str) -> None:
    with pytest.raises(SpecError) as error:
        Range.parse("lr", text, whole=whole)
    assert message in str(error.value) and "lr" in str(error.value) and "\n" not in str(error.value)


def test_samples_depend_only_on_the_seed() -> None:
    few, many = (take(SPACE.samples(seed=3), 0, count) for count in (5, 40))
    assert many[:5] == few
    assert take(SPACE.samples(seed=3), 5, 9) == many[5:9]
    assert take(SPACE.samples(seed=4), 0, 5) != few
    assert len({repr(candidate) for candidate in many}) == 40
    for candidate in many:
        assert candidate["state"] in (32, 64) and candidate["dictionary"] in range(2, 10)
        assert 1e-5 <= candidate["lr"] <= 1e-2
        assert candidate["lr"] == float(f"{candidate['lr']:.4g}")  # few digits
    below = sum(candidate["lr"] < math.sqrt(1e-5 * 1e-2) for candidate in many)
    assert 8 < below < 32  # about half, on a log scale


def test_finite_space_is_sampled_completely() -> None:
    small = SearchSpace(choices={"a": [1, 2, None]}, ranges={"b": Range(low=1, high=4, whole=True)})
    assert small.size() == 12
    assert len(take(small.samples(0), 0, 100)) == 12
    assert SPACE.size() is None


def test_corners_contain_every_value_and_both_ends() -> None:
    corners = SPACE.corners()
    assert {corner["state"] for corner in corners} == {32, 64}
    assert {corner["lr"] for corner in corners} == {1e-5, 1e-2}
    assert {corner["dictionary"] for corner in corners} == {2, 9}


def test_batches_of_a_grid_add_up_to_the_grid() -> None:
    space = SearchSpace(choices={"lr": [1, 2, 3], "b": [True, False]}, ranges={})
    search, trials = Search(parallel=4), list[SweepTrial]()
    while candidates := search.next_candidates(space, trials):
        assert len(candidates) <= 4
        trials += [SweepTrial(variant=variant) for variant in candidates]
    assert [trial.variant for trial in trials] == list(space.grid())


def run_trials(variants: list[dict[str, Any]]) -> list[SweepTrial]:
    """Return trials whose value is best at a learning rate of 1e-3."""
    trials = []
    for number, variant in enumerate(variants):
        value = 100 - 20 * abs(math.log10(variant["lr"]) + 3)
        if number % 4 == 3:
            trial = SweepTrial(variant=variant, state="pruned", value=value / 2, rungs={"0.25": value / 2})
        else:
            rungs = {"0.25": value / 2, "0.5": value}
            trial = SweepTrial(variant=variant, state="finished", value=value, rungs=rungs)
        trials.append(trial)
    return trials


def test_optuna_samples_more_where_values_are_good() -> None:
    pytest.importorskip("optuna")
    search, trials = Search(kind="optuna", trials=60, parallel=6), list[SweepTrial]()
    while candidates := search.next_candidates(SPACE, trials):
        assert candidates == propose(SPACE, trials, len(candidates), seed=0)  # it has no state of its own
        trials += run_trials(candidates)
    assert len(trials) == 60
    assert len({repr(trial.variant) for trial in trials}) == 60
    near = [
        sum(abs(math.log10(trial.variant["lr"]) + 3) < 0.5 for trial in part) for part in (trials[:20], trials[40:])
    ]
    assert near[1] > near[0]
    assert propose(SPACE, trials, 3, seed=1) != propose(SPACE, trials, 3, seed=0)


def test_optuna_proposes_each_candidate_once() -> None:
    pytest.importorskip("optuna")
    space = SearchSpace(
        choices={"betas": [[0.9, 0.99], [0.9, 0.999]], "query": [True, False], "clip": [None, 1]}, ranges={}
    )
    search, trials = Search(kind="optuna", trials=50, parallel=3), list[SweepTrial]()
    while candidates := search.next_candidates(space, trials):
        trials += [SweepTrial(variant=variant, state="finished", value=1.0) for variant in candidates]
    assert sorted(repr(trial.variant) for trial in trials) == sorted(map(repr, space.grid()))


def test_refused_trials_are_passed_to_optuna() -> None:
    pytest.importorskip("optuna")
    trials = [SweepTrial(variant={"lr": 1e-3, "state": 32, "dictionary": 4}, state="refused")]
    assert len(propose(SPACE, trials, 2, seed=0)) == 2


@pytest.mark.parametrize(
    ("accuracy", "earlier", "keep", "stopped"),
    [
        ([90, 60, 50, 20], [], 0.5, {2, 3}),
        ([90, 60, 50, 20], [], 1.0, set()),
        ([90, 60, 50, 20], [], 0.01, {1, 2, 3}),
        ([50, 50, 50], [], 0.5, set()),  # equally good
        ([10], [], 0.5, set()),
        ([10], [90, 80], 0.5, {0}),
        ([85], [90, 80], 0.5, set()),
        ([], [90], 0.5, set()),
    ],
)
def test_weak_candidates(accuracy: list[float], earlier: list[float], keep: float, stopped: set[int]) -> None:
    assert weak_candidates(dict(enumerate(map(float, accuracy))), earlier, keep) == stopped


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "tpe", "trials": 3},
        {"kind": "random"},
        {"kind": "grid", "trials": 3},
        {"kind": "random", "trials": 0},
        {"parallel": 0},
        {"keep": 0.0},
        {"keep": 1.5},
        {"rungs": (0.5, 0.25)},
        {"rungs": (0.5, 1.0)},
        {"rungs": (0.5,)},  # without keep no candidate is stopped
        {"seed": -1},
    ],
)
def test_invalid_searches_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(SdssmError) as error:
        Search(**arguments)
    assert "\n" not in str(error.value)


def test_default_names_distinguish_searches() -> None:
    """The same search with more trials has the same name, another search another."""

    def name(**more: Any) -> str:
        return make_sweep_spec(["parity"], **{"model": "lstm", "choices": {"lr": [1e-3, 1e-2]}, **more}).name

    searches = [Search(kind="random", trials=count, parallel=count) for count in (2, 9)]
    assert name().startswith("sweep-parity-lstm-") and name() == name(seeds=3, budget=0.5)
    assert name(search=searches[0]) == name(search=searches[1]) != name()
    others = {name(select="score"), name(settings={"state": 8}), name(choices={"lr": [1e-3]}), name(model="rnn")}
    assert len({name(), *others}) == 5
    assert name(name="mine") == "mine"
