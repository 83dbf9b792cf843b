"""The check against slowdowns: a planted one fails, noise does not. The clock is a fake one."""

from __future__ import annotations

import json
import subprocess
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
    commands = list[list[str]]()

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command[1:])
        return subprocess.CompletedProcess(command, len(commands) - 1, "0.25\n", "out of memory")

    monkeypatch.setattr(subprocess, "run", run)
    assert check.measure_in_process("row", 2.0) == 0.25
    assert commands == [["-m", "benchmarks.check", "--measure", "row", "--seconds", "2.0"]]
    with pytest.raises(SystemExit, match="out of memory"):
        check.measure_in_process("row", 2.0)


def test_every_row_is_stored() -> None:
    assert list(json.loads(check.STORED.read_text())["ratios"]) == list(check.ROWS)
