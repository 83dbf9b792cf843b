"""A state diagram, drawn by matplotlib: the shapes that the SVG shows, for PDF and PNG."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from sdssm.automata.drawing.shapes import ArrowShape, Diagram, LabelShape, LegendShape, StateShape, TextLine
from sdssm.automata.drawing.wording import FONT, LETTER, PAPER, RIM, STATE_FILL, STATE_LINE, text_width
from sdssm.extras import import_extra
from sdssm.palette import LINE_COLOUR, TEXT_COLOUR
from sdssm.report.layouts import LEAST_FONT, POINTS
from sdssm.report.pictures import PURPOSE

#: The space that a diagram leaves for its title, in pixels, and above the first line of its legend.
HEADING_SPACE, LEGEND_SPACE = 30, 10
#: Labels of a diagram that is drawn small may reach this far into each other and into states, in pixels.
TOUCHING = 2.0
#: The thinnest line on paper, in points.
LEAST_LINE = 0.5


@dataclass(frozen=True, eq=False)
class FittedDiagram:
    """A diagram at its size on paper.

    Attributes:
        diagram: the shapes, in pixels.
        scale: points of a pixel.
        top, height: of the part without title and legend, in pixels.
    """

    diagram: Diagram
    scale: float
    top: float
    height: float

    @classmethod
    def fit(cls, diagram: Diagram, width: float, font: float) -> FittedDiagram:
        """Return the size at which a diagram fills a width in points, with letters of at most `font` points."""
        bottom = diagram.top + diagram.height
        if diagram.legend:
            bottom = min(float(entry.sample.line[:, 1].min()) for entry in diagram.legend) - LEGEND_SPACE
        top = diagram.top + (HEADING_SPACE if diagram.heading else 0)
        smallest = min([label.font for label in diagram.labels] + [state.font for state in diagram.states])
        scale = min(width / diagram.width, font / smallest)
        return cls(diagram, scale, top, bottom - top)

    def font(self, pixels: float) -> float:
        """Return the size of letters on paper, in points: as in the diagram, but not below the smallest size."""
        return max(pixels * self.scale, LEAST_FONT)

    @cached_property
    def has_names(self) -> bool:
        """Whether the names of all states fit into their circles at the size of `font`."""
        return all(map(self._fits, self.diagram.states))

    @cached_property
    def has_readable_labels(self) -> bool:
        """Whether no label covers a state or another label at the size of `font`."""
        boxes = [(label, self._box(label)) for label in self.diagram.labels]
        for label, (low, high) in boxes:
            if self.font(label.font) <= label.font * self.scale:
                continue  # not enlarged
            for state in self.diagram.states:
                centre = np.array([state.x, state.y])
                if np.hypot(*np.maximum(np.maximum(low - centre, centre - high), 0)) < state.radius - TOUCHING:
                    return False
        return not any(
            (np.minimum(one[1], other[1]) - np.maximum(one[0], other[0]) > TOUCHING).all()
            for (_, one), (_, other) in combinations(boxes, 2)
        )

    def _fits(self, state: StateShape) -> bool:
        font = self.font(state.font) / self.scale
        room = state.radius - (RIM if state.inner is not None else 0) + TOUCHING
        middle = (len(state.lines) - 1) / 2
        return all(
            np.hypot(text_width(line.text) * LETTER * font / 2, (abs(k - middle) * 13 + 5) * font / FONT) <= room
            for k, line in enumerate(state.lines)
        )

    def _box(self, label: LabelShape) -> tuple[np.ndarray, np.ndarray]:
        """Return the corners of a label at its size on paper, in pixels."""
        growth = self.font(label.font) / (label.font * self.scale)
        half = np.array([label.width, label.height]) / 2
        centre = np.array([label.left, label.top]) + half
        return centre - growth * half, centre + growth * half

    def draw(self, axes: Any) -> None:
        """Draw arrows, labels and states into axes, which then have the coordinates of the diagram."""
        axes.set_axis_off()
        axes.set_xlim(self.diagram.left, self.diagram.left + self.diagram.width)
        axes.set_ylim(self.top + self.height, self.top)  # y grows downwards
        for k, arrow in enumerate((*self.diagram.arrows, self.diagram.start)):
            for patch in _arrow_patches(arrow, self.scale):
                patch.set_zorder(1 + k * 1e-4)
                axes.add_patch(patch)
        for label in self.diagram.labels:
            low, high = self._box(label)
            box = _patches().Rectangle(low, *(high - low), facecolor=PAPER, linewidth=0, zorder=2)
            axes.add_patch(box)
            self._write(axes, label.lines, label.font)
        for state in self.diagram.states:
            self._draw_state(axes, state)

    def _draw_state(self, axes: Any, state: StateShape) -> None:
        circle = _patches().Circle
        line = max(STATE_LINE * self.scale, LEAST_LINE)
        outer = circle((state.x, state.y), state.radius, fc=STATE_FILL, ec=LINE_COLOUR, lw=line, zorder=3)
        axes.add_patch(outer)
        if state.inner is not None:
            inner = circle((state.x, state.y), state.inner, fill=False, ec=LINE_COLOUR, lw=line, zorder=3)
            axes.add_patch(inner)
        if self.has_names:
            self._write(axes, state.lines, state.font)

    def _write(self, axes: Any, lines: tuple[TextLine, ...], pixels: float) -> None:
        """Write lines of text, which grow around their middle if they are enlarged."""
        font = self.font(pixels)
        growth = font / (pixels * self.scale)
        middle = sum(line.y for line in lines) / len(lines) - 0.35 * pixels
        for line in lines:
            y = middle + growth * (line.y - middle)
            axes.text(line.x, y, line.text, size=font, ha="center", va="baseline", color=TEXT_COLOUR, zorder=4)


def draw_sample(figure: Any, entry: LegendShape, x: float, y: float, scale: float) -> float:
    """Draw the sample arrow of a legend at a place in inches; return where it ends."""
    move = import_extra("matplotlib.transforms", PURPOSE).Affine2D()
    corners = np.vstack([entry.sample.line, *entry.sample.heads])
    left, middle = corners[:, 0].min(), entry.sample.line[0, 1]
    pixel = scale / POINTS
    move = move.translate(-left, -middle).scale(pixel, -pixel).translate(x, y) + figure.dpi_scale_trans
    for patch in _arrow_patches(entry.sample, scale):
        patch.set_transform(move)
        figure.add_artist(patch)
    return x + float(corners[:, 0].max() - left) * pixel


def _arrow_patches(shape: ArrowShape, scale: float) -> list[Any]:
    """Return the line and the heads of an arrow."""
    patches, paths = _patches(), import_extra("matplotlib.path", PURPOSE)
    codes = [paths.Path.MOVETO, paths.Path.CURVE3, paths.Path.CURVE3] if shape.is_curve else None
    width = max(shape.style.width * scale, LEAST_LINE)
    # matplotlib scales dashes by the width of the line.
    dashes = tuple(float(part) / shape.style.width for part in shape.style.dash.split())
    line = patches.PathPatch(
        paths.Path(shape.line, codes),
        fill=False,
        edgecolor=shape.style.colour,
        linewidth=width,
        linestyle=(0, dashes) if dashes else "-",
        capstyle="butt",
    )
    heads = [patches.Polygon(head, closed=True, facecolor=shape.style.colour, linewidth=0) for head in shape.heads]
    return [line, *heads]


def _patches() -> Any:
    return import_extra("matplotlib.patches", PURPOSE)
