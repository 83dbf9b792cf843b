"""The check against slowdowns: a planted one fails, noise does not. The clock is a fake one."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import check, train
from sdssm import ops
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.training.engine import new_model


class FakeClock:
    """A clock that only advances when a fake run says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, seconds: Iterator[float]) -> check.Run:
        """Return something to time that takes the next number of seconds at each call."""

        def advance() -> None:
            self.now += next(seconds)

        return advance


def repeat(*seconds: float) -> Iterator[float]:
    while True:
        yield from seconds


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((1.0,), "ok"),
        ((1.14,), "ok"),
        ((0.5,), "ok"),
        ((1.16,), "SLOWER"),
        ((5.0, 9.0, 1.0, 7.0), "ok"),  # noise: the least time counts
    ],
)
def test_only_a_slowdown_of_more_than_15_percent_fails(
    ours: tuple[float, ...], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FakeClock()

    def measure(name: str, length: float) -> float:
        return check.measure_ratio(clock.run(repeat(*ours)), clock.run(repeat(2.0)), length, clock)

    assert measure("row", 1.0) == pytest.approx(min(ours) / 2)
    assert check.check_rows(["row"], {"row": 0.5}, measure) == (["row"] if verdict == "SLOWER" else [])
    assert capsys.readouterr().out.splitlines()[-1].endswith(verdict)


@pytest.mark.parametrize(
    ("ours", "baseline", "seconds"),
    [
        ((0.02,), (0.02,), 0.5),  # both are certain at once
        ((0.02,), (0.02, 0.03, 0.05), 0.5),
        ((0.02, 0.0202, 0.03), (0.02,), 0.5),
        (tuple(0.02 + 0.001 * i for i in range(400, 0, -1)), (0.02,), 2),  # becomes faster and faster: not settled
        ((2.0,), (1.0,), 3 * 4.0),  # three rounds at least; the baseline runs twice in each after the first
    ],
)
def test_a_row_ends_when_the_least_times_are_certain(
    ours: tuple[float, ...], baseline: tuple[float, ...], seconds: float
) -> None:
    clock, length = FakeClock(), 2.0
    least = check.measure_ratio(clock.run(repeat(*ours)), clock.run(repeat(*baseline)), length, clock)
    spent = clock.now - ours[0] - baseline[0]  # the first runs are not timed
    assert spent >= min(seconds, length) and spent <= 1.5 * seconds
    if len(ours) < 100:
        assert least == pytest.approx(min(ours) / min(baseline))


@pytest.mark.parametrize(("noise", "missed"), [(0.0, 0), (0.05, 0), (0.2, 1)])
def test_a_planted_slowdown_is_found_and_noise_is_not(noise: float, missed: int) -> None:
    """20 % slower fails and equally fast passes, though most runs are disturbed; with 20 % one in 40 may be missed."""
    failed = list[str]()
    for seed in range(40):
        chance, clock = random.Random(seed), FakeClock()

        def disturbed(seconds: float, chance: random.Random = chance) -> Iterator[float]:
            while True:
                yield seconds * (1 + noise * chance.random() ** 2)

        def measure(name: str, length: float, clock: FakeClock = clock) -> float:
            own = 0.01 * (1.2 if name == "slower" else 1.0)
            return check.measure_ratio(clock.run(disturbed(own)), clock.run(disturbed(0.1)), length, clock)

        failed += check.check_rows(["slower", "same"], {"slower": 0.1, "same": 0.1}, measure)
    assert failed.count("slower") >= 40 - missed and failed.count("same") == 0


def test_a_row_that_fails_is_measured_again_after_the_others() -> None:
    measured, lengths = list[str](), list[float]()
    ratios = {"disturbed": iter([1.5, 0.5]), "slow": repeat(1.5), "good": iter([0.5])}

    def measure(name: str, length: float) -> float:
        measured.append(name)
        lengths.append(length / check.SECONDS)
        return next(ratios[name])

    assert check.check_rows(ratios, dict.fromkeys(ratios, 0.5), measure) == ["slow"]
    assert measured == ["disturbed", "slow", "good", "disturbed", *["slow"] * (check.ATTEMPTS - 1)]
    assert lengths == [1, 1, 1, 2, 2, 4]


def test_the_loop_of_the_evaluation_counts_as_the_model_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LONGEST", 12)
    model, strings = new_model(train.paper_config(0)), EvaluationStrings(train.TASK, 64, 1, check.CPU)
    with torch.no_grad(), ops.use_backend("reference"):
        [(tokens, labels)] = strings.blocks(12)
        predictions = model.advance(tokens)[0].argmax(-1)
    counts = (predictions == labels).sum(0).tolist()
    assert check.count_in_loop(model, strings) == counts and sum(counts) > 0


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "STORED", tmp_path / "check.json")
    monkeypatch.setattr(check, "ROWS", dict.fromkeys(("fast", "other"), check.run_start))

    def run(*arguments: str, ratios: tuple[float, ...] = (0.5,)) -> int:
        values = repeat(*ratios)
        return check.main(list(arguments), lambda name, length: next(values))

    assert run() == 1 and "--update" in capsys.readouterr().out  # nothing is stored
    assert run("--update") == 0 and run() == 0
    assert run(ratios=(0.6,)) == 1
    assert run("--update", "--rows", "fast", ratios=(0.1, 0.9, 0.6)) == 0
    assert json.loads(check.STORED.read_text())["ratios"] == {"fast": 0.6, "other": 0.5}  # the median
    with pytest.raises(SystemExit):
        run("--rows", "slow")


def test_a_row_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()

    def row() -> tuple[check.Run, check.Run]:
        assert os.getpid() != parent and torch.get_num_threads() == 1
        return lambda: sum(range(400_000)), lambda: sum(range(200_000))

    def wrong() -> tuple[check.Run, check.Run]:
        raise ValueError("the results differ")

    monkeypatch.setattr(check, "ROWS", {"row": row, "wrong": wrong})
    assert 1.5 < check.measure_in_process("row", 0.1) < 3
    with pytest.raises(SystemExit, match="'wrong' cannot be measured: the results differ"):
        check.measure_in_process("wrong", 0.1)


def test_every_row_is_stored() -> None:
    assert list(json.loads(check.STORED.read_text())["ratios"]) == list(check.ROWS)
