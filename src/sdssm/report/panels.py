"""One panel of a plot: accuracy or error rate against length, with chance, training lengths and labelled lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdssm.formatting import format_chance
from sdssm.palette import CHANCE_COLOUR, GRID_COLOUR, LINE_COLOUR
from sdssm.report.curves import Curve, short_names
from sdssm.report.labels import NO_BREAK, LineLabel, join_names
from sdssm.report.layouts import PlotLayout
from sdssm.report.styles import LineStyle, line_style, stripes
from sdssm.report.views import ACCURACY

#: Test strings per length of evaluations that do not say how many.
DEFAULT_STRINGS = 512
#: Curves of one model are one line if they differ by at most this, in percent.
SAME = 0.05
#: Curves of different models are drawn as stripes if they differ by at most this part of the height of the panel.
COVERED = 0.012
#: Curves with at most this many lengths have markers.
MOST_MARKERS = 25
#: With more lines than this there are no bands, as they would cover each other.
MOST_BANDS = 8
#: With more chance levels than this only their range is labelled.
MOST_LEVELS = 5
CHANCE_STYLE = LineStyle(CHANCE_COLOUR, (0, (1, 1.5)))
CONSTANT_STYLE = LineStyle(CHANCE_COLOUR, (0, (5, 1.5)))
#: The width of the lines of levels, relative to that of curves.
LEVEL_WIDTH = 0.72
#: The labels of the levels that a model without any knowledge has.
CHANCE, CONSTANT = "chance", "best constant"
#: The best constant answer has a line of its own if it is this many percent above chance.
LEAST_ABOVE = 2.0


@dataclass(frozen=True, eq=False)
class DrawnLine:
    """A curve as it is drawn, for itself and for the curves of the same model that coincide with it."""

    curve: Curve
    names: tuple[str, ...]
    style: LineStyle


def make_lines(curves: Sequence[Curve]) -> list[DrawnLine]:
    """Return the lines to draw for (smoothed) curves: their names and styles, and coinciding ones as one line."""
    several = len({curve.seeds for curve in curves}) > 1
    groups: list[tuple[Curve, list[str]]] = []
    for curve, name in zip(curves, short_names(curves), strict=True):
        if not len(curve.lengths):  # no string of the task has one of these lengths
            continue
        text = f"{name} ({curve.seeds}{NO_BREAK}seed{'s' if curve.seeds > 1 else ''})" if several else name
        for other, names in groups:
            if other.model == curve.model and _is_same(other, curve):
                names.append(text)
                break
        else:
            groups.append((curve, [text]))
    variants: Counter[str] = Counter()
    lines = []
    for curve, names in groups:
        lines.append(DrawnLine(curve, tuple(names), line_style(curve.model or curve.name, variants[curve.model])))
        variants[curve.model] += 1
    return lines


def _is_same(one: Curve, other: Curve) -> bool:
    return np.array_equal(one.lengths, other.lengths) and all(
        np.allclose(a, b, rtol=0, atol=SAME)
        for a, b in ((one.mean, other.mean), (one.low, other.low), (one.high, other.high))
    )


def has_band(curve: Curve) -> bool:
    """Return whether an entry of a curve is a mean of several accuracies, which have a range."""
    return curve.seeds > 1 or curve.neighbours > 1


def resolution(curves: Sequence[Curve]) -> float:
    """Return the smallest error rate above 0 that one seed can have at one length, in percent."""
    return 100 / max(curve.strings or DEFAULT_STRINGS for curve in curves)


def draw_panel(
    axes: Any, lines: Sequence[DrawnLine], curves: Sequence[Curve], kind: str, layout: PlotLayout
) -> list[LineLabel]:
    """Draw lines into axes whose scale of lengths is set, and return the labels to draw beside them.

    Args:
        axes: of matplotlib.
        lines: the lines, in the order of drawing.
        curves: all curves, for chance levels and training lengths.
        kind: "accuracy" or "error". Error rates are on a logarithmic axis, which is linear below one wrong string.
        layout: the sizes of letters and lines.
    """
    _set_scale(axes, curves, kind, layout)
    trained = sorted({curve.train_length for curve in curves})
    for length in trained:
        axes.axvspan(
            axes.get_xlim()[0],
            min(length, axes.get_xlim()[1]),
            color=GRID_COLOUR,
            alpha=0.55 / len(trained),
            lw=0,
            zorder=0,
        )
    labels = []
    values = [_values(line.curve, kind) for line in lines]
    ends_at = [_axes_heights(axes, line.curve, mean) for line, (mean, _, _) in zip(lines, values, strict=True)]
    for line, (mean, low, high), dashes in zip(lines, values, _dashes(lines, ends_at), strict=True):
        curve, colour = line.curve, line.style.colour
        marker = "o" if len(curve.lengths) <= MOST_MARKERS else ""
        axes.plot(
            curve.lengths, mean, color=colour, ls=dashes, lw=layout.line, marker=marker, ms=layout.marker,
            label=", ".join(line.names).replace(NO_BREAK, " "), clip_on=False, zorder=3, solid_capstyle="butt",
        )  # fmt: skip
        if has_band(curve) and len(lines) <= MOST_BANDS:
            axes.fill_between(curve.lengths, low, high, color=colour, alpha=0.16, lw=0, zorder=1)
        labels.append(LineLabel(join_names(line.names, layout.wrap), line.style, float(mean[-1]), layout.line))
    labels += _draw_levels(axes, curves, kind, CHANCE, CHANCE_STYLE, layout)
    return [*labels, *_draw_levels(axes, curves, kind, CONSTANT, CONSTANT_STYLE, layout)]


def _set_scale(axes: Any, curves: Sequence[Curve], kind: str, layout: PlotLayout) -> None:
    axes.grid(axis="y", color=GRID_COLOUR, lw=0.8, zorder=0.5)
    axes.set_axisbelow(True)
    if kind == ACCURACY:
        axes.set_ylim(0, 101)
        axes.set_yticks(range(0, 101, 20))
        axes.set_ylabel("accuracy (%)")
        return
    least = resolution(curves)
    axes.set_yscale("symlog", linthresh=least, linscale=0.35)
    axes.set_ylim(0, 110)
    ticks = [10.0**power for power in range(-6, 3) if 10.0**power >= 1.5 * least]
    axes.set_yticks([0, *ticks], ["0", *(f"{tick:g}" for tick in ticks)])
    axes.minorticks_off()
    axes.set_ylabel("error rate (%)")
    axes.axhline(least, color=GRID_COLOUR, lw=0.8, ls=(0, (4, 3)), zorder=0.5)
    # From here down the axis is linear: a zero would not be on a logarithmic one.
    known = any(curve.strings for curve in curves)
    text = f"1 of {round(100 / least):,} strings" if known else f"{least:.1g} %"
    axes.annotate(
        text, (1, least), (-3, 1.5), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", ha="right", va="bottom", size=layout.remark, color=CHANCE_COLOUR, zorder=2,
    )  # fmt: skip


def _values(curve: Curve, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, minimum and maximum."""
    if kind == ACCURACY:
        return curve.mean, curve.low, curve.high
    return 100 - curve.mean, 100 - curve.high, 100 - curve.low


def _axes_heights(axes: Any, curve: Curve, values: np.ndarray) -> np.ndarray:
    """Return how high values are in the axes, from 0 to 1."""
    points = np.column_stack([curve.lengths.astype(float), values])
    return np.asarray((axes.transData - axes.transAxes).transform(points))[:, 1]


def _dashes(lines: Sequence[DrawnLine], heights: Sequence[np.ndarray]) -> list[Any]:
    """Return the dashes of each line: its own, or stripes if other lines lie on it."""
    groups: list[list[int]] = []
    for number, line in enumerate(lines):
        for group in groups:
            first = lines[group[0]].curve
            if np.array_equal(first.lengths, line.curve.lengths) and np.all(
                np.abs(heights[group[0]] - heights[number]) < COVERED
            ):
                group.append(number)
                break
        else:
            groups.append([number])
    dashes = [line.style.dashes for line in lines]
    for group in groups:
        for place, number in enumerate(group if len(group) > 1 else ()):
            dashes[number] = stripes(place, len(group))
    return dashes


def _draw_levels(
    axes: Any, curves: Sequence[Curve], kind: str, name: str, style: LineStyle, layout: PlotLayout
) -> list[LineLabel]:
    """Draw a line at each chance level or best constant answer, and return labels with the level and its tasks."""
    tasks: dict[float, list[str]] = {}
    for curve in curves:
        level = curve.chance if name == CHANCE else _high_constant(curve)
        if level is not None:
            names = tasks.setdefault(round(level, 2), [])
            names += [curve.task] if curve.task and curve.task not in names else []
    several = len({curve.task for curve in curves}) > 1 and (name != CHANCE or len(tasks) > 1)
    labels, width = [], LEVEL_WIDTH * layout.line
    for level in sorted(tasks):
        shown = level if kind == ACCURACY else 100 - level
        text = join_names([f"{name} {format_chance(shown)}{NO_BREAK}%"], layout.wrap)
        if several and tasks[level]:
            text += "\n" + join_names([f"({', '.join(tasks[level])})"], layout.wrap)
        axes.axhline(shown, color=style.colour, ls=style.dashes, lw=width, zorder=2, label=text)
        labels.append(LineLabel(text, style, shown, width, LINE_COLOUR))
    if len(labels) <= MOST_LEVELS:
        return labels
    middle = labels[len(labels) // 2].end
    levels = sorted(tasks) if kind == ACCURACY else [100 - level for level in tasks]
    text = join_names([f"{name} {format_chance(*levels)}{NO_BREAK}%"], layout.wrap)
    return [LineLabel(f"{text}\nby task", style, middle, width, LINE_COLOUR)]


def _high_constant(curve: Curve) -> float | None:
    """Return the best constant answer of a curve if it is well above chance, so that it needs a line of its own."""
    constant = curve.best_constant
    return None if constant is None or constant < (curve.chance or 0.0) + LEAST_ABOVE else constant
