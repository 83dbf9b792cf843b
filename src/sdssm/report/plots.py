"""Accuracy-against-length plots as PNG, SVG or PDF, with matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from sdssm.errors import OutputError, SettingsError, format_value
from sdssm.extras import import_extra
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.palette import FONT_FAMILY, LINE_COLOUR, TEXT_COLOUR
from sdssm.report.axes import set_limits, set_ticks
from sdssm.report.curves import Curve, has_log_axis, make_curves
from sdssm.report.labels import FONT_SIZE, TEXT, LineLabel, draw_labels
from sdssm.report.panels import ACCURACY, ERROR, MOST_BANDS, draw_panel, make_lines
from sdssm.report.smoothing import smooth_curve

#: What the suffix of a file may be, and what is written into it about its origin: nothing that changes with time, so
#: that the same curves give the same bytes.
METADATA: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = tuple(METADATA)
#: What a plot can show: accuracy, error rate on a logarithmic axis, both, or whatever shows most.
VIEWS = ("auto", ACCURACY, ERROR, "both")
#: The error rate is shown too if a curve is above `NEAR` percent, and not at 100, at this part of the lengths beyond
#: training.
NEAR, ENOUGH = 95.0, 0.15
#: Inches: the width of the figure, the margins, the panels by what they show, and the space between two.
WIDTH, LEFT, BOTTOM, GAP = 6.8, 0.68, 0.55, 0.2
HEIGHTS = {ACCURACY: 2.9, ERROR: 2.2}
#: Inches for the title, a line below it, and the training length.
TITLE, NOTE, TRAINED = 0.34, 0.17, 0.24
DPI = 150  #: of a PNG
#: Characters of a line below the title, and its size in points.
NOTE_WIDTH, NOTE_SIZE = 105, 8.5
#: A title names at most this many tasks.
MOST_TASKS = 3
PURPOSE = "a plot"


def check_plot(path: Path) -> None:
    """Raise `OutputError` if a plot cannot be drawn or written as this file."""
    if path.suffix.lower() not in FORMATS:
        ending = path.suffix or "nothing"
        choices = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise OutputError(f"{format_path(path)} ends in {ending!r}; plots are written as {choices}")
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {format_path(path)}: there is no folder {format_path(path.parent)}; create it first"
        )
    _figure_class()


def save_plot(
    evaluation: Any, path: str | Path, *, each: bool = False, view: str = "auto", title: str | None = None
) -> None:
    """Draw the curves of an evaluation and write them as PNG, SVG or PDF, by the suffix of the path.

    The arguments are those of `make_figure`.
    """
    path = Path(path)
    check_plot(path)
    with picture_look():
        write_figure(make_figure(evaluation, each=each, view=view, title=title), path)


def new_figure(size: tuple[float, float]) -> Any:
    """Return an empty figure of matplotlib, of this width and height in inches."""
    return _figure_class()(figsize=size, dpi=DPI)


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF; call it inside `picture_look`."""
    kind = path.suffix.lower()
    out = BytesIO()
    figure.savefig(out, format=kind[1:], dpi=DPI, metadata=METADATA[kind])
    data = out.getvalue()
    if kind == ".svg":  # matplotlib writes only the font that it measured, and a browser may not have it
        first = FONT_FAMILY.partition(",")[0]
        data = data.replace(f"'{first}'".encode(), f"'{first}'{FONT_FAMILY.removeprefix(first)}".encode())
    try:
        write_atomic(path, data)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose another path"
        ) from None


def make_figure(evaluation: Any, *, each: bool = False, view: str = "auto", title: str | None = None) -> Any:
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
        title: above the plot; by default it names tasks and models.
    """
    if view not in VIEWS:
        raise SettingsError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    data = evaluation.to_json() if hasattr(evaluation, "to_json") else evaluation
    if not isinstance(data, Mapping) or "runs" not in data:
        raise SettingsError(f"{format_value(evaluation)} is not an evaluation; pass what sdssm.evaluate returns")
    curves = make_curves(data, each=each)
    if not curves:
        raise SettingsError("an evaluation without runs has nothing to plot; evaluate at least one run")
    logarithmic = any(has_log_axis(curve.lengths) for curve in curves)
    smoothed = [smooth_curve(curve, logarithmic=logarithmic) for curve in curves]
    kinds = _kinds(smoothed, view)
    lines = make_lines(smoothed)
    note = wrap(_note(smoothed, has_bands=len(lines) <= MOST_BANDS, logarithmic=logarithmic), NOTE_WIDTH)
    with picture_look():
        figure = _figure_class()(figsize=(WIDTH, sum(HEIGHTS.values())), dpi=DPI)
        panels = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0]
        set_limits(panels[0], curves, logarithmic=logarithmic)
        labels = [draw_panel(axes, lines, smoothed, kind) for axes, kind in zip(panels, kinds, strict=True)]
        _arrange(figure, panels, kinds, labels, len(note))
        set_ticks(panels[-1], curves, logarithmic=logarithmic)
        for axes, panel_labels in zip(panels, labels, strict=True):
            draw_labels(axes, panel_labels)
        _draw_texts(figure, panels[0], curves, title or _title(curves, kinds), note)
    return figure


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
    figure: Any, panels: Sequence[Any], kinds: Sequence[str], labels: Sequence[Sequence[LineLabel]], note_lines: int
) -> None:
    """Set the size of the figure and the places of its panels, with room for the labels on their right."""
    heights = [
        max(HEIGHTS[kind], sum(label.height for label in panel)) for kind, panel in zip(kinds, labels, strict=True)
    ]
    texts = {label.text for panel in labels for label in panel}
    width = WIDTH - LEFT - TEXT - _text_width(figure, texts) - 0.05
    top = TITLE + NOTE * note_lines + TRAINED
    total = BOTTOM + sum(heights) + GAP * (len(heights) - 1) + top
    figure.set_size_inches(WIDTH, total)
    y = total - top
    for axes, height in zip(panels, heights, strict=True):
        y -= height
        axes.set_position((LEFT / WIDTH, y / total, width / WIDTH, height / total))
        y -= GAP


def _text_width(figure: Any, texts: Iterable[str]) -> float:
    """Return the width in inches of the widest of some texts."""
    canvas = import_extra("matplotlib.backends.backend_agg", PURPOSE).FigureCanvasAgg(figure)
    widest = 0.0
    for text in texts:
        artist = figure.text(0, 0, text, size=FONT_SIZE)
        widest = max(widest, artist.get_window_extent(canvas.get_renderer()).width / figure.dpi)
        artist.remove()
    return widest


def _draw_texts(figure: Any, axes: Any, curves: Sequence[Curve], title: str, note: Sequence[str]) -> None:
    """Write the title, the lines below it and the training length above the upper panel."""
    height = figure.get_size_inches()[1]
    inches = figure.dpi_scale_trans
    figure.text(0.1, height - 0.1, title, transform=inches, va="top", size=12, weight="bold")
    for number, line in enumerate(note):
        y = height - TITLE - NOTE * number
        figure.text(0.1, y, line, transform=inches, va="top", size=NOTE_SIZE, color=LINE_COLOUR)
    trained = sorted({curve.train_length for curve in curves})
    text = f"training lengths, up to {', '.join(f'{length:,}' for length in trained)}"
    # Above the grey area, which may be narrower than the text: both start at the left.
    axes.annotate(
        text, (axes.get_xlim()[0], 1), (0, 3), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
        ha="left", va="bottom", size=8.5, color=LINE_COLOUR, annotation_clip=False,
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


def _figure_class() -> Any:
    """Return matplotlib's Figure, which draws without a display and without the global state of pyplot."""
    return import_extra("matplotlib.figure", PURPOSE).Figure


def picture_look() -> AbstractContextManager[Any]:
    """Return a context in which matplotlib has the look of all our pictures, whatever the user's settings are."""
    settings = {
        "font.family": [FONT_FAMILY.partition(",")[0]],  # matplotlib brings it along; it warns about missing ones
        "font.size": FONT_SIZE,
        "text.color": TEXT_COLOUR,
        "axes.edgecolor": LINE_COLOUR,
        "axes.labelcolor": TEXT_COLOUR,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": LINE_COLOUR,
        "ytick.color": LINE_COLOUR,
        "xtick.labelcolor": TEXT_COLOUR,
        "ytick.labelcolor": TEXT_COLOUR,
        "svg.fonttype": "none",  # text that can be searched and selected
        "svg.hashsalt": "sdssm",  # the same identifiers every time
        "pdf.fonttype": 42,
    }
    style = import_extra("matplotlib.style", PURPOSE)
    context: AbstractContextManager[Any] = style.context(["default", settings])
    return context
