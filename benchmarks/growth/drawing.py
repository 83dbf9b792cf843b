"""Draw the figure from stored measurements: a row each for time and memory, a column for each thing that varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdssm.palette import CHANCE_COLOUR, COLOURS, GRID_COLOUR, LINE_COLOUR
from sdssm.report.labels import LineLabel, draw_labels
from sdssm.report.layouts import SCREEN
from sdssm.report.pictures import new_figure, picture_look, text_width, write_figure
from sdssm.report.styles import LineStyle

#: The methods in the order of the labels, and their colours; ours are solid.
STYLES = {
    "mixture_scan": LineStyle(COLOURS[0], "-"),
    "dense_scan": LineStyle(COLOURS[5], "-"),
    "eager loop": LineStyle(COLOURS[1], (0, (5, 1.5))),
    "associative_scan": LineStyle(COLOURS[2], (0, (5, 1.5))),
    "torch-slices": LineStyle(COLOURS[3], (0, (5, 1.5))),
}
#: How a method is called beside its curve.
NAMES = {
    "mixture_scan": "sdssm mixture_scan",
    "dense_scan": "sdssm dense_scan\n(matrices by torch)",
    "eager loop": "eager torch loop",
    "associative_scan": "torch associative_scan\n(matrices by torch)",
    "torch-slices": "torch-slices",
}
#: What varies: its name on the axis, and what is fixed in a column.
COLUMNS = {"length": "length L", "size": "state size N", "batch": "batch B", "replicas": "replicas R"}
SYMBOLS = {"length": "L", "size": "N", "batch": "B", "replicas": "R"}
BASE = {"length": 256, "size": 64, "batch": 1, "replicas": 1}
#: What a row shows: the field of a point, and the name of the axis.
ROWS = {"ms": "time (ms)", "mib": "peak memory (MiB)"}
#: Every second tick has a label if the labels of all have more characters than this.
MOST_CHARACTERS = 18
#: Inches: width of the figure, of a panel's height, between columns and rows, margins, and of texts at the top.
WIDTH, HEIGHT, GAP, ROW_GAP, LEFT, BOTTOM, TOP = 11.0, 2.3, 0.5, 0.22, 0.9, 0.55, 1.0


def curve(document: Mapping[str, Any], method: str, column: str, field: str) -> list[tuple[int, float]]:
    """Return the measured values of a method in a column, with what varies, in rising order."""
    return [(row[column], row[field]) for row in _rows(document, method, column) if "ended" not in row]


def ending(document: Mapping[str, Any], method: str, column: str) -> str | None:
    """Return why a curve ends ("time", "memory", ...), or None if it was measured to the end."""
    return next((row["ended"] for row in _rows(document, method, column) if "ended" in row), None)


def _rows(document: Mapping[str, Any], method: str, column: str) -> list[Mapping[str, Any]]:
    fixed = {name: value for name, value in BASE.items() if name != column}
    rows = [row for row in document["points"] if row["method"] == method]
    rows = [row for row in rows if all(row[name] == value for name, value in fixed.items())]
    return sorted(rows, key=lambda row: int(row[column]))


def draw(documents: Sequence[Mapping[str, Any]], *paths: Path) -> None:
    """Draw the stored measurements of some devices, one below the other, into files (PNG or SVG)."""
    with picture_look(SCREEN.font):
        figure = make_figure(documents)
        for path in paths:
            write_figure(figure, path)


def make_figure(documents: Sequence[Mapping[str, Any]]) -> Any:
    """Return the figure; call it inside `picture_look`."""
    height = TOP + sum(_block_height() for _ in documents)
    figure = new_figure((WIDTH, height), SCREEN.dpi)
    inches = figure.dpi_scale_trans
    title = "Growth of one forward and backward pass of the SD-SSM recurrence"
    figure.text(0.1, height - 0.1, title, transform=inches, va="top", size=12, weight="bold")
    fixed = ", ".join(f"{SYMBOLS[name]} = {value}" for name, value in BASE.items())
    notes = [
        f"float32, K = 8 matrices in the dictionary; what does not vary: {fixed}. Memory: the peak beyond the inputs.",
        "A cross: the next point of the curve exceeds a limit. " + _endings(documents),
    ]
    for number, note in enumerate(notes):
        y = height - 0.36 - 0.17 * number
        figure.text(0.1, y, note, transform=inches, va="top", size=SCREEN.small, color=LINE_COLOUR)
    labels = text_width(figure, NAMES.values(), SCREEN.font) + SCREEN.text_start
    width = (WIDTH - LEFT - labels - 0.1 - GAP * (len(COLUMNS) - 1)) / len(COLUMNS)
    y = height - TOP
    for document in documents:
        _draw_device(figure, document, y, width)
        y -= _block_height()
    return figure


def _endings(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return which limits end the curves."""
    reasons = {row["ended"] for document in documents for row in document["points"] if "ended" in row}
    return f"Limits that were exceeded: {', '.join(sorted(reasons))}." if reasons else ""


def _block_height() -> float:
    return 0.25 + len(ROWS) * HEIGHT + (len(ROWS) - 1) * ROW_GAP + BOTTOM


def _draw_device(figure: Any, document: Mapping[str, Any], top: float, width: float) -> None:
    total = figure.get_size_inches()[1]
    limits, versions = document["limits"], document["versions"]
    text = f"{document['device']}, torch {versions['torch']}; limits: {limits['seconds']:g} s, {limits['gib']:g} GiB"
    figure.text(
        LEFT, top, "; ".join([text, *document["notes"].values()]), transform=figure.dpi_scale_trans, va="bottom",
        size=SCREEN.small, color=LINE_COLOUR,
    )  # fmt: skip
    y = top - 0.1
    for field, axis_name in ROWS.items():
        y -= HEIGHT
        values = [value for method in STYLES for name in COLUMNS for _, value in curve(document, method, name, field)]
        for number, (column, column_name) in enumerate(COLUMNS.items()):
            box = ((LEFT + number * (width + GAP)) / WIDTH, y / total, width / WIDTH, HEIGHT / total)
            axes = figure.add_axes(box)
            ends = _draw_panel(axes, document, column, field)
            _set_axes(axes, column, values)
            if number == 0:
                axes.set_ylabel(axis_name)
            else:
                axes.tick_params(labelleft=False)
            if field == list(ROWS)[-1]:
                axes.set_xlabel(column_name)
            else:
                axes.tick_params(labelbottom=False)
        draw_labels(axes, ends, SCREEN)
        y -= ROW_GAP


def _draw_panel(axes: Any, document: Mapping[str, Any], column: str, field: str) -> list[LineLabel]:
    """Draw the curves of a column, and return their labels."""
    labels = []
    for method, style in STYLES.items():
        points = curve(document, method, column, field)
        if not points:
            continue
        x, y = zip(*points, strict=True)
        axes.plot(
            x, y, color=style.colour, ls=style.dashes, lw=SCREEN.line, marker="o", ms=3.2, zorder=3, clip_on=False,
            label=NAMES[method].replace("\n", " "),
        )  # fmt: skip
        reason = ending(document, method, column)
        if reason is not None:
            axes.plot(x[-1:], y[-1:], color=style.colour, marker="x", ms=8, mew=2, zorder=4, clip_on=False)
        labels.append(LineLabel(NAMES[method], style, y[-1]))
    return labels


def _set_axes(axes: Any, column: str, values: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
    lines = axes.get_lines()
    ticks = sorted({int(x) for line in lines for x in line.get_xdata()})
    axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)
    width = sum(len(f"{tick:,}") for tick in ticks)
    axes.set_xticks(ticks, [f"{tick:,}" if width <= MOST_CHARACTERS or k % 2 else "" for k, tick in enumerate(ticks)])
    axes.minorticks_off()
    axes.grid(color=GRID_COLOUR, lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["left", "bottom"]].set_color(CHANCE_COLOUR)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
