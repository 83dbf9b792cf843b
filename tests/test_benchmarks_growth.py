"""The benchmark of growth: points are measured once, curves end at limits, and the figure needs the files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.growth import drawing, measuring
from benchmarks.growth.__main__ import main
from benchmarks.growth.methods import METHODS, Point, check_point

DESCRIPTION = {"device": "a device", "versions": {"torch": "2"}, "limits": {"seconds": 1.0, "gib": 1.0}, "command": "c"}


class FakeMeasure:
    """Measures nothing, and remembers for which points it was asked."""

    def __init__(self, longest: int = 1000) -> None:
        self.longest = longest
        self.points: list[Point] = []

    def __call__(self, point: Point) -> dict[str, Any]:
        self.points.append(point)
        return {"ended": "time"} if point.length > self.longest else {"ms": point.length * 2.0, "mib": 3.0}


def measure(path: Path, fake: FakeMeasure, **options: Any) -> bool:
    sweeps = {"length": (64, 256, 1024, 4096), "batch": (1, 4)}
    return measuring.measure_all(path, DESCRIPTION, fake, sweeps=sweeps, methods=["mixture_scan"], **options)


def test_stored_points_are_kept_and_a_curve_ends_at_its_limit(tmp_path: Path) -> None:
    path, first, second, third = tmp_path / "cpu.json", FakeMeasure(), FakeMeasure(), FakeMeasure()
    assert not measure(path, first, stop_after=-1.0) and not first.points and not path.exists()
    assert measure(path, first)
    assert [(point.length, point.batch) for point in first.points] == [(64, 1), (256, 1), (1024, 1), (256, 4)]
    text = path.read_text()
    assert measure(path, second) and not second.points and path.read_text() == text
    assert measure(path, third, again=True) and third.points == first.points
    rows = json.loads(text)["points"]
    assert [row.get("ended") for row in rows] == [None, None, "time", None]


def test_methods_agree_with_the_loop() -> None:
    for method in METHODS:
        if method != "torch-slices":
            assert (check_point(Point(method, replicas=2, batch=3, length=5, size=4), "cpu") or 0.0) < 1e-4


def test_a_measured_point_has_time_and_memory_or_says_why_not() -> None:
    point, limits = Point("eager loop", length=8, size=4), measuring.Limits()
    measured = measuring.measure_here(point, "cpu", measuring.Limits(seconds=0.0))
    assert measured["ended"] == "time"
    measured = measuring.measure_in_process(point, "cpu", limits)
    assert measured["ms"] > 0 and measured["mib"] >= 0 and measured["error"] < 1e-4
    with pytest.raises(ValueError, match="'loop'; choose one of mixture_scan"):
        Point("loop")


def test_the_figure_is_drawn_from_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("--draw measures nothing")

    monkeypatch.setattr("benchmarks.growth.__main__.measure_all", refuse)
    with pytest.raises(SystemExit):
        main(["--draw", "--folder", str(tmp_path)])
    rows = [
        {"method": method, "replicas": r, "batch": b, "length": length, "size": n, "ms": 1.0 + length, "mib": 2.0}
        for method in ("mixture_scan", "eager loop")
        for r, b, length, n in ((1, 1, 64, 64), (1, 1, 256, 64), (1, 1, 256, 128), (1, 4, 256, 64), (4, 1, 256, 64))
    ]
    rows[1:1] = [{**rows[0], "length": 1024, "ended": "memory"}]
    document = DESCRIPTION | {"notes": {"torch-slices": "torch-slices is not installed"}, "points": rows}
    (tmp_path / "cpu.json").write_text(json.dumps(document))
    assert main(["--draw", "--folder", str(tmp_path)]) == 0
    svg = (tmp_path / "growth.svg").read_text()
    for text in ("sdssm mixture_scan", "eager torch loop", "a device", "not installed", "time (ms)", "memory"):
        assert text in svg
    assert "associative_scan" not in svg
    assert drawing.curve(document, "mixture_scan", "length", "ms") == [(64, 65.0), (256, 257.0)]
    assert drawing.ending(document, "mixture_scan", "length") == "memory"
    assert drawing.ending(document, "eager loop", "length") is None
