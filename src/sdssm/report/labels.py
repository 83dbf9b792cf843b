"""Labels beside the lines of a plot: how they are worded, and how they are spread so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from sdssm.palette import CHANCE_COLOUR, TEXT_COLOUR
from sdssm.report.layouts import SCREEN, PlotLayout
from sdssm.report.styles import LineStyle

#: Names in a label at most.
MOST_NAMES = 12
#: A space at which no line ends.
NO_BREAK = "\u00a0"
#: Inches between two labels.
SPACE = 0.035


@dataclass(frozen=True)
class LineLabel:
    """The name of a line, its style, and the value (of the vertical axis) at which the line ends."""

    text: str
    style: LineStyle
    end: float
    width: float = 1.8  #: of the line, in points
    colour: str = TEXT_COLOUR  #: of the text

    def height(self, layout: PlotLayout) -> float:
        """Return the height of the label, in inches, with the space to the next."""
        return (self.text.count("\n") + 1) * layout.text_line + SPACE


def join_names(names: Sequence[str], width: int = SCREEN.wrap) -> str:
    """Join names to the text of a label, in lines of about `width` characters.

    >>> join_names(["parity", "even_pairs", "cycle"])
    'parity, even_pairs,\\ncycle'
    """
    shown = list(names) if len(names) <= MOST_NAMES else [*names[: MOST_NAMES - 1]]
    text = ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")
    lines = wrap(text, width, break_long_words=len(text) > 3 * width)
    return "\n".join(lines).replace(NO_BREAK, " ")


def spread(places: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Return the centres of labels as near to `places` as possible, such that none covers another.

    `heights` are the heights of the labels. All of them are between `low` and `high`, if they fit there.

    >>> spread([5.0, 5.0, 1.0], [1.0, 1.0, 1.0], 0.0, 5.0)
    [4.5, 3.5, 1.0]
    """
    order = sorted(range(len(places)), key=lambda k: -places[k])  # from the top; equal places in their order
    blocks: list[tuple[list[int], float]] = []  # labels that touch each other, and their upper edge
    for k in order:
        members, top = [k], min(places[k] + heights[k] / 2, high)
        while blocks and blocks[-1][1] - sum(heights[j] for j in blocks[-1][0]) < top:
            members = blocks.pop()[0] + members
            offsets = np.cumsum([0.0, *(heights[j] for j in members)])
            centres = [places[j] + offset + heights[j] / 2 for j, offset in zip(members, offsets, strict=False)]
            total = float(offsets[-1])
            top = min(max(float(np.mean(centres)), low + total), high)
        blocks.append((members, max(top, low + sum(heights[j] for j in members))))
    centres = [0.0] * len(places)
    edge = high
    for members, top in blocks:
        edge = min(edge, top)
        for k in members:
            centres[k] = edge - heights[k] / 2
            edge -= heights[k]
    return centres


def draw_labels(axes: Any, labels: Sequence[LineLabel], layout: PlotLayout) -> None:
    """Draw labels on the right of the axes: a thin leader from each line, a sample of the line, and its name."""
    figure = axes.figure
    box = axes.get_position()
    width, height = figure.get_size_inches()
    right, low, high = box.x1 * width, box.y0 * height, box.y1 * height
    inches = figure.dpi_scale_trans
    x = axes.get_xlim()[1]
    ends = [float(axes.transData.transform((x, label.end))[1]) / figure.dpi for label in labels]
    centres = spread(ends, [label.height(layout) for label in labels], low, high + SPACE)
    for label, end, y in zip(labels, ends, centres, strict=True):
        # Thin and grey: a leader in the style of its line would look like data.
        leader = _line_class()(
            [right + 0.03, right + layout.bend], [end, y], color=CHANCE_COLOUR, linewidth=0.6, transform=inches
        )
        sample = _line_class()(
            [right + layout.bend + 0.04, right + layout.bend + 0.04 + layout.sample],
            [y, y],
            color=label.style.colour,
            linestyle=label.style.dashes,
            linewidth=label.width,
            transform=inches,
        )
        figure.add_artist(leader)
        figure.add_artist(sample)
        figure.text(
            right + layout.text_start, y, label.text, transform=inches, va="center_baseline", size=layout.font,
            color=label.colour,
        )  # fmt: skip


def _line_class() -> Any:
    from matplotlib.lines import Line2D  # only when something is drawn: matplotlib is an extra

    return Line2D
