"""The check against slowdowns: a planted one fails, noise does not. The clock is a fake one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import check


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
    rows: dict[str, check.Row] = {"row": lambda: (clock.run(repeat(*ours)), clock.run(repeat(2.0)))}
    ratios, failed = check.check_rows(rows, {"row": 0.5}, clock)
    assert ratios == {"row": pytest.approx(min(ours) / 2)} and failed == (["row"] if verdict == "SLOWER" else [])
    assert capsys.readouterr().out.splitlines()[-1].endswith(verdict)


def test_a_row_that_fails_is_measured_again() -> None:
    clock = FakeClock()
    disturbed = iter([3.0] * (check.PAIRS + 1) + [1.0] * 100)  # the first attempt alone
    ratio = check.measure_row(lambda: (clock.run(disturbed), clock.run(repeat(2.0))), 0.5, clock)
    assert ratio == 0.5


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock, ours = FakeClock(), [1.0]

    def row() -> tuple[check.Run, check.Run]:
        return clock.run(repeat(ours[0])), clock.run(repeat(2.0))

    monkeypatch.setattr(check, "STORED", tmp_path / "check.json")
    monkeypatch.setattr(check, "ROWS", {"fast": row, "other": row})
    monkeypatch.setattr(check, "check_rows", lambda rows, stored: original(rows, stored, clock))
    assert check.main([]) == 1 and "--update" in capsys.readouterr().out  # nothing is stored
    assert check.main(["--update"]) == 0 and check.main([]) == 0
    ours[0] = 1.2
    assert check.main([]) == 1
    assert check.main(["--update", "--rows", "fast"]) == 0
    assert json.loads(check.STORED.read_text())["ratios"] == {"fast": 0.6, "other": 0.5}
    with pytest.raises(SystemExit):
        check.main(["--rows", "slow"])


def test_every_row_is_stored() -> None:
    assert list(json.loads(check.STORED.read_text())["ratios"]) == list(check.ROWS)


original = check.check_rows
