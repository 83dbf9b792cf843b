"""The picture of a report card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import OutputError
from sdssm.report.card_plot import check_card_plot, make_card_figure, save_card_plot

pytest.importorskip("matplotlib")


def make_card(forecast: float | None = 700.0) -> dict[str, Any]:
    """Return the JSON of a card of a model that fails at length 400."""
    lengths = [1, 10, 40, 100, 200, 400, 800]
    accuracy = [100.0, 100.0, 100.0, 99.5, 95.0, 80.0, None]
    data = {
        "lengths": lengths,
        "accuracy": accuracy,
        "low": [99.0, 99.0, 99.0, 98.0, 93.0, 75.0, None],
        "high": [100.0, 100.0, 100.0, 100.0, 97.0, 85.0, None],
        "best_constant": [50.0, 20.0, 10.0, 5.0, 1.7, 1.7, 1.7],
        "longest_99": 100,
        "longest_90": 200,
    }
    long = "a reason that is far too long for a picture and is cut after some lines " * 8
    sections = {
        "accuracy": {"summary": "at least 99 % to length 100", "data": data, "reason": None},
        "misclassified": {"summary": "", "data": None, "reason": long},
        "forecast": {"summary": "700", "data": {"length": forecast}, "reason": None},
        "laws": {"summary": "13 of 13 laws hold", "data": {}, "reason": None},
    }
    described = {"model": "lstm", "task": "a5", "description": "lstm on a5: trained for 10 steps", "device": "CPU"}
    return {**described, "chance": 100 / 60, "train_length": 40, "sections": sections}


def legend_of(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def texts_of(figure: Any) -> list[Any]:
    return [text for text in figure.texts if text.get_text()]


def test_the_legend_names_baselines_lengths_and_the_forecast() -> None:
    assert legend_of(make_card_figure(make_card())) == [
        "lstm",
        "best constant answer",
        "chance, 1.67 %",
        "at least 99 % up to 100",
        "at least 90 % up to 200",
        "forecast: if it fails, near 700",
    ]
    assert legend_of(make_card_figure(make_card(5_000.0)))[-1] == "forecast: if it fails, near 5,000"
    assert legend_of(make_card_figure(make_card(None)))[-1] == "at least 90 % up to 200"


def test_no_text_covers_another_or_leaves_the_picture() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = make_card_figure(make_card())
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]  # matplotlib has few types
    axes = figure.axes[0]
    boxes = [text.get_window_extent(renderer) for text in texts_of(figure)]
    boxes += [axes.get_tightbbox(renderer)]
    width, height = figure.get_size_inches() * figure.dpi
    for k, box in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert not any(box.overlaps(other) for other in boxes[:k]), texts_of(figure)[k].get_text()
    assert axes.get_legend().get_window_extent(renderer).y1 < axes.get_window_extent(renderer).y0


def test_a_card_without_accuracy_has_a_picture_too() -> None:
    card = make_card()
    card["sections"]["accuracy"] = {"summary": "", "data": None, "reason": "the time was up"}
    shown = [text.get_text() for text in texts_of(make_card_figure(card))]
    assert "not measured: the time was up" in shown


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_files_are_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("one", "two")]
    for path in paths:
        save_card_plot(make_card(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_wrong_ending_is_refused_before_drawing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="plots are written as"):
        check_card_plot(tmp_path / "card.jpg")
    check_card_plot(tmp_path / "new folder" / "card.png")  # the folder of --out is created later


def test_a_band_is_explained_only_if_there_is_one() -> None:
    def last_line(card: dict[str, Any]) -> str:
        return str(make_card_figure(card).texts[-1].get_text())

    card = make_card()
    assert last_line(card) == "Measured on CPU. Band: 95 % confidence."
    del card["sections"]["accuracy"]
    assert last_line(card) == "Measured on CPU."
