"""Small multiples: square or equal panels in rows, each with a heading, in a figure of a fixed width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from sdssm.errors import SettingsError
from sdssm.palette import LINE_COLOUR
from sdssm.report.layouts import POINTS, PlotLayout
from sdssm.report.pictures import new_figure, text_width

#: Inches between the edge of the figure and what is drawn.
EDGE = 0.04
#: The most panels of a figure.
MOST_PANELS = 64


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Inches around panels.

    Attributes:
        left, bottom: room for ticks and names of axes, once for each row or column.
        right: room for what stands on the right of all panels.
        gap, row_gap, group_gap: between two panels, two rows and two groups, beyond the heading of the lower one.
        head: the height of the heading of a panel.
    """

    left: float
    bottom: float
    right: float = EDGE
    gap: float = 0.1
    row_gap: float = 0.1
    group_gap: float = 0.1
    head: float = 0.17


@dataclass(frozen=True, eq=False)
class PanelGroup:
    """Panels that belong together, such as those of one run, with a heading above all of them unless it is empty."""

    heading: str
    panels: tuple[str, ...]  #: the heading of each panel


@dataclass(frozen=True, eq=False)
class PanelGrid:
    """A figure with panels: for each group its panels, in the order of the group."""

    figure: Any
    groups: tuple[tuple[Any, ...], ...]
    columns: int
    top: float  #: of the highest panel, in inches
    bottom: float  #: of the lowest one
    right: float  #: of the panels


def make_panels(
    groups: Sequence[PanelGroup], layout: PlotLayout, margins: Margins, *, least: float, most: float, shape: float = 1.0
) -> PanelGrid:
    """Return a figure with a row of panels, or several rows, for each group.

    Panels are as wide as possible: at least `least` and at most `most` inches. A panel is `shape` times as high as it
    is wide. Rows are centred.
    """
    count = sum(len(group.panels) for group in groups)
    if count > MOST_PANELS:
        raise SettingsError(f"a figure has at most {MOST_PANELS} panels, and this one {count}; pass fewer runs")
    room = layout.width - margins.left - margins.right
    fit = max(1, int((room + margins.gap) / (least + margins.gap)))
    longest = max(len(group.panels) for group in groups)
    columns = ceil(longest / ceil(longest / fit))  # rows of equal length
    width = min(most, (room + margins.gap) / columns - margins.gap)
    row_height = width * shape + margins.head
    group_head = layout.font * 1.9 / POINTS
    rows = [ceil(len(group.panels) / columns) for group in groups]
    heads = [group_head if group.heading else 0.0 for group in groups]
    gaps = margins.row_gap * (sum(rows) - len(rows)) + margins.group_gap * (len(rows) - 1)
    total = margins.bottom + sum(heads) + sum(rows) * row_height + gaps + 2 * EDGE
    figure = new_figure((layout.width, total), layout.dpi)
    start = margins.left + max(0.0, (room + margins.gap - columns * (width + margins.gap)) / 2)
    y, placed = total - EDGE, []
    top = y - heads[0] - margins.head
    for group, head in zip(groups, heads, strict=True):
        if group.heading:
            _write(figure, start, y, group.heading, layout.font, weight="bold", va="top")
        y -= head
        axes = []
        for first in range(0, len(group.panels), columns):
            names = group.panels[first : first + columns]
            y -= row_height
            for k, name in enumerate(names):
                x = start + k * (width + margins.gap)
                box = (x / layout.width, y / total, width / layout.width, width * shape / total)
                axes.append(figure.add_axes(box))
                shown = shorten_text(figure, name, width, layout.font)
                _write(figure, x + width / 2, y + width * shape + 0.04, shown, layout.font, ha="center", va="bottom")
            y -= margins.row_gap
        y += margins.row_gap - margins.group_gap
        placed.append(tuple(axes))
    right = start + columns * (width + margins.gap) - margins.gap
    return PanelGrid(figure, tuple(placed), columns, top, y + margins.group_gap, right)


def _write(
    figure: Any, x: float, y: float, text: str, size: float, *, va: str, ha: str = "left", weight: str = "normal"
) -> None:
    figure.text(x, y, text, transform=figure.dpi_scale_trans, size=size, ha=ha, va=va, weight=weight)


def shorten_text(figure: Any, text: str, width: float, font: float) -> str:
    """Return a text, or only its start if it is wider than this many inches."""
    if text_width(figure, [text], font) <= width:
        return text
    while len(text) > 1 and text_width(figure, [f"{text}\u2026"], font) > width:
        text = text[:-1]
    return f"{text}\u2026"


def hide_ticks(axes: Any) -> None:
    """Remove ticks and their labels, and leave a thin frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.6)
        spine.set_color(LINE_COLOUR)
