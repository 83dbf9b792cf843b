"""Accuracy-against-length plots as PNG, SVG or PDF, with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from sdssm.errors import SettingsError, format_value
from sdssm.palette import LINE_COLOUR
from sdssm.report.axes import set_limits, set_ticks
from sdssm.report.curves import Curve, has_log_axis, make_curves
from sdssm.report.labels import LineLabel, draw_labels
from sdssm.report.layouts import SCREEN, PlotLayout
from sdssm.report.panels import MOST_BANDS, draw_panel, make_lines
from sdssm.report.pictures import check_plot, new_figure, picture_look, text_width, write_figure
from sdssm.report.smoothing import smooth_curve
from sdssm.report.views import ACCURACY, ERROR, VIEWS

#: The error rate is shown too if a curve is above `NEAR` percent, and not at 100, at this part of the lengths beyond
#: training.
NEAR, ENOUGH = 95.0, 0.15
#: Inches for the title, a line below it, and the training length.
TITLE, NOTE, TRAINED = 0.34, 0.17, 0.24
#: Characters of a line below the title.
NOTE_WIDTH = 105
#: A title names at most this many tasks.
MOST_TASKS = 3


def save_plot(
    evaluation: Any,
    path: str | Path,
    *,
    each: bool = False,
    view: str = "auto",
    title: str | None = None,
    layout: PlotLayout = SCREEN,
    logarithmic: bool | None = None,
) -> None:
    """Draw the curves of an evaluation and write them as PNG, SVG or PDF, by the suffix of the path.

    The arguments are those of `make_figure`.
    """
    path = Path(path)
    check_plot(path)
    with picture_look(layout.font):
        figure = make_figure(evaluation, each=each, view=view, title=title, layout=layout, logarithmic=logarithmic)
        write_figure(figure, path)


def make_figure(
    evaluation: Any,
    *,
    each: bool = False,
    view: str = "auto",
    title: str | None = None,
    layout: PlotLayout = SCREEN,
    logarithmic: bool | None = None,
) -> Any:
    """Draw the curves of an evaluation as a figure of matplotlib.

    A line is the mean over seeds, and a band reaches from the minimum to the maximum. With many lengths, mean and band
    are also over the lengths near each other. Training lengths are grey, and dotted lines show chance. A model has
    the same colour in every picture (`sdssm.report.styles`), and variants of it have different dashes. If curves of
    different models lie on each other, their stripes alternate.

    Args:
        evaluation: an `Evaluation`, its JSON, or a dictionary with such `runs`.
        each: draw a line for each run instead of one for all seeds.
        view: "accuracy", "error" (on a logarithmic axis, which shows how curves near 100 % differ), "both", or "auto":
            accuracy, and the error rate below it if curves are near 100 % without reaching it.
        title: above the plot; by default it names tasks and models, if the layout has a title.
        layout: the sizes: for a screen, or for one or two columns of a paper (`sdssm.report.layouts`).
        logarithmic: whether the axis of lengths is logarithmic; None: if there are lengths above 2,000.
    """
    if view not in VIEWS:
        raise SettingsError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    curves = _checked_curves(evaluation, each)
    is_log = any(has_log_axis(curve.lengths) for curve in curves) if logarithmic is None else logarithmic
    smoothed = [smooth_curve(curve, logarithmic=is_log) for curve in curves]
    kinds = _kinds(smoothed, view)
    lines = make_lines(smoothed)
    note: list[str] = []
    if layout.has_title:
        title = title or _title(curves, kinds)
        note = wrap(_note(smoothed, has_bands=len(lines) <= MOST_BANDS, logarithmic=is_log), NOTE_WIDTH)
    with picture_look(layout.font):
        figure = new_figure((layout.width, layout.accuracy + layout.error), layout.dpi)
        panels = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0]
        set_limits(panels[0], curves, logarithmic=is_log)
        labels = [draw_panel(axes, lines, smoothed, kind, layout) for axes, kind in zip(panels, kinds, strict=True)]
        top = (TITLE if title else 0) + NOTE * len(note) + TRAINED
        _arrange(figure, panels, kinds, labels, layout, top)
        set_ticks(panels[-1], curves, logarithmic=is_log, font=layout.font)
        for axes, panel_labels in zip(panels, labels, strict=True):
            draw_labels(axes, panel_labels, layout)
        _draw_texts(figure, panels[0], curves, title, note, layout)
    return figure


def describe_plot(evaluation: Any, *, view: str = "auto", logarithmic: bool | None = None) -> str:
    """Return what a plot shows in a sentence or two, for the caption of a figure without title."""
    curves = _checked_curves(evaluation, False)
    is_log = any(has_log_axis(curve.lengths) for curve in curves) if logarithmic is None else logarithmic
    smoothed = [smooth_curve(curve, logarithmic=is_log) for curve in curves]
    note = _note(smoothed, has_bands=len(make_lines(smoothed)) <= MOST_BANDS, logarithmic=is_log)
    return f"{_title(curves, _kinds(smoothed, view))}. {note}".strip()


def _checked_curves(evaluation: Any, each: bool) -> list[Curve]:
    data = evaluation.to_json() if hasattr(evaluation, "to_json") else evaluation
    if not isinstance(data, Mapping) or "runs" not in data:
        raise SettingsError(f"{format_value(evaluation)} is not an evaluation; pass what sdssm.evaluate returns")
    curves = make_curves(data, each=each)
    if not curves:
        raise SettingsError("an evaluation without runs has nothing to plot; evaluate at least one run")
    return curves


def _kinds(curves: Sequence[Curve], view: str) -> list[str]:
    """Return what the panels show, from top to bottom."""
    if view == "auto":
        view = "both" if any(map(_is_near_perfect, curves)) else ACCURACY
    return [ACCURACY, ERROR] if view == "both" else [view]


def _is_near_perfect(curve: Curve) -> bool:
    """Return whether a curve is near 100 % beyond training, without reaching it, at a good part of the lengths."""
    beyond = curve.mean[curve.lengths > curve.train_length]
    return len(beyond) > 0 and bool(np.mean((beyond > NEAR) & (beyond < 100)) >= ENOUGH)


def _arrange(
    figure: Any,
    panels: Sequence[Any],
    kinds: Sequence[str],
    labels: Sequence[Sequence[LineLabel]],
    layout: PlotLayout,
    top: float,
) -> None:
    """Set the size of the figure and the places of its panels, with room for the labels on their right."""
    least = {ACCURACY: layout.accuracy, ERROR: layout.error}
    heights = [
        max(least[kind], sum(label.height(layout) for label in panel))
        for kind, panel in zip(kinds, labels, strict=True)
    ]
    texts = {label.text for panel in labels for label in panel}
    width = layout.width - layout.left - layout.text_start - text_width(figure, texts, layout.font) - 0.05
    total = layout.bottom + sum(heights) + layout.gap * (len(heights) - 1) + top
    figure.set_size_inches(layout.width, total)
    y = total - top
    for axes, height in zip(panels, heights, strict=True):
        y -= height
        axes.set_position((layout.left / layout.width, y / total, width / layout.width, height / total))
        y -= layout.gap


def _draw_texts(
    figure: Any, axes: Any, curves: Sequence[Curve], title: str | None, note: Sequence[str], layout: PlotLayout
) -> None:
    """Write the title, the lines below it and the training length above the upper panel."""
    height = figure.get_size_inches()[1]
    inches = figure.dpi_scale_trans
    if title:
        size = 12 if layout.has_title else layout.font + 1
        figure.text(0.1, height - 0.1, title, transform=inches, va="top", size=size, weight="bold")
    for number, line in enumerate(note):
        y = height - TITLE - NOTE * number
        figure.text(0.1, y, line, transform=inches, va="top", size=layout.small, color=LINE_COLOUR)
    trained = sorted({curve.train_length for curve in curves})
    text = f"training lengths, up to {', '.join(f'{length:,}' for length in trained)}"
    # Above the grey area, which may be narrower than the text: both start at the left.
    axes.annotate(
        text, (axes.get_xlim()[0], 1), (0, 3), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
        ha="left", va="bottom", size=layout.small, color=LINE_COLOUR, annotation_clip=False,
    )  # fmt: skip


def _title(curves: Sequence[Curve], kinds: Sequence[str]) -> str:
    """Return a title that names what is shown, the model if there is one, the tasks, and the greatest length."""
    models, tasks = (list(dict.fromkeys(getattr(curve, name) for curve in curves)) for name in ("model", "task"))
    what = "Error rate" if list(kinds) == [ERROR] else "Accuracy"
    of = f" of {models[0]}" if len(models) == 1 and models[0] else ""
    on = f" on {join_with_and(tasks)}" if len(tasks) <= MOST_TASKS else f" on {len(tasks)} tasks"
    longest = max(int(curve.lengths[-1]) for curve in curves)
    return f"{what}{of}{on if any(tasks) else ''}, up to length {longest:,}"


def join_with_and(words: Sequence[str]) -> str:
    """Join words as a sentence does.

    >>> join_with_and(["a5"]), join_with_and(["a5", "d4", "parity"])
    ('a5', 'a5, d4 and parity')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _note(curves: Sequence[Curve], *, has_bands: bool, logarithmic: bool) -> str:
    """Return what lines and bands are, and on how many strings each accuracy was measured."""
    seeds = sorted({curve.seeds for curve in curves})
    over = [f"{seeds[0]} seeds" if len(seeds) == 1 else "seeds"] if seeds[-1] > 1 else []
    neighbours = max(curve.neighbours for curve in curves)
    if neighbours > 1:
        over.append("neighbouring lengths" if logarithmic else f"{neighbours} neighbouring lengths")
    strings = sorted({curve.strings for curve in curves if curve.strings is not None})
    band = ", band from minimum to maximum" if has_bands else ""
    sentences = [f"Mean over {' and '.join(over)}{band}."] if over else []
    sentences += [f"{' or '.join(f'{count:,}' for count in strings)} strings per length."] if strings else []
    return " ".join(sentences)
