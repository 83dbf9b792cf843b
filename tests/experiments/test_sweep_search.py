"""Where a search looks, what it proposes, and who stops early."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sdssm.errors import SdssmError
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.search_space import Range, Space, part
from sdssm.experiments.sweeps.optuna_search import proposed
from sdssm.experiments.sweeps.search import Search, weak
from sdssm.experiments.sweeps.sweep_spec import sweep_spec
from sdssm.experiments.sweeps.trials import Trial

RATE = Range.read("lr", "1e-5..1e-2")
SPACE = Space(choices={"state": [32, 64]}, ranges={"lr": RATE, "dictionary": Range(low=2, high=9, whole=True)})


@pytest.mark.parametrize(
    ("text", "log"),
    [("1e-5..1e-2", True), ("1..10", True), ("1..9", False), ("0..100", False), ("-1..100", False),
     ("1e-5..1e-2:linear", False), ("1..2:log", True), (" 1 .. 20 : log ", True)],
)  # fmt: skip
def test_the_scale_of_a_range(text: str, log: bool) -> None:
    assert Range.read("x", text).log is log


@pytest.mark.parametrize(
    ("text", "whole", "message"),
    [
        ("1e-5", False, "give two ends"),
        ("a..b", False, "give two ends"),
        ("1..2:ln", False, "give two ends"),
        ("2..1", False, "must be below"),
        ("nan..1", False, "must be below"),
        ("0..1:log", False, "above 0"),
        ("1..2.5", True, "whole numbers"),
    ],
)
def test_bad_ranges(text: str, whole: bool, message: str) -> None:
    with pytest.raises(SpecError) as error:
        Range.read("lr", text, whole=whole)
    assert message in str(error.value) and "lr" in str(error.value) and "\n" not in str(error.value)


def test_random_draws_are_a_function_of_the_seed() -> None:
    few, many = (part(SPACE.draws(seed=3), 0, count) for count in (5, 40))
    assert many[:5] == few
    assert part(SPACE.draws(seed=3), 5, 9) == many[5:9]
    assert part(SPACE.draws(seed=4), 0, 5) != few
    assert len({repr(one) for one in many}) == 40
    for one in many:
        assert one["state"] in (32, 64) and 1e-5 <= one["lr"] <= 1e-2 and one["dictionary"] in range(2, 10)
        assert one["lr"] == float(f"{one['lr']:.4g}")  # as it can be typed
    below = sum(one["lr"] < math.sqrt(1e-5 * 1e-2) for one in many)
    assert 8 < below < 32  # half of a log scale


def test_a_space_that_has_an_end_is_drawn_to_its_end() -> None:
    small = Space(choices={"a": [1, 2, None]}, ranges={"b": Range(low=1, high=4, whole=True)})
    assert small.size() == 12
    assert len(part(small.draws(0), 0, 100)) == 12
    assert SPACE.size() is None


def test_corners_hold_every_value_and_both_ends() -> None:
    corners = SPACE.corners()
    assert {one["state"] for one in corners} == {32, 64}
    assert {one["lr"] for one in corners} == {1e-5, 1e-2}
    assert {one["dictionary"] for one in corners} == {2, 9}


def test_a_grid_in_parts_is_the_grid() -> None:
    space = Space(choices={"lr": [1, 2, 3], "b": [True, False]}, ranges={})
    search, seen = Search(parallel=4), list[Trial]()
    while found := search.next(space, seen):
        assert len(found) <= 4
        seen += [Trial(variant=one) for one in found]
    assert [one.variant for one in seen] == list(space.grid())


def told(variants: list[dict[str, Any]]) -> list[Trial]:
    """Best where the rate is near 1e-3."""
    found = []
    for number, one in enumerate(variants):
        worth = 100 - 20 * abs(math.log10(one["lr"]) + 3)
        if number % 4 == 3:
            found.append(Trial(variant=one, state="pruned", value=worth / 2, rungs={"0.25": worth / 2}))
        else:
            found.append(Trial(variant=one, state="finished", value=worth, rungs={"0.25": worth / 2, "0.5": worth}))
    return found


def test_optuna_goes_where_it_was_good() -> None:
    pytest.importorskip("optuna")
    search, seen = Search(kind="optuna", trials=60, parallel=6), list[Trial]()
    while found := search.next(SPACE, seen):
        assert found == proposed(SPACE, seen, len(found), seed=0)  # it holds no memory of its own
        seen += told(found)
    assert len(seen) == 60
    assert len({repr(one.variant) for one in seen}) == 60
    near = [sum(abs(math.log10(one.variant["lr"]) + 3) < 0.5 for one in part) for part in (seen[:20], seen[40:])]
    assert near[1] > near[0]
    assert proposed(SPACE, seen, 3, seed=1) != proposed(SPACE, seen, 3, seed=0)


def test_optuna_proposes_nothing_twice_and_ends_with_the_space() -> None:
    pytest.importorskip("optuna")
    space = Space(choices={"betas": [[0.9, 0.99], [0.9, 0.999]], "query": [True, False], "clip": [None, 1]}, ranges={})
    search, seen = Search(kind="optuna", trials=50, parallel=3), list[Trial]()
    while found := search.next(space, seen):
        seen += [Trial(variant=one, state="finished", value=1.0) for one in found]
    assert sorted(repr(one.variant) for one in seen) == sorted(map(repr, space.grid()))


def test_what_was_refused_is_told_to_optuna() -> None:
    pytest.importorskip("optuna")
    seen = [Trial(variant={"lr": 1e-3, "state": 32, "dictionary": 4}, state="refused")]
    assert len(proposed(SPACE, seen, 2, seed=0)) == 2


@pytest.mark.parametrize(
    ("now", "before", "keep", "stops"),
    [
        ([90, 60, 50, 20], [], 0.5, {2, 3}),
        ([90, 60, 50, 20], [], 1.0, set()),
        ([90, 60, 50, 20], [], 0.01, {1, 2, 3}),
        ([50, 50, 50], [], 0.5, set()),  # as good as each other
        ([10], [], 0.5, set()),
        ([10], [90, 80], 0.5, {0}),
        ([85], [90, 80], 0.5, set()),
        ([], [90], 0.5, set()),
    ],
)
def test_who_is_weak(now: list[float], before: list[float], keep: float, stops: set[int]) -> None:
    assert weak(dict(enumerate(map(float, now))), before, keep) == stops


@pytest.mark.parametrize(
    "bad",
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
        {"rungs": (0.5,)},  # where all go on nothing is compared
        {"seed": -1},
    ],
)
def test_bad_searches(bad: dict[str, Any]) -> None:
    with pytest.raises(SdssmError) as error:
        Search(**bad)
    assert "\n" not in str(error.value)


def test_names_tell_searches_apart() -> None:
    """More of the same is the same; another search is another folder."""

    def name(**more: Any) -> str:
        return sweep_spec(["parity"], **{"model": "lstm", "choices": {"lr": [1e-3, 1e-2]}, **more}).name

    drawn = [Search(kind="random", trials=count, parallel=count) for count in (2, 9)]
    assert name().startswith("sweep-parity-lstm-") and name() == name(seeds=3, budget=0.5)
    assert name(search=drawn[0]) == name(search=drawn[1]) != name()
    others = {name(select="score"), name(settings={"state": 8}), name(choices={"lr": [1e-3]}), name(model="rnn")}
    assert len({name(), *others}) == 5
    assert name(name="mine") == "mine"
