"""State diagrams as SVG text, drawn here from the first line to the last: no program is needed to make one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from colorsys import hls_to_rgb
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

import numpy as np

from sdssm.automata.layout import Floats, layout
from sdssm.automata.refinement import Ints
from sdssm.errors import AutomatonError

if TYPE_CHECKING:  # the machine may one day call `draw` itself
    from sdssm.automata.machine import Machine

#: More states than this are drawn small, with numbers instead of names; more than the second are refused.
NAMED, DRAWN = 60, 200
#: Okabe and Ito's colours for all kinds of sight, with a dark wine in the place of yellow, which is lost on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#4d4d4d")
#: A second cue next to colour, from the fifth symbol on.
DASHES = ("", "7 3", "2 3")
INK, PAPER, FILL = "#1f2328", "#ffffff", "#f6f8fa"
FONT = 12.0
#: Width of a letter as a share of the font size: a little more than that of common sans-serif fonts.
LETTER = 0.6
WIDE = "mwMW@%&<>=+~\u2026"
#: Length and half the width of an arrowhead, and the distance between parallel edges, in pixels.
HEAD, HALF_HEAD, LANE = 8.0, 3.5, 7.5
#: The mesh, in pixels, on which lines keep out of each other's way.
CELL = 6.0


def draw(machine: Machine, *, title: str | None = None) -> str:
    """The state diagram of a machine, as the text of an SVG file.

    Each symbol has a colour, named in the legend; an arrow from nowhere marks the start state. A symbol that undoes
    itself everywhere (an involution) is drawn as one line with a head at either end. Outputs stand in the states, as
    `name / output`, unless every state's output is its number. Names too long for their place are shortened; state and
    edge tell everything when pointed at.

    >>> from sdssm.automata.machine import Machine
    >>> text = draw(Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]), title="Parity")
    >>> text.startswith("<svg"), "even" in text
    (True, True)
    """
    if machine.n_states > DRAWN:
        raise AutomatonError(
            f"a diagram shows at most {DRAWN} states and this machine has {machine.n_states}; "
            "draw machine.minimise(), or a smaller machine of the same family"
        )
    labels, radius, font = _labels(machine)
    room = 46.0 + 5 * min(max(machine.n_symbols - 2, 0), 8) if machine.n_states <= NAMED else 28.0
    found = layout(machine.table, machine.start)
    at = found.positions * (2 * radius + room)
    canvas = _Canvas(at, radius, regular=found.kind in ("ring", "two rings", "cycles"))
    styles = _styles(machine.n_symbols)
    edges = [*_edges(machine, canvas, styles), *_loops(machine, canvas, styles), _start(machine, canvas)]
    nodes = [_node(machine, q, at[q], radius, labels[q], font) for q in range(machine.n_states)]
    return _document(machine, title, canvas, styles, [*edges, *nodes])


# -- geometry --------------------------------------------------------------------------------------------------------


class _Canvas:
    """The states' places (Q, 2), and the lines drawn so far as ink on a grid: asking where it is dense costs little."""

    def __init__(self, at: Floats, radius: float, *, regular: bool) -> None:
        self.at, self.radius = at, radius
        self.regular = regular  # rings and polygons: equal edges bow equally, whatever was drawn before them
        self.low, self.high = at.min(0), at.max(0)  # a box about all that is drawn
        self.corner = self.low - 30 * CELL
        self.ink = np.zeros(((self.high - self.low) / CELL + 60).astype(int))

    def add(self, corners: Floats, first: float = 0.0, last: float = 1.0) -> None:
        """A line is drawn here; between the two times it gets in the way of others."""
        outline = _bezier(corners, np.linspace(0, 1, 33))
        self.low, self.high = np.minimum(self.low, outline.min(0)), np.maximum(self.high, outline.max(0))
        length = float(np.hypot(*np.diff(outline, axis=0).T).sum())
        for cells, share in self._cells(_bezier(corners, np.linspace(first, last, 2 + int(length / CELL)))):
            np.add.at(self.ink, cells, share)

    def _cells(self, points: Floats) -> Iterator[tuple[tuple[Ints, Ints], Floats]]:
        """The four crossings of the grid about each point, and their shares of it."""
        place = np.clip((points - self.corner) / CELL, 0, np.array(self.ink.shape) - 2)
        x, y = place.astype(np.int64).T
        u, v = (place % 1).T
        yield (x, y), (1 - u) * (1 - v)
        yield (x + 1, y), u * (1 - v)
        yield (x, y + 1), (1 - u) * v
        yield (x + 1, y + 1), u * v

    def outward(self, q: int) -> float:
        """The angle that leads from the middle of the picture to a state; up, in the middle or on a single row."""
        x, y = self.at[q] - self.at.mean(0)
        return float(np.arctan2(y, x)) if np.hypot(x, y) > 1 and np.ptp(self.at[:, 1]) > 1 else -np.pi / 2

    def crowding(self, points: Floats, ends: tuple[int, ...], *, lines: bool = True) -> float:
        """How much of a line (n, 2) runs over states, other than those at its ends, or (`lines`) along other lines."""
        others = np.delete(self.at, ends, axis=0)
        over = np.maximum(0, self.radius + 7 - _gaps(points, others).min(0)).sum() / self.radius  # each state once
        along = sum((self.ink[cells] * share).sum() for cells, share in self._cells(points)) if lines else 0.0
        return float(12 * over + 6 * along / len(points))

    def free_angle(self, q: int, length: float, breadth: float, wanted: float) -> float:
        """The direction, best the wanted one, in which a strip from a state's rim outward is the most free."""
        best, cost = 0.0, np.inf
        for turn in sorted(range(-11, 13), key=abs):
            angle = wanted + turn * np.pi / 12
            along = np.array([np.cos(angle), np.sin(angle)])
            side = np.array([-along[1], along[0]])
            reach = self.radius + np.linspace(4, length + 6, 6)
            points = self.at[q] + (reach[:, None] * along)[:, None] + np.linspace(-breadth, breadth, 5)[:, None] * side
            found = self.crowding(points.reshape(-1, 2), (q,)) + 0.25 * abs(turn)
            if found < cost - 1e-6:
                best, cost = angle, found
        return float(best)


def _gaps(points: Floats, others: Floats) -> Floats:
    if not len(others):
        return np.full((len(points), 1), np.inf)
    return np.asarray(np.sqrt(((points[:, None] - others[None]) ** 2).sum(-1)))


def _bezier(corners: Floats, t: Floats) -> Floats:
    """Points (n, 2) on the curve of 3 or 4 corners at the times t."""
    points = np.repeat(corners[:, None], len(t), axis=1)
    while len(points) > 1:
        points = points[:-1] * (1 - t)[:, None] + points[1:] * t[:, None]
    return np.asarray(points[0])


def _leaving(corners: Floats, centre: Floats, distance: float) -> float:
    """The time at which a curve is first this far from a point near its beginning."""
    times = np.linspace(0, 1, 101)
    gap = np.hypot(*(_bezier(corners, times) - centre).T)
    after = max(1, int((gap > distance).argmax()))
    return float(np.interp(distance, gap[after - 1 : after + 1], times[after - 1 : after + 1]))


def _part(corners: Floats, first: float, last: float) -> Floats:
    """The corners of the piece of a three-cornered curve between two times."""

    def blossom(s: float, t: float) -> Floats:
        left = corners[:2] * (1 - s) + corners[1:] * s
        return np.asarray(left[0] * (1 - t) + left[1] * t)

    return np.array([blossom(first, first), blossom(first, last), blossom(last, last)])


# -- edges -----------------------------------------------------------------------------------------------------------


def _edges(machine: Machine, canvas: _Canvas, styles: list[_Style]) -> list[str]:
    """The edges between different states, those of each symbol in a group of its own."""
    undoes_itself = [_undoes_itself(machine, a) for a in range(machine.n_symbols)]
    strands: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # pair -> (sense, symbol)
    for p, row in enumerate(machine.table.tolist()):
        for a, q in enumerate(row):
            if p != q and not (undoes_itself[a] and p > q):
                sense = 0 if undoes_itself[a] else 1 if p < q else -1
                strands[min(p, q), max(p, q)].append((sense, a))
    shapes: dict[int, list[str]] = defaultdict(list)
    short = sorted(strands, key=lambda pair: float(np.hypot(*(canvas.at[pair[1]] - canvas.at[pair[0]]))))
    for p, q in short:  # short edges have less choice of a way
        lanes = sorted(strands[p, q])
        bend = _bend(canvas, p, q, len(lanes))
        for lane, (sense, a) in enumerate(lanes):
            corners = _curve(canvas, p, q, bend, lane, len(lanes))
            canvas.add(corners, 0.1, 0.9)  # at its ends it meets others of the same state
            ends = (q, p) if sense < 0 else (p, q)
            arrow = {0: " \u2194 ", 1: " \u2192 ", -1: " \u2192 "}[sense]
            told = f"{machine.symbol_names[a]}: {arrow.join(machine.state_names[e] for e in ends)}"
            shapes[a].append(_arrow(corners, told, styles[a].colour, start=sense <= 0, end=sense >= 0))
    return [f"<g {styles[a].line}>{''.join(shapes[a])}</g>" for a in sorted(shapes)]


def _undoes_itself(machine: Machine, symbol: int) -> bool:
    """Whether the symbol twice in a row leads from every state back to it, and once does not."""
    ahead, states = machine.table[:, symbol], np.arange(machine.n_states)
    return bool((ahead[ahead] == states).all() and (ahead != states).any())


def _bend(canvas: _Canvas, p: int, q: int, lanes: int) -> float:
    """How far, in pixels, the edges between two states bow to a side so as to keep clear of the others; mostly 0."""
    x, y = canvas.at[q] - canvas.at[p]
    length = float(np.hypot(x, y))
    inward = 1 if np.dot(canvas.at.mean(0) - canvas.at[p], (-y, x)) > -length else -1  # through the middle: 1
    best, cost = 0.0, np.inf
    for share in (0, 0.08, -0.08, 0.16, -0.16, 0.25, -0.25, 0.36, -0.36):
        times = np.linspace(0.04, 0.96, max(24, int(length / 10)))
        points = [
            _bezier(_curve(canvas, p, q, share * inward * length, k, lanes), times) for k in sorted({0, lanes - 1})
        ]
        found = canvas.crowding(np.concatenate(points), (p, q), lines=not canvas.regular)
        found += 6 * abs(share) + (share < 0)
        if found < cost - 1e-6:
            best, cost = share * inward * length, found
    return best


def _curve(canvas: _Canvas, p: int, q: int, bend: float, lane: int, lanes: int) -> Floats:
    """The curve of one of several parallel edges, from rim to rim."""
    a, b = canvas.at[p], canvas.at[q]
    along = (b - a) / np.hypot(*(b - a))
    side = np.array([-along[1], along[0]])
    offset = (lane - (lanes - 1) / 2) * min(LANE, 1.5 * canvas.radius / max(lanes - 1, 1))
    corners = np.array(
        [a + offset * side, (a + b) / 2 + ((1 + 4 / lanes) * offset + 2 * bend) * side, b + offset * side]
    )
    rim = canvas.radius + 1.5
    return _part(corners, _leaving(corners, a, rim), 1 - _leaving(corners[::-1], b, rim))


def _loops(machine: Machine, canvas: _Canvas, styles: list[_Style]) -> list[str]:
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
                _arrow(
                    corners, f"{machine.symbol_names[a]}: {name} \u2192 {name}", styles[a].colour, start=False, end=True
                )
            )
    return [f"<g {styles[a].line}>{''.join(shapes[a])}</g>" for a in sorted(shapes)]


def _start(machine: Machine, canvas: _Canvas) -> str:
    """The arrow from nowhere to the start state."""
    length = 30.0 if machine.n_states <= NAMED else 20.0
    at = canvas.at[machine.start]
    leftmost = at[0] <= canvas.at[:, 0].min() + 1
    angle = canvas.free_angle(machine.start, length, 8, np.pi if leftmost else canvas.outward(machine.start))
    reach = np.array([canvas.radius + length, canvas.radius + length / 2, canvas.radius + 1.5])
    corners = canvas.at[machine.start] + reach[:, None] * np.array([np.cos(angle), np.sin(angle)])
    canvas.add(corners)
    arrow = _arrow(corners, f"start: {machine.state_names[machine.start]}", INK, start=False, end=True)
    return f'<g id="start" fill="none" stroke="{INK}" stroke-width="2">{arrow}</g>'


def _arrow(corners: Floats, told: str, colour: str, *, start: bool, end: bool) -> str:
    """A curve with heads, drawn as shapes because not every program that shows SVG knows markers."""
    heads, times = "", [0.0, 1.0]
    for end_of, wanted, way in ((0, start, corners), (1, end, corners[::-1])):
        if wanted:
            tip, time = way[0], _leaving(way, way[0], HEAD - 1)
            back = _bezier(way, np.array([time]))[0] - tip
            back = back / np.hypot(*back) * HEAD
            side = np.array([-back[1], back[0]]) / HEAD * HALF_HEAD
            heads += f'<path d="M{_xy(tip)}L{_xy(tip + back + side)}L{_xy(tip + back - side)}Z"/>'
            times[end_of] = abs(end_of - time)
    if len(corners) == 3:
        a, b, c = _part(corners, *times)
        line = f"{_xy(a)}Q{_xy(b)} {_xy(c)}"
    else:
        line = "L".join(_xy(x) for x in _bezier(corners, np.linspace(times[0], times[1], 25)))
    return f'<g><title>{_safe(told)}</title><path d="M{line}"/><g fill="{colour}" stroke="none">{heads}</g></g>'


def _xy(point: Iterable[float]) -> str:
    return " ".join(f"{x:.1f}" for x in point)


# -- names -----------------------------------------------------------------------------------------------------------


class _Style(NamedTuple):
    colour: str
    dash: str

    @property
    def line(self) -> str:
        dashes = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'stroke="{self.colour}" fill="none" stroke-width="1.6"{dashes}'


def _styles(n: int) -> list[_Style]:
    """The lines of the symbols: Okabe and Ito's colours first, then hues a golden angle apart."""
    out = []
    for a in range(n):
        if a < len(COLOURS):
            colour, dash = COLOURS[a], DASHES[a // 4]
        else:
            rgb = hls_to_rgb(a * 0.381966 % 1, (0.32, 0.5)[a % 2], 0.75)
            colour, dash = "#" + "".join(f"{round(255 * x):02x}" for x in rgb), DASHES[a // 4 % 3]
        out.append(_Style(colour, dash))
    return out


def _labels(machine: Machine) -> tuple[list[list[str]], float, float]:
    """The lines of text in each state, the radius that holds them all, and the size of the font."""
    numbers = [str(q) for q in range(machine.n_states)]
    if machine.n_states > NAMED:
        return [[number] for number in numbers], 10.5, 9.0
    letters = 9 if machine.n_states <= 24 else 7
    names = [_wrapped(_printable(name), letters) for name in machine.state_names]
    if len({tuple(name) for name in names}) < len(names):  # two names shortened to the same text
        names = [[number] for number in numbers]
    if (machine.outputs != np.arange(machine.n_states)).any():
        tails = [f"/ {output}" for output in machine.outputs]
        inline = all(len(name) == 1 and _width(name[0] + tail) <= 6 for name, tail in zip(names, tails, strict=True))
        names = [[f"{name[0]} {tail}"] if inline else [*name, tail] for name, tail in zip(names, tails, strict=True)]
    needed = max(
        np.hypot(_width(line) * LETTER * FONT / 2, abs(k - (len(lines) - 1) / 2) * 13 + 5)
        for lines in names
        for k, line in enumerate(lines)
    )
    return names, max(16.0, round(float(needed)) + 3.0), FONT


def _wrapped(name: str, letters: int) -> list[str]:
    """A name on one line, or on two where it has a space or comma to break at, shortened where it must be.

    >>> _wrapped("first=0 last=1", 9), _wrapped("acknowledged", 9)
    (['first=0', 'last=1'], ['ackno\u2026ged'])
    """
    if _width(name) <= letters:
        return [name]
    breaks = [m.end() for m in re.finditer(r"[ ,;]", name)]
    halves = [[name[:b].strip(), name[b:].strip()] for b in breaks]
    fitting = [pair for pair in halves if all(pair) and max(map(_width, pair)) <= letters]
    return min(fitting, key=lambda pair: abs(len(pair[0]) - len(pair[1]))) if fitting else [_short(name, letters)]


def _short(name: str, letters: int) -> str:
    """The beginning and the end of a long name, which often is what tells it from others."""
    if _width(name) <= letters:
        return name
    tail = letters // 3
    while _width(name[-tail:]) > letters // 2:  # wide letters
        tail -= 1
    head = letters - 1 - tail
    while _width(name[:head] + name[-tail:]) >= letters and head > 1:
        head -= 1
    return f"{name[:head]}\u2026{name[-tail:]}"


def _width(text: str) -> float:
    """The width of a text in letters: Chinese, Japanese and Korean ones count twice."""
    return sum(2 if east_asian_width(letter) in "WF" else 1.4 if letter in WIDE else 1 for letter in text)


def _printable(text: str) -> str:
    """A text on one line, with the characters that XML forbids replaced."""
    return re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", " ".join(text.split()) or "\u2423")


def _safe(text: str) -> str:
    return escape(_printable(text))


# -- the page --------------------------------------------------------------------------------------------------------


def _node(machine: Machine, q: int, at: Floats, radius: float, lines: list[str], font: float) -> str:
    told = f"{machine.state_names[q]} (state {q}, output {machine.outputs[q]})"
    x, y = at
    text = ""
    for k, line in enumerate(lines):
        height = y + (k - (len(lines) - 1) / 2) * 13 + font * 0.35
        text += f'<text x="{x:.1f}" y="{height:.1f}">{_safe(line)}</text>'
    circle = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:.1f}" fill="{FILL}" stroke="{INK}" stroke-width="1.4"/>'
    return f'<g class="state" font-size="{font:g}"><title>{_safe(told)}</title>{circle}{text}</g>'


def _document(machine: Machine, title: str | None, canvas: _Canvas, styles: list[_Style], shapes: list[str]) -> str:
    rim = canvas.radius
    left, top = np.minimum(canvas.low, canvas.at.min(0) - rim) - 16
    right, bottom = np.maximum(canvas.high, canvas.at.max(0) + rim) + 16
    heading = _short(_printable(title), 100) if title else ""
    wide = max(right - left, 150.0, _width(heading) * LETTER * 15 + 24)
    left -= (wide - (right - left)) / 2
    legend, bottom = _legend(machine, styles, left, bottom, wide)
    if heading:
        top -= 30
        place = f'x="{left + wide / 2:.1f}" y="{top + 26:.1f}"'
        shapes = [f'<text {place} font-size="15" font-weight="600">{_safe(heading)}</text>', *shapes]
    tall = bottom - top
    size = f'width="{wide:.0f}" height="{tall:.0f}" viewBox="{left:.1f} {top:.1f} {wide:.1f} {tall:.1f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{_safe(title or repr(machine))}</title>",
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{PAPER}"/>',
            f'<g font-family="Helvetica, Arial, sans-serif" text-anchor="middle" fill="{INK}">',
            *shapes,
            *legend,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _legend(machine: Machine, styles: list[_Style], left: float, top: float, wide: float) -> tuple[list[str], float]:
    """A sample of each symbol's line with its name, in rows under the picture, and where they end."""
    names = [_short(_printable(name), 28) for name in machine.symbol_names]
    widths = [34 + _width(name) * LETTER * FONT + 16 for name in names]
    rows: list[list[int]] = [[]]
    for a, width in enumerate(widths):
        if rows[-1] and sum(widths[b] for b in rows[-1]) + width > wide - 24:
            rows.append([])
        rows[-1].append(a)
    out = []
    y = top + 6
    for row in rows:
        x = left + (wide - sum(widths[a] for a in row) + 16) / 2
        for a in row:
            sample = np.array([[x, y], [x + 13, y], [x + 26, y]])
            both = _undoes_itself(machine, a)
            line = _arrow(sample, machine.symbol_names[a], styles[a].colour, start=both, end=True)
            text = f'<text x="{x + 32:.1f}" y="{y + 4:.1f}" text-anchor="start">{_safe(names[a])}</text>'
            out.append(f'<g class="symbol" font-size="{FONT:g}"><g {styles[a].line}>{line}</g>{text}</g>')
            x += widths[a]
        y += 20
    return out, y
