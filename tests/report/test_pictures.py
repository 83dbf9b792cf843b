"""Pictures of curves: what is drawn, in which colours, and what is written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sdssm.errors import SettingsError
from sdssm.models.catalogue import MODELS
from sdssm.palette import COLOURS
from sdssm.report import make_curves, make_figure, save_plot
from sdssm.report.curves import Curve, short_names
from sdssm.report.labels import spread
from sdssm.report.smoothing import smooth_curve
from sdssm.report.styles import MODEL_COLOURS, line_style, model_colour

pytest.importorskip("matplotlib")

PERFECT = [100.0] * 500
FALLING = [100.0] * 60 + [100.0 - k / 5 for k in range(440)]


def run(accuracy: Sequence[float | None], seed: int = 0, **more: Any) -> dict[str, Any]:
    lengths = more.get("lengths") or [len(accuracy)]
    common = {"task": "a5", "model": "sd-ssm", "train_length": 40, "chance": 100 / 60, "strings": 512}
    return {**common, "seed": seed, "max_length": lengths[-1], "accuracy": accuracy, **more}


def draw(*runs: dict[str, Any], **options: Any) -> Any:
    return make_figure({"runs": runs}, **options)


def lines_of(axes: Any) -> dict[str, Any]:
    """Return the lines of a panel by name, without those of the grid."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def texts_of(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.texts]


# -- what is drawn -----------------------------------------------------------------------------------------------------


def test_picture_has_title_chance_and_training_length() -> None:
    figure = draw(run(FALLING))
    [axes] = figure.axes
    assert "Accuracy of sd-ssm on a5, up to length 500" in texts_of(figure)
    assert lines_of(axes)["chance 1.67 %"].get_ydata()[0] == pytest.approx(100 / 60, abs=0.01)
    assert "chance 1.67 %" in texts_of(figure)
    [mark] = axes.texts
    assert (mark.get_text(), mark.xy[0]) == ("training lengths, up to 40", axes.get_xlim()[0])
    assert axes.patches[0].get_x() + axes.patches[0].get_width() == 40  # the grey area
    assert "Mine" in texts_of(draw(run(FALLING), title="Mine"))


def test_a_plot_takes_what_evaluate_returns_and_a_path_as_text(tmp_path: Path) -> None:
    class Result:
        def to_json(self) -> dict[str, Any]:
            return {"runs": [run(FALLING)]}

    save_plot(Result(), str(tmp_path / "a5.svg"))
    assert (tmp_path / "a5.svg").stat().st_size > 0
    with pytest.raises(SettingsError, match="is not an evaluation; pass what sdssm.evaluate returns"):
        make_figure({})


def test_each_chance_level_is_labelled_with_its_tasks() -> None:
    figure = draw(run(FALLING), run(FALLING, task="parity", chance=50.0), run(FALLING, task="d4", chance=12.5))
    lines = lines_of(figure.axes[0])
    for label, level in (("1.67 %\n(a5)", 1.67), ("50 %\n(parity)", 50.0), ("12.5 %\n(d4)", 12.5)):
        assert lines[f"chance {label}"].get_ydata()[0] == level
        assert f"chance {label}" in texts_of(figure)
    many = draw(*(run(FALLING, task=f"z{k}", chance=100 / k) for k in range(2, 12)))
    assert [text for text in texts_of(many) if text.startswith("chance")] == ["chance 9.09 to 50 %\nby task"]


def test_seeds_are_a_band_and_one_line() -> None:
    figure = draw(run([100.0, 50.0]), run([100.0, 100.0], 1), run([100.0, 60.0], 2))
    [axes] = figure.axes
    assert set(lines_of(axes)) == {"sd-ssm", "chance 1.67 %"}
    np.testing.assert_allclose(lines_of(axes)["sd-ssm"].get_ydata(), [100, 70])
    [band] = axes.collections
    assert {50.0, 100.0} <= set(band.get_paths()[0].vertices[:, 1])
    assert "Mean over 3 seeds, band from minimum to maximum. 512 strings per length." in texts_of(figure)
    assert not draw(run([100.0, 50.0])).axes[0].collections  # one seed is a line
    each = draw(run([100.0, 50.0]), run([100.0, 99.0], 1), each=True)
    assert {"seed 0", "seed 1"} < set(lines_of(each.axes[0]))


def test_error_view_is_logarithmic_and_shows_zero() -> None:
    figure = draw(run([100.0, 99.0, 90.0], lengths=[50, 100, 200]), view="error")
    [axes] = figure.axes
    assert axes.get_yscale() == "symlog"
    assert axes.get_ylabel() == "error rate (%)"
    np.testing.assert_allclose(lines_of(axes)["sd-ssm"].get_ydata(), [0, 1, 10])
    heights = [axes.transData.transform((50, value))[1] for value in (0, 1, 10, 100)]
    assert heights[3] - heights[2] == pytest.approx(heights[2] - heights[1])  # a decade is a decade
    assert heights[1] > heights[0] >= axes.bbox.y0  # zero is on the axis
    assert "0" in [label.get_text() for label in axes.get_yticklabels()]
    assert "1 of 512 strings" in [text.get_text() for text in axes.texts]
    assert "chance 98.33 %" in lines_of(axes)


def test_error_panel_is_added_if_curves_are_near_perfect() -> None:
    def kinds(*runs: dict[str, Any], **options: Any) -> list[str]:
        return [axes.get_ylabel().partition(" ")[0] for axes in draw(*runs, **options).axes]

    assert kinds(run([99.5] * 500)) == ["accuracy", "error"]
    assert kinds(run(PERFECT)) == kinds(run([50.0] * 500)) == kinds(run([99.0] * 40)) == ["accuracy"]
    assert kinds(run([99.5] * 500), view="accuracy") == ["accuracy"]
    assert kinds(run(PERFECT), view="both") == ["accuracy", "error"]
    with pytest.raises(SettingsError, match="view must be one of auto, accuracy, error, both, got 'log'"):
        draw(run(PERFECT), view="log")


def test_ticks_are_the_lengths_asked_for() -> None:
    [axes] = draw(run([100.0, 80.0, 50.0], lengths=[500, 5000, 50_000])).axes
    assert axes.get_xticks().tolist() == [500, 5000, 50_000]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["500", "5,000", "50,000"]
    assert axes.get_xscale() == "log"
    assert axes.get_xlim()[0] < 40  # the training length is on the axis
    [axes] = draw(run([100.0] * 256)).axes
    assert axes.get_xticks().tolist() == [50, 100, 150, 200, 256]
    lengths = [*range(1, 30), 1000]
    [axes] = draw(run([50.0] * 30, lengths=lengths)).axes
    assert axes.get_xticks().tolist() == lengths
    assert sum(bool(label.get_text()) for label in axes.get_xticklabels()) < 5  # the others would cover each other


def test_runs_that_diverged_or_have_no_accuracy() -> None:
    figure = draw(run(FALLING), run([2.0] * 500, 1, status="diverged"), run([None] * 500, model="lstm"))
    assert set(lines_of(figure.axes[0])) == {"sd-ssm", "sd-ssm, diverged", "chance 1.67 %"}
    with pytest.raises(SettingsError, match="nothing to plot"):
        draw()


# -- curves that would fill or cover the picture -----------------------------------------------------------------------


def test_alternating_accuracies_become_a_smooth_line_with_a_band() -> None:
    alternating = [80.0, 40.0] * 250
    [curve] = make_curves({"runs": [run(alternating)]})
    smooth = smooth_curve(curve)
    np.testing.assert_allclose(smooth.mean, 60.0)
    np.testing.assert_allclose((smooth.low, smooth.high), np.array([[40.0], [80.0]]) + np.zeros(len(smooth.mean)))
    assert len(smooth.lengths) <= 250
    assert smooth.lengths[[0, -1]].tolist() == [1, 500]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_smoothing_keeps_the_range_and_few_points(logarithmic: bool) -> None:
    noise = np.random.default_rng(0).uniform(0, 100, 5000)
    [curve] = make_curves({"runs": [run(noise.tolist())]})
    smooth = smooth_curve(curve, logarithmic=logarithmic)
    measured = noise[smooth.lengths - 1]
    assert np.all((smooth.low <= measured + 1e-9) & (measured <= smooth.high + 1e-9))
    assert np.all((smooth.low <= smooth.mean) & (smooth.mean <= smooth.high))
    few = [100.0, None, 50.0]
    [curve] = make_curves({"runs": [run(few)]})
    assert smooth_curve(curve).mean.tolist() == [100.0, 50.0]  # lengths without strings are left out
    [curve] = make_curves({"runs": [run([99.8] * 100 + PERFECT)]})
    assert smooth_curve(curve).mean[-1] == 100.0  # exactly


def test_models_on_each_other_have_alternating_stripes() -> None:
    both = lines_of(draw(run(PERFECT), run(PERFECT, model="lstm")).axes[0])
    apart = lines_of(draw(run(PERFECT), run(FALLING, model="lstm")).axes[0])
    assert all(both[name].is_dashed() for name in ("sd-ssm", "lstm"))
    assert not any(apart[name].is_dashed() for name in ("sd-ssm", "lstm"))


def test_equal_curves_of_one_model_are_one_line_with_all_names() -> None:
    figure = draw(*(run(PERFECT, task=task) for task in ("a5", "d4", "parity")))
    assert set(lines_of(figure.axes[0])) == {"a5, d4, parity", "chance 1.67 %"}


def test_labels_do_not_cover_each_other() -> None:
    for places in ([100.0] * 8, [0.0, 0.0, 3.0, 50.0, 99.0, 100.0], [50.0, 51.0, 52.0]):
        centres = spread(places, [10.0] * len(places), 0.0, 100.0)
        ordered = sorted(centres)
        assert all(b - a >= 10 - 1e-9 for a, b in pairwise(ordered))
        assert ordered[0] >= 5 - 1e-9 and ordered[-1] <= 95 + 1e-9
    assert spread([20.0, 80.0], [10.0, 10.0], 0.0, 100.0) == [20.0, 80.0]  # no reason to move


def test_names_leave_out_what_all_curves_share() -> None:
    def names(*runs: dict[str, Any]) -> list[str]:
        return short_names(make_curves({"runs": runs}))

    assert names(run([1.0]), run([1.0], model="lstm")) == ["sd-ssm", "lstm"]
    assert names(run([1.0]), run([1.0], task="d4")) == ["a5", "d4"]
    assert names(run([1.0], preset="paper"), run([1.0], preset="default")) == ["paper", "default"]
    assert names(run([1.0], label="SD-SSM"), run([1.0], model="lstm", label="LSTM")) == ["SD-SSM", "LSTM"]


# -- colours -----------------------------------------------------------------------------------------------------------


def test_every_model_has_one_colour_of_its_own() -> None:
    assert set(MODEL_COLOURS) == set(MODELS)
    assert len({model_colour(name) for name in MODELS}) == len(MODELS)
    assert model_colour("sd-ssm") == COLOURS[0].lower()
    assert model_colour("my-model") == "#a2d6f3"  # the same in every process
    styles = [line_style("lstm", variant) for variant in range(12)]
    assert len(set(styles)) == 12
    assert {style.colour for style in styles[:4]} == {model_colour("lstm")}


def test_a_model_has_the_same_colour_in_every_picture() -> None:
    alone = draw(run(FALLING, model="lstm")).axes[0]
    others = draw(run(PERFECT, model="mine"), run(PERFECT), run(FALLING, model="lstm"), view="both")
    colours = {lines_of(axes)["lstm"].get_color() for axes in (alone, *others.axes)}
    assert colours == {model_colour("lstm")}


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_suffix_decides_and_the_same_curves_give_the_same_file(
    tmp_path: Path, name: str, magic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # another test may have imported it
    evaluation = {"runs": [run(FALLING), run(PERFECT, 1), run([50.0, None, 3.0], task="d4", lengths=[1, 9, 9000])]}
    save_plot(evaluation, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(magic)
    save_plot(evaluation, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert "matplotlib.pyplot" not in sys.modules  # no global figures
    if magic == b"<?xml":  # text is text, in a font that a browser has
        assert b">training lengths, up to 40<" in first
        assert b"'DejaVu Sans', Helvetica, Arial, sans-serif" in first


def test_settings_of_the_user_do_not_change_a_picture(tmp_path: Path) -> None:
    import matplotlib

    pictures = []
    for size in (10.0, 30.0):
        with matplotlib.rc_context({"font.size": size, "axes.facecolor": "black"}):
            save_plot({"runs": [run(FALLING)]}, tmp_path / "a.svg")
            assert matplotlib.rcParams["font.size"] == size
        pictures.append((tmp_path / "a.svg").read_bytes())
    assert pictures[0] == pictures[1]


def test_curve_without_task_and_model_keeps_its_name() -> None:
    accuracy = np.array([100.0])
    assert short_names([Curve("mine", 1, 40, np.array([1]), accuracy, accuracy, accuracy)]) == ["mine"]
