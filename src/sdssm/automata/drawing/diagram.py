"""State diagrams as SVG text, drawn here from the first line to the last: no program is needed to make one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sdssm.automata.drawing.arrows import INK, arrow, edges, loops, start_arrow, undoes_itself
from sdssm.automata.drawing.canvas import Canvas
from sdssm.automata.drawing.general import Floats
from sdssm.automata.drawing.layout import layout
from sdssm.automata.drawing.wording import (
    FONT,
    LETTER,
    NAMED,
    Style,
    printable,
    safe,
    short,
    state_labels,
    symbol_styles,
    text_width,
)
from sdssm.errors import AutomatonError

if TYPE_CHECKING:  # only named in signatures: nothing of a machine is made here
    from sdssm.automata.machine import Machine


#: More states, or more edges, than this are refused.
DRAWN, EDGES = 200, 2_000
PAPER, FILL = "#ffffff", "#f6f8fa"


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
            f"a diagram shows at most {DRAWN} states and this machine has {machine.n_states:,}; "
            "draw machine.minimise(), or a smaller machine of the same family"
        )
    if machine.table.size > EDGES:
        raise AutomatonError(
            f"a diagram shows at most {EDGES:,} edges and this machine has {machine.table.size:,}; "
            "draw a machine with fewer symbols"
        )
    labels, radius, font = state_labels(machine)
    room = 46.0 + 5 * min(max(machine.n_symbols - 2, 0), 8) if machine.n_states <= NAMED else 28.0
    found = layout(machine.table, machine.start)
    at = found.positions * (2 * radius + room)
    canvas = Canvas(at, radius, regular=found.kind in ("ring", "two rings", "cycles"))
    styles = symbol_styles(machine.n_symbols)
    lines = [*edges(machine, canvas, styles), *loops(machine, canvas, styles), start_arrow(machine, canvas)]
    nodes = [_node(machine, q, at[q], radius, labels[q], font) for q in range(machine.n_states)]
    return _document(machine, title, canvas, styles, [*lines, *nodes])


def _node(machine: Machine, q: int, at: Floats, radius: float, lines: list[str], font: float) -> str:
    told = f"{machine.state_names[q]} (state {q}, output {machine.outputs[q]})"
    x, y = at
    text = ""
    for k, line in enumerate(lines):
        height = y + (k - (len(lines) - 1) / 2) * 13 + font * 0.35
        text += f'<text x="{x:.1f}" y="{height:.1f}">{safe(line)}</text>'
    circle = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:.1f}" fill="{FILL}" stroke="{INK}" stroke-width="1.4"/>'
    return f'<g class="state" font-size="{font:g}"><title>{safe(told)}</title>{circle}{text}</g>'


def _document(machine: Machine, title: str | None, canvas: Canvas, styles: list[Style], shapes: list[str]) -> str:
    rim = canvas.radius
    left, top = np.minimum(canvas.low, canvas.at.min(0) - rim) - 16
    right, bottom = np.maximum(canvas.high, canvas.at.max(0) + rim) + 16
    heading = short(printable(title), 100) if title else ""
    wide = max(right - left, 150.0, text_width(heading) * LETTER * 15 + 24)
    left -= (wide - (right - left)) / 2
    legend, bottom = _legend(machine, styles, left, bottom, wide)
    if heading:
        top -= 30
        place = f'x="{left + wide / 2:.1f}" y="{top + 26:.1f}"'
        shapes = [f'<text {place} font-size="15" font-weight="600">{safe(heading)}</text>', *shapes]
    tall = bottom - top
    size = f'width="{wide:.0f}" height="{tall:.0f}" viewBox="{left:.1f} {top:.1f} {wide:.1f} {tall:.1f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{safe(title or repr(machine))}</title>",
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{PAPER}"/>',
            f'<g font-family="Helvetica, Arial, sans-serif" text-anchor="middle" fill="{INK}">',
            *shapes,
            *legend,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _legend(machine: Machine, styles: list[Style], left: float, top: float, wide: float) -> tuple[list[str], float]:
    """A sample of each symbol's line with its name, in rows under the picture, and where they end."""
    names = [short(printable(name), 28) for name in machine.symbol_names]
    widths = [34 + text_width(name) * LETTER * FONT + 16 for name in names]
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
            both = undoes_itself(machine, a)
            line = arrow(sample, machine.symbol_names[a], styles[a].colour, start=both, end=True)
            text = f'<text x="{x + 32:.1f}" y="{y + 4:.1f}" text-anchor="start">{safe(names[a])}</text>'
            out.append(f'<g class="symbol" font-size="{FONT:g}"><g {styles[a].line}>{line}</g>{text}</g>')
            x += widths[a]
        y += 20
    return out, y
