"""Curves and plots of evaluations."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdssm
from sdssm.errors import OutputError
from sdssm.report import check_plot, make_curves, save_plot, terminal_plot
from sdssm.report.curves import Curve
from tests.programs import run_without


def run(accuracy: Sequence[float | None], seed: int = 0, task: str = "a5", **more: Any) -> dict[str, Any]:
    return {
        "task": task,
        "model": "sd-ssm",
        "seed": seed,
        "train_length": 40,
        "max_length": len(accuracy),
        "accuracy": accuracy,
        **more,
    }


COMPUTING = ("sdssm.models", "sdssm.evaluation", "sdssm.training", "sdssm.ops", "sdssm.tasks", "sdssm.experiments")
FALLING = [100.0] * 60 + [100.0 - k / 5 for k in range(440)]


def test_curve_is_mean_and_range_over_seeds() -> None:
    [curve] = make_curves({"runs": [run([100.0, 50.0, None]), run([100.0, 100.0, None], seed=1)]})
    assert curve.seeds == 2
    np.testing.assert_array_equal(curve.mean, [100.0, 75.0, np.nan])
    np.testing.assert_array_equal(curve.low, [100.0, 50.0, np.nan])
    np.testing.assert_array_equal(curve.high, [100.0, 100.0, np.nan])
    evaluation = {"runs": [run([100.0]), run([90.0], seed=1), run([80.0], task="d4"), run([1.0, 2.0])]}
    curves = make_curves(evaluation)
    assert [curve.seeds for curve in curves] == [2, 1, 1]  # other lengths are another curve
    assert [curve.name for curve in curves] == ["a5, sd-ssm, read to 1", "d4, sd-ssm", "a5, sd-ssm, read to 2"]
    two = {"runs": evaluation["runs"][:2]}
    assert [curve.name for curve in make_curves(two, each=True)] == ["a5, sd-ssm, seed 0", "a5, sd-ssm, seed 1"]


def test_each_training_has_its_own_curve() -> None:
    runs = [
        run([100.0], preset="scale-free", settings={"state": 8}),
        run([90.0], preset="scale-free", settings={"state": 8, "clip": None, "betas": [0.9, 0.99]}),
        run([80.0], preset="paper", settings={"state": 8}),
        {**run([70.0], preset="paper", settings={"state": 8}), "train_length": 90},
        run([20.0], status="diverged", preset="scale-free", settings={"state": 8}),
        run([60.0], seed=1, preset="scale-free", settings={"state": 8}),
    ]
    assert [(curve.name, curve.seeds) for curve in make_curves({"runs": runs})] == [
        ("a5, sd-ssm, scale-free, trained to 40", 2),
        ("a5, sd-ssm, scale-free, trained to 40, clip none, betas [0.9, 0.99]", 1),
        ("a5, sd-ssm, paper, trained to 40", 1),
        ("a5, sd-ssm, paper, trained to 90", 1),
        ("a5, sd-ssm, scale-free, trained to 40, diverged", 1),
    ]


def test_terminal_plot() -> None:
    [curve] = make_curves({"runs": [run(FALLING), run([100.0] * 500, seed=1)]})
    lines = terminal_plot(curve, width=55, height=11).splitlines()
    assert all(line.isascii() and len(line) <= 55 for line in lines)
    assert lines[0] == "accuracy in %, a5, sd-ssm, mean of 2 seeds"
    assert lines[1].startswith("100 |*")
    assert lines[6].startswith(" 50 |")
    assert lines[11] == "  0 |"
    columns = "".join(lines[1:12])
    assert columns.count("*") == 50  # one mean in each column
    assert ":" in columns  # the worse seed is below it
    assert lines[12] == "    +====" + "-" * 46
    assert lines[13].split() == ["1", "40", "100", "200", "300", "400", "500"]


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_terminal_plot_fits_the_terminal_and_explains_its_characters(width: int) -> None:
    runs = [run(FALLING, chance=100 / 60), run([100.0] * 500, seed=1, chance=100 / 60)]
    [curve] = make_curves({"runs": runs})
    lines = terminal_plot(curve, width=width).splitlines()
    assert max(map(len, lines)) <= min(width, 105)
    start = next(number for number, line in enumerate(lines) if line.startswith("100 |"))
    axis = next(number for number, line in enumerate(lines) if line.startswith("    +"))
    assert axis - start == (11 if width >= 60 else 7)
    used = set("".join(line[5:] for line in lines[start : axis + 1])) - set(" -")
    legend = {line[5] for line in lines[axis + 2 :] if line[5:9] == 4 * line[5] != 4 * " "}
    assert used == legend == set("*:.=")


def test_terminal_plot_has_ticks_at_listed_lengths() -> None:
    [curve] = make_curves({"runs": [run([100.0, 90.0, 50.0], lengths=[500, 5000, 50_000])]})
    lines = terminal_plot(curve, width=60).splitlines()
    assert lines[13].split() == ["500", "5000", "50000"]
    assert lines[14].strip() == "**** accuracy"  # nothing was averaged


def test_terminal_plot_shows_chance() -> None:
    [parity] = make_curves({"runs": [run([50.0, 50.0], task="parity", chance=50.0)]})
    lines = terminal_plot(parity, width=25, height=11).splitlines()
    assert "     .... chance of a" in lines and "          random guess," in lines
    assert "." not in terminal_plot(replace(parity, chance=None), width=25)
    assert " 50 |.....*.........*...." in lines
    [covered] = make_curves({"runs": [run([50.0] * 500, chance=50.0)]})
    assert ".... chance of a random guess, 50 %" in terminal_plot(covered)


@pytest.mark.parametrize("lengths", [[1], [7], [100, 200], [5, 10_000, 1_000_000], list(range(1, 3000))])
@pytest.mark.parametrize("width", [10, 72])
def test_terminal_plot_of_any_lengths(lengths: list[int], width: int) -> None:
    accuracy = np.linspace(100, 0, len(lengths))
    curve = Curve("a, b", 1, 40, np.array(lengths), accuracy, accuracy, accuracy)
    text = terminal_plot(curve, width=width)
    assert str(lengths[0]) in text
    assert "*" in text


def test_terminal_plot_without_known_accuracies() -> None:
    nothing = np.full(3, np.nan)
    assert "*" not in terminal_plot(Curve("a, b", 1, 40, np.arange(1, 4), nothing, nothing, nothing))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plot.jpg", "ends in '.jpg'; plots are written as .png, .svg or .pdf"),
        ("plot", "ends in 'nothing'"),
        ("nowhere/plot.png", "there is no folder"),
    ],
)
def test_invalid_plot_paths_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        check_plot(tmp_path / name)
    with pytest.raises(OutputError):
        save_plot({"runs": [run([100.0])]}, tmp_path / name)


def test_plot_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "plot.png").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        save_plot({"runs": [run([100.0])]}, tmp_path / "plot.png")


def test_error_names_the_extra_if_matplotlib_is_missing() -> None:
    code = """
from pathlib import Path
from sdssm.report import check_plot
from sdssm.errors import MissingExtraError
try:
    check_plot(Path("plot.png"))
except MissingExtraError as error:
    print(error)
"""
    assert "a plot needs matplotlib.figure; install sdssm[plots]" in run_without({"matplotlib"}, code)


def test_tables_and_plots_import_neither_torch_nor_models() -> None:
    """They are made from JSON only: no torch, no models, no evaluation. `tests/report/page` has the page's test."""
    for path in (Path(sdssm.__file__).parent / "report").glob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
            elif isinstance(node, ast.Import):
                names |= {name.name for name in node.names}
        assert not {name for name in names if name.split(".")[0] == "torch"}
        assert not {name for name in names if name.startswith(COMPUTING)}
