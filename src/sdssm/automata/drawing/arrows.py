"""The edges of a diagram: curves, loops, their labels, and the arrow that marks the start state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sdssm.automata.drawing.canvas import Canvas, bezier, exit_time, subcurve
from sdssm.automata.drawing.merging import Arrow, ArrowLabel, label_arrow
from sdssm.automata.drawing.shapes import ArrowShape, LabelShape, TextLine
from sdssm.automata.drawing.wording import LABEL_FONT, LETTER, MOST_NAMED, Style, text_width
from sdssm.automata.refinement import Floats
from sdssm.palette import LINE_COLOUR, TEXT_COLOUR

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine

#: Length and half the width of an arrowhead, and the distance between parallel edges, in pixels.
HEAD, HALF_HEAD, LANE = 8.0, 3.5, 7.5
#: The height of a line of a label, in pixels.
LINE_HEIGHT = 13.0
#: The most pairs of connected states for which edges are bent; with more pairs no curve avoids all others.
MOST_BENT = 500
#: The style of arrows with labels, which have no colour of their own, and of the arrow to the start state.
LABELLED, START = Style(LINE_COLOUR, ""), Style(TEXT_COLOUR, "", 2.0)


class ArrowPainter:
    """Places the arrows of a machine on a canvas.

    An arrow with one symbol has the colour of the symbol, unless all arrows are labelled; an arrow with several symbols
    is always labelled. The shapes are in `arrows`, those of one style after each other, and in `labels`.
    """

    def __init__(self, machine: Machine, canvas: Canvas, styles: list[Style], *, is_labelled: bool) -> None:
        self.machine, self.canvas, self.styles, self.is_labelled = machine, canvas, styles, is_labelled
        self.labels: list[LabelShape] = []
        self._shapes: dict[Style, list[ArrowShape]] = defaultdict(list)
        self._curves: list[tuple[Arrow, Floats]] = []

    @property
    def arrows(self) -> tuple[ArrowShape, ...]:
        """The arrows drawn so far."""
        return tuple(shape for shapes in self._shapes.values() for shape in shapes)

    def find_label(self, arrow: Arrow) -> ArrowLabel | None:
        """Return the label of an arrow, or None if its colour says enough."""
        return label_arrow(self.machine, arrow) if self.is_labelled or len(arrow.symbols) > 1 else None

    def draw_edges(self, arrows: list[Arrow], bends: Mapping[tuple[int, int], float]) -> None:
        """Draw the arrows between different states, without labels.

        `bends` has, for some pairs of states, how far their arrows bend sideways, relative to the distance.
        """
        strands: dict[tuple[int, int], list[Arrow]] = defaultdict(list)
        for arrow in arrows:
            if arrow.source != arrow.target:
                strands[min(arrow[:2]), max(arrow[:2])].append(arrow)
        at = self.canvas.at
        by_length = sorted(strands, key=lambda pair: float(np.hypot(*(at[pair[1]] - at[pair[0]]))))
        for p, q in by_length:  # short edges first: they have fewer possible curves
            lanes = sorted(strands[p, q], key=lambda arrow: (arrow.source > arrow.target, arrow.symbols))
            spread = 2.0 if any(map(self.find_label, lanes)) else 1.0
            if (p, q) in bends:
                bend = bends[p, q] * float(np.hypot(*(at[q] - at[p])))
            else:
                bend = _choose_bend(self.canvas, p, q, len(lanes)) if len(strands) <= MOST_BENT else 0.0
            for lane, arrow in enumerate(lanes):
                corners = _curve(self.canvas, p, q, bend, lane, len(lanes), spread)
                self.canvas.add(corners, 0.1, 0.9)  # near its ends it meets other edges of the same state
                self.canvas.touch(p, corners[0])
                self.canvas.touch(q, corners[-1])
                forward = arrow.source < arrow.target
                self._draw(arrow, corners, start=arrow.both or not forward, end=arrow.both or forward)

    def draw_edge_labels(self) -> None:
        """Label the arrows between different states, when all lines and loops are drawn."""
        for arrow, corners in self._curves:
            self._draw_edge_label(arrow, corners)

    def draw_loops(self, arrows: list[Arrow]) -> None:
        """Draw the arrows from a state to itself, with their labels."""
        canvas, rim = self.canvas, self.canvas.radius + 1.5
        reach = canvas.radius + 38 * (0.85 if self.machine.n_states <= MOST_NAMED else 0.5)
        tip = 0.25 * rim + 0.75 * reach  # the farthest point of the curve
        for arrow in arrows:
            if arrow.source != arrow.target:
                continue
            q, label = arrow.source, self.find_label(arrow)
            size = _label_size(label) if label else np.zeros(2)
            breadth = 4 + canvas.radius * np.sin(0.5)
            angle = canvas.free_angle(
                q, tip - canvas.radius, breadth, canvas.outward(q), spread=0.4, label=size, label_from=tip
            )
            polar = np.array([[rim, -0.4], [reach, -0.54], [reach, 0.54], [rim, 0.4]])
            turned = angle + polar[:, 1]
            corners = canvas.at[q] + polar[:, :1] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
            canvas.add(corners)
            for end in (0, -1):
                canvas.touch(q, corners[end])
            self._draw(arrow, corners, start=False, end=True)
            if label:
                self._draw_label(arrow, label, canvas.beside(q, angle, size, tip), size)

    def draw_start_arrow(self) -> ArrowShape:
        """Return the arrow that points to the start state."""
        machine, canvas = self.machine, self.canvas
        length = 30.0 if machine.n_states <= MOST_NAMED else 20.0
        at = canvas.at[machine.start]
        preferred = np.pi if canvas.is_leftmost(machine.start) else canvas.outward(machine.start)
        angle = canvas.free_angle(machine.start, length, 8, preferred)
        reach = np.array([canvas.radius + length, canvas.radius + length / 2, canvas.radius + 1.5])
        corners = at + reach[:, None] * np.array([np.cos(angle), np.sin(angle)])
        canvas.add(corners)
        canvas.add_head(corners[::-1])
        canvas.touch(machine.start, corners[-1])
        return make_arrow(corners, f"start: {machine.state_names[machine.start]}", START, start=False, end=True)

    def _style(self, arrow: Arrow) -> Style:
        return LABELLED if self.is_labelled or len(arrow.symbols) > 1 else self.styles[arrow.symbols[0]]

    def _tooltip(self, arrow: Arrow) -> str:
        names = self.machine.state_names
        sign = " \u2194 " if arrow.both else " \u2192 "
        return f"{label_arrow(self.machine, arrow).full}: {sign.join(names[q] for q in arrow[:2])}"

    def _draw(self, arrow: Arrow, corners: Floats, *, start: bool, end: bool) -> None:
        style = self._style(arrow)
        for has_head, curve in ((start, corners), (end, corners[::-1])):
            if has_head:
                self.canvas.add_head(curve)
        shape = make_arrow(corners, self._tooltip(arrow), style, start=start, end=end, arrow=arrow)
        self._shapes[style].append(shape)
        if arrow.source != arrow.target:
            self._curves.append((arrow, corners))

    def _draw_edge_label(self, arrow: Arrow, corners: Floats) -> None:
        """Put the label on the curve, where it covers the least."""
        label = self.find_label(arrow)
        if label is None:
            return
        size = _label_size(label)
        self.canvas.add(corners, 0.1, 0.9, weight=-1.0)  # it may cover its own line
        times = np.array([0.5, 0.46, 0.54, 0.42, 0.58, 0.38, 0.62, 0.34, 0.66, 0.3, 0.7, 0.26, 0.74, 0.22, 0.78])
        costs = [
            self.canvas.covering(point, size) + 4 * abs(time - 0.5)
            for time, point in zip(times, bezier(corners, times), strict=True)
        ]
        centre = bezier(corners, times[[int(np.argmin(costs))]])[0]
        self.canvas.add(corners, 0.1, 0.9)
        self._draw_label(arrow, label, centre, size)

    def _draw_label(self, arrow: Arrow, label: ArrowLabel, centre: Floats, size: Floats) -> None:
        self.canvas.add_box(centre, size)
        (x, y), (width, height) = centre, size
        middle = (len(label.lines) - 1) / 2
        lines = (
            TextLine(x, y + (k - middle) * LINE_HEIGHT + LABEL_FONT * 0.35, line) for k, line in enumerate(label.lines)
        )
        self.labels.append(
            LabelShape(
                left=x - width / 2,
                top=y - height / 2,
                width=width,
                height=height,
                lines=tuple(lines),
                font=LABEL_FONT,
                tooltip=self._tooltip(arrow),
                arrow=arrow,
            )
        )


def _label_size(label: ArrowLabel) -> Floats:
    """Return width and height of a label, in pixels, with a margin."""
    width = max(map(text_width, label.lines)) * LETTER * LABEL_FONT + 5
    return np.array([width, LINE_HEIGHT * len(label.lines) + 2])


def least_distance(label: ArrowLabel | None, direction: Floats) -> float:
    """Return how long, in pixels, the visible part of an arrow in this direction must be."""
    if label is None:
        return 0.0
    return float(np.abs(direction) @ _label_size(label)) + 2 * HEAD + 24


def _choose_bend(canvas: Canvas, p: int, q: int, lanes: int) -> float:
    """Return how far, in pixels, the edges between two states bend sideways to avoid others; often 0."""
    x, y = canvas.at[q] - canvas.at[p]
    length = float(np.hypot(x, y))
    # 1 if the edge passes through the middle.
    inward = 1 if np.dot(canvas.at.mean(0) - canvas.at[p], (-y, x)) > -length else -1
    best, cost = 0.0, np.inf
    for share in (0, 0.08, -0.08, 0.16, -0.16, 0.25, -0.25, 0.36, -0.36):
        times = np.linspace(0.04, 0.96, max(24, int(length / 10)))
        points = [
            bezier(_curve(canvas, p, q, share * inward * length, k, lanes), times) for k in sorted({0, lanes - 1})
        ]
        new_cost = canvas.crowding(np.concatenate(points), (p, q), lines=not canvas.regular)
        new_cost += 6 * abs(share) + (share < 0)
        if new_cost < cost - 1e-6:
            best, cost = share * inward * length, new_cost
    return best


def _curve(canvas: Canvas, p: int, q: int, bend: float, lane: int, lanes: int, spread: float = 1.0) -> Floats:
    """Return the control points of one of several parallel edges, from rim to rim."""
    a, b = canvas.at[p], canvas.at[q]
    along = (b - a) / np.hypot(*(b - a))
    side = np.array([-along[1], along[0]])
    offset = (lane - (lanes - 1) / 2) * min(LANE, 1.5 * canvas.radius / max(lanes - 1, 1))
    corners = np.array(
        [a + offset * side, (a + b) / 2 + ((1 + 4 / lanes) * spread * offset + 2 * bend) * side, b + offset * side]
    )
    rim = canvas.radius + 1.5
    return subcurve(corners, exit_time(corners, a, rim), 1 - exit_time(corners[::-1], b, rim))


def make_arrow(
    corners: Floats, tooltip: str, style: Style, *, start: bool, end: bool, arrow: Arrow | None = None
) -> ArrowShape:
    """Return a curve with arrowheads at its `start` and `end`.

    Arrowheads are shapes of their own because not every viewer of SVG supports markers.
    """
    heads, times = [], [0.0, 1.0]
    for index, has_head, curve in ((0, start, corners), (1, end, corners[::-1])):
        if has_head:
            tip, time = curve[0], exit_time(curve, curve[0], HEAD - 1)
            back = bezier(curve, np.array([time]))[0] - tip
            back = back / np.hypot(*back) * HEAD
            side = np.array([-back[1], back[0]]) / HEAD * HALF_HEAD
            heads.append(np.array([tip, tip + back + side, tip + back - side]))
            times[index] = abs(index - time)
    line = subcurve(corners, *times) if len(corners) == 3 else bezier(corners, np.linspace(times[0], times[1], 25))
    return ArrowShape(line, tuple(heads), style, tooltip, style not in (LABELLED, START), arrow)
