"""The edges of a diagram: curves, loops, and the arrow that marks the start state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from sdssm.automata.drawing.canvas import Canvas, bezier, exit_time, subcurve
from sdssm.automata.drawing.general import Floats
from sdssm.automata.drawing.wording import MOST_NAMED, Style, escape_text

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine

#: The colour of outlines and text.
INK = "#1f2328"
#: Length and half the width of an arrowhead, and the distance between parallel edges, in pixels.
HEAD, HALF_HEAD, LANE = 8.0, 3.5, 7.5
#: The most pairs of connected states for which edges are bent; with more pairs no curve avoids all others.
MOST_BENT = 500


def draw_edges(machine: Machine, canvas: Canvas, styles: list[Style]) -> list[str]:
    """Draw the edges between different states, as one SVG group for each symbol."""
    involutions = [is_involution(machine, a) for a in range(machine.n_symbols)]
    strands: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # pair -> (direction, symbol)
    for p, row in enumerate(machine.table.tolist()):
        for a, q in enumerate(row):
            if p != q and not (involutions[a] and p > q):
                direction = 0 if involutions[a] else 1 if p < q else -1
                strands[min(p, q), max(p, q)].append((direction, a))
    shapes: dict[int, list[str]] = defaultdict(list)
    by_length = sorted(strands, key=lambda pair: float(np.hypot(*(canvas.at[pair[1]] - canvas.at[pair[0]]))))
    for p, q in by_length:  # short edges first: they have fewer possible curves
        lanes = sorted(strands[p, q])
        bend = _choose_bend(canvas, p, q, len(lanes)) if len(strands) <= MOST_BENT else 0.0
        for lane, (direction, a) in enumerate(lanes):
            corners = _curve(canvas, p, q, bend, lane, len(lanes))
            canvas.add(corners, 0.1, 0.9)  # near its ends it meets other edges of the same state
            ends = (q, p) if direction < 0 else (p, q)
            sign = {0: " \u2194 ", 1: " \u2192 ", -1: " \u2192 "}[direction]
            tooltip = f"{machine.symbol_names[a]}: {sign.join(machine.state_names[e] for e in ends)}"
            shapes[a].append(draw_arrow(corners, tooltip, styles[a].colour, start=direction <= 0, end=direction >= 0))
    return [f"<g {styles[a].line}>{''.join(shapes[a])}</g>" for a in sorted(shapes)]


def is_involution(machine: Machine, symbol: int) -> bool:
    """Whether reading the symbol twice leads from every state back to it, but reading it once does not."""
    image, states = machine.table[:, symbol], np.arange(machine.n_states)
    return bool((image[image] == states).all() and (image != states).any())


def _choose_bend(canvas: Canvas, p: int, q: int, lanes: int) -> float:
    """Return how far, in pixels, the edges between two states bend sideways to avoid others; often 0."""
    x, y = canvas.at[q] - canvas.at[p]
    length = float(np.hypot(x, y))
    inward = (
        1 if np.dot(canvas.at.mean(0) - canvas.at[p], (-y, x)) > -length else -1
    )  # 1 if the edge passes through the middle
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


def _curve(canvas: Canvas, p: int, q: int, bend: float, lane: int, lanes: int) -> Floats:
    """Return the control points of one of several parallel edges, from rim to rim."""
    a, b = canvas.at[p], canvas.at[q]
    along = (b - a) / np.hypot(*(b - a))
    side = np.array([-along[1], along[0]])
    offset = (lane - (lanes - 1) / 2) * min(LANE, 1.5 * canvas.radius / max(lanes - 1, 1))
    corners = np.array(
        [a + offset * side, (a + b) / 2 + ((1 + 4 / lanes) * offset + 2 * bend) * side, b + offset * side]
    )
    rim = canvas.radius + 1.5
    return subcurve(corners, exit_time(corners, a, rim), 1 - exit_time(corners[::-1], b, rim))


def draw_loops(machine: Machine, canvas: Canvas, styles: list[Style]) -> list[str]:
    """Draw the edges from a state to itself, nested, as one SVG group for each symbol."""
    shapes: dict[int, list[str]] = defaultdict(list)
    rim, scale = canvas.radius + 1.5, 0.85 if machine.n_states <= MOST_NAMED else 0.5
    for q, row in enumerate(machine.table.tolist()):
        symbols = [a for a, target in enumerate(row) if target == q]
        breadth = 4 + canvas.radius * np.sin(min(0.38 + 0.17 * len(symbols), 1.3))
        angle = canvas.free_angle(q, scale * (28 + LANE * len(symbols)), breadth, canvas.outward(q)) if symbols else 0.0
        for k, a in enumerate(symbols):
            half_angle = min(0.38 + 0.17 * k, 1.3)
            reach = canvas.radius + scale * (38 + 1.25 * LANE * k)
            polar = np.array(
                [[rim, -half_angle], [reach, -half_angle - 0.14], [reach, half_angle + 0.14], [rim, half_angle]]
            )
            turned = angle + polar[:, 1]
            corners = canvas.at[q] + polar[:, :1] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
            canvas.add(corners)
            name = machine.state_names[q]
            shapes[a].append(
                draw_arrow(
                    corners, f"{machine.symbol_names[a]}: {name} \u2192 {name}", styles[a].colour, start=False, end=True
                )
            )
    return [f"<g {styles[a].line}>{''.join(shapes[a])}</g>" for a in sorted(shapes)]


def draw_start_arrow(machine: Machine, canvas: Canvas) -> str:
    """Draw the arrow that points to the start state."""
    length = 30.0 if machine.n_states <= MOST_NAMED else 20.0
    at = canvas.at[machine.start]
    leftmost = at[0] <= canvas.at[:, 0].min() + 1
    angle = canvas.free_angle(machine.start, length, 8, np.pi if leftmost else canvas.outward(machine.start))
    reach = np.array([canvas.radius + length, canvas.radius + length / 2, canvas.radius + 1.5])
    corners = canvas.at[machine.start] + reach[:, None] * np.array([np.cos(angle), np.sin(angle)])
    canvas.add(corners)
    marker = draw_arrow(corners, f"start: {machine.state_names[machine.start]}", INK, start=False, end=True)
    return f'<g id="start" fill="none" stroke="{INK}" stroke-width="2">{marker}</g>'


def draw_arrow(corners: Floats, tooltip: str, colour: str, *, start: bool, end: bool) -> str:
    """Draw a curve with arrowheads at its `start` and `end`.

    Arrowheads are drawn as shapes because not every SVG viewer supports markers.
    """
    heads, times = "", [0.0, 1.0]
    for index, has_head, curve in ((0, start, corners), (1, end, corners[::-1])):
        if has_head:
            tip, time = curve[0], exit_time(curve, curve[0], HEAD - 1)
            back = bezier(curve, np.array([time]))[0] - tip
            back = back / np.hypot(*back) * HEAD
            side = np.array([-back[1], back[0]]) / HEAD * HALF_HEAD
            heads += f'<path d="M{_xy(tip)}L{_xy(tip + back + side)}L{_xy(tip + back - side)}Z"/>'
            times[index] = abs(index - time)
    if len(corners) == 3:
        a, b, c = subcurve(corners, *times)
        line = f"{_xy(a)}Q{_xy(b)} {_xy(c)}"
    else:
        line = "L".join(_xy(x) for x in bezier(corners, np.linspace(times[0], times[1], 25)))
    return (
        f'<g><title>{escape_text(tooltip)}</title><path d="M{line}"/><g fill="{colour}" stroke="none">{heads}</g></g>'
    )


def _xy(point: Iterable[float]) -> str:
    return " ".join(f"{x:.1f}" for x in point)
