"""The edges of a diagram: bows, loops, and the arrow that marks the start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from sdssm.automata.drawing.canvas import Canvas, bezier, leaving, part
from sdssm.automata.drawing.general import Floats
from sdssm.automata.drawing.wording import NAMED, Style, safe

if TYPE_CHECKING:  # only named in signatures: nothing of a machine is made here
    from sdssm.automata.machine import Machine

#: The colour of outlines and text.
INK = "#1f2328"
#: Length and half the width of an arrowhead, and the distance between parallel edges, in pixels.
HEAD, HALF_HEAD, LANE = 8.0, 3.5, 7.5
#: Pairs of states with edges between them, past which all run straight: no bow keeps clear of so many others.
MOST_BENT = 500


def edges(machine: Machine, canvas: Canvas, styles: list[Style]) -> list[str]:
    """The edges between different states, those of each symbol in a group of its own."""
    involutions = [undoes_itself(machine, a) for a in range(machine.n_symbols)]
    strands: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # pair -> (sense, symbol)
    for p, row in enumerate(machine.table.tolist()):
        for a, q in enumerate(row):
            if p != q and not (involutions[a] and p > q):
                sense = 0 if involutions[a] else 1 if p < q else -1
                strands[min(p, q), max(p, q)].append((sense, a))
    shapes: dict[int, list[str]] = defaultdict(list)
    short = sorted(strands, key=lambda pair: float(np.hypot(*(canvas.at[pair[1]] - canvas.at[pair[0]]))))
    for p, q in short:  # short edges have less choice of a way
        lanes = sorted(strands[p, q])
        bend = _bend(canvas, p, q, len(lanes)) if len(strands) <= MOST_BENT else 0.0
        for lane, (sense, a) in enumerate(lanes):
            corners = _curve(canvas, p, q, bend, lane, len(lanes))
            canvas.add(corners, 0.1, 0.9)  # at its ends it meets others of the same state
            ends = (q, p) if sense < 0 else (p, q)
            sign = {0: " \u2194 ", 1: " \u2192 ", -1: " \u2192 "}[sense]
            told = f"{machine.symbol_names[a]}: {sign.join(machine.state_names[e] for e in ends)}"
            shapes[a].append(arrow(corners, told, styles[a].colour, start=sense <= 0, end=sense >= 0))
    return [f"<g {styles[a].line}>{''.join(shapes[a])}</g>" for a in sorted(shapes)]


def undoes_itself(machine: Machine, symbol: int) -> bool:
    """Whether the symbol twice in a row leads from every state back to it, and once does not."""
    ahead, states = machine.table[:, symbol], np.arange(machine.n_states)
    return bool((ahead[ahead] == states).all() and (ahead != states).any())


def _bend(canvas: Canvas, p: int, q: int, lanes: int) -> float:
    """How far, in pixels, the edges between two states bow to a side so as to keep clear of the others; mostly 0."""
    x, y = canvas.at[q] - canvas.at[p]
    length = float(np.hypot(x, y))
    inward = 1 if np.dot(canvas.at.mean(0) - canvas.at[p], (-y, x)) > -length else -1  # through the middle: 1
    best, cost = 0.0, np.inf
    for share in (0, 0.08, -0.08, 0.16, -0.16, 0.25, -0.25, 0.36, -0.36):
        times = np.linspace(0.04, 0.96, max(24, int(length / 10)))
        points = [
            bezier(_curve(canvas, p, q, share * inward * length, k, lanes), times) for k in sorted({0, lanes - 1})
        ]
        found = canvas.crowding(np.concatenate(points), (p, q), lines=not canvas.regular)
        found += 6 * abs(share) + (share < 0)
        if found < cost - 1e-6:
            best, cost = share * inward * length, found
    return best


def _curve(canvas: Canvas, p: int, q: int, bend: float, lane: int, lanes: int) -> Floats:
    """The curve of one of several parallel edges, from rim to rim."""
    a, b = canvas.at[p], canvas.at[q]
    along = (b - a) / np.hypot(*(b - a))
    side = np.array([-along[1], along[0]])
    offset = (lane - (lanes - 1) / 2) * min(LANE, 1.5 * canvas.radius / max(lanes - 1, 1))
    corners = np.array(
        [a + offset * side, (a + b) / 2 + ((1 + 4 / lanes) * offset + 2 * bend) * side, b + offset * side]
    )
    rim = canvas.radius + 1.5
    return part(corners, leaving(corners, a, rim), 1 - leaving(corners[::-1], b, rim))


def loops(machine: Machine, canvas: Canvas, styles: list[Style]) -> list[str]:
    """The edges from a state to itself, one within the other."""
    shapes: dict[int, list[str]] = defaultdict(list)
    rim, small = canvas.radius + 1.5, 0.85 if machine.n_states <= NAMED else 0.5
    for q, row in enumerate(machine.table.tolist()):
        symbols = [a for a, ahead in enumerate(row) if ahead == q]
        breadth = 4 + canvas.radius * np.sin(min(0.38 + 0.17 * len(symbols), 1.3))
        angle = canvas.free_angle(q, small * (28 + LANE * len(symbols)), breadth, canvas.outward(q)) if symbols else 0.0
        for k, a in enumerate(symbols):
            wide = min(0.38 + 0.17 * k, 1.3)
            reach = canvas.radius + small * (38 + 1.25 * LANE * k)
            polar = np.array([[rim, -wide], [reach, -wide - 0.14], [reach, wide + 0.14], [rim, wide]])
            turned = angle + polar[:, 1]
            corners = canvas.at[q] + polar[:, :1] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
            canvas.add(corners)
            name = machine.state_names[q]
            shapes[a].append(
                arrow(
                    corners, f"{machine.symbol_names[a]}: {name} \u2192 {name}", styles[a].colour, start=False, end=True
                )
            )
    return [f"<g {styles[a].line}>{''.join(shapes[a])}</g>" for a in sorted(shapes)]


def start_arrow(machine: Machine, canvas: Canvas) -> str:
    """The arrow from nowhere to the start state."""
    length = 30.0 if machine.n_states <= NAMED else 20.0
    at = canvas.at[machine.start]
    leftmost = at[0] <= canvas.at[:, 0].min() + 1
    angle = canvas.free_angle(machine.start, length, 8, np.pi if leftmost else canvas.outward(machine.start))
    reach = np.array([canvas.radius + length, canvas.radius + length / 2, canvas.radius + 1.5])
    corners = canvas.at[machine.start] + reach[:, None] * np.array([np.cos(angle), np.sin(angle)])
    canvas.add(corners)
    marker = arrow(corners, f"start: {machine.state_names[machine.start]}", INK, start=False, end=True)
    return f'<g id="start" fill="none" stroke="{INK}" stroke-width="2">{marker}</g>'


def arrow(corners: Floats, told: str, colour: str, *, start: bool, end: bool) -> str:
    """A curve with heads, drawn as shapes because not every program that shows SVG knows markers."""
    heads, times = "", [0.0, 1.0]
    for end_of, wanted, way in ((0, start, corners), (1, end, corners[::-1])):
        if wanted:
            tip, time = way[0], leaving(way, way[0], HEAD - 1)
            back = bezier(way, np.array([time]))[0] - tip
            back = back / np.hypot(*back) * HEAD
            side = np.array([-back[1], back[0]]) / HEAD * HALF_HEAD
            heads += f'<path d="M{_xy(tip)}L{_xy(tip + back + side)}L{_xy(tip + back - side)}Z"/>'
            times[end_of] = abs(end_of - time)
    if len(corners) == 3:
        a, b, c = part(corners, *times)
        line = f"{_xy(a)}Q{_xy(b)} {_xy(c)}"
    else:
        line = "L".join(_xy(x) for x in bezier(corners, np.linspace(times[0], times[1], 25)))
    return f'<g><title>{safe(told)}</title><path d="M{line}"/><g fill="{colour}" stroke="none">{heads}</g></g>'


def _xy(point: Iterable[float]) -> str:
    return " ".join(f"{x:.1f}" for x in point)
