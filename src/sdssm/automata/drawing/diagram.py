"""State diagrams as SVG text. No other program is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sdssm.automata.drawing.arrows import INK, draw_arrow, draw_edges, draw_loops, draw_start_arrow, is_involution
from sdssm.automata.drawing.canvas import Canvas
from sdssm.automata.drawing.general import Floats
from sdssm.automata.drawing.layout import lay_out
from sdssm.automata.drawing.wording import (
    FONT,
    LETTER,
    MOST_NAMED,
    Style,
    escape_text,
    printable,
    shorten,
    state_labels,
    symbol_styles,
    text_width,
)
from sdssm.errors import AutomatonError

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine


#: The most states and edges of a diagram.
MOST_STATES, MOST_EDGES = 200, 2_000
PAPER, FILL = "#ffffff", "#f6f8fa"


def draw(machine: Machine, *, title: str | None = None) -> str:
    """Return the state diagram of a machine as the text of an SVG file.

    Each symbol has a colour, which the legend names; an arrow without a source marks the start state. A symbol that
    undoes itself everywhere (an involution) is drawn as one line with arrowheads at both ends. States are labelled
    `name / output`, without the output if the output of every state is its number. Long names are shortened; the
    tooltips of states and edges show them in full.

    >>> from sdssm.automata.machine import Machine
    >>> text = draw(Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]), title="Parity")
    >>> text.startswith("<svg"), "even" in text
    (True, True)
    """
    if machine.n_states > MOST_STATES:
        raise AutomatonError(
            f"a diagram shows at most {MOST_STATES} states and this machine has {machine.n_states:,}; "
            "draw machine.minimise(), or a smaller machine of the same family"
        )
    if machine.table.size > MOST_EDGES:
        raise AutomatonError(
            f"a diagram shows at most {MOST_EDGES:,} edges and this machine has {machine.table.size:,}; "
            "draw a machine with fewer symbols"
        )
    labels, radius, font = state_labels(machine)
    room = 46.0 + 5 * min(max(machine.n_symbols - 2, 0), 8) if machine.n_states <= MOST_NAMED else 28.0
    layout = lay_out(machine.table, machine.start)
    positions = layout.positions * (2 * radius + room)
    canvas = Canvas(positions, radius, regular=layout.kind in ("ring", "two rings", "cycles"))
    styles = symbol_styles(machine.n_symbols)
    lines = [
        *draw_edges(machine, canvas, styles),
        *draw_loops(machine, canvas, styles),
        draw_start_arrow(machine, canvas),
    ]
    nodes = [_draw_state(machine, q, positions[q], radius, labels[q], font) for q in range(machine.n_states)]
    return _document(machine, title, canvas, styles, [*lines, *nodes])


def _draw_state(machine: Machine, q: int, position: Floats, radius: float, lines: list[str], font: float) -> str:
    tooltip = f"{machine.state_names[q]} (state {q}, output {machine.outputs[q]})"
    x, y = position
    text = ""
    for k, line in enumerate(lines):
        baseline = y + (k - (len(lines) - 1) / 2) * 13 + font * 0.35
        text += f'<text x="{x:.1f}" y="{baseline:.1f}">{escape_text(line)}</text>'
    circle = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:.1f}" fill="{FILL}" stroke="{INK}" stroke-width="1.4"/>'
    return f'<g class="state" font-size="{font:g}"><title>{escape_text(tooltip)}</title>{circle}{text}</g>'


def _document(machine: Machine, title: str | None, canvas: Canvas, styles: list[Style], shapes: list[str]) -> str:
    rim = canvas.radius
    left, top = np.minimum(canvas.low, canvas.at.min(0) - rim) - 16
    right, bottom = np.maximum(canvas.high, canvas.at.max(0) + rim) + 16
    heading = shorten(printable(title), 100) if title else ""
    width = max(right - left, 150.0, text_width(heading) * LETTER * 15 + 24)
    left -= (width - (right - left)) / 2
    legend, bottom = _draw_legend(machine, styles, left, bottom, width)
    if heading:
        top -= 30
        position = f'x="{left + width / 2:.1f}" y="{top + 26:.1f}"'
        shapes = [f'<text {position} font-size="15" font-weight="600">{escape_text(heading)}</text>', *shapes]
    height = bottom - top
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape_text(title or repr(machine))}</title>",
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{PAPER}"/>',
            f'<g font-family="Helvetica, Arial, sans-serif" text-anchor="middle" fill="{INK}">',
            *shapes,
            *legend,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _draw_legend(
    machine: Machine, styles: list[Style], left: float, top: float, width: float
) -> tuple[list[str], float]:
    """Draw the legend, a sample line and the name of each symbol, and return it with its lower end."""
    names = [shorten(printable(name), 28) for name in machine.symbol_names]
    widths = [34 + text_width(name) * LETTER * FONT + 16 for name in names]
    rows: list[list[int]] = [[]]
    for a, entry_width in enumerate(widths):
        if rows[-1] and sum(widths[b] for b in rows[-1]) + entry_width > width - 24:
            rows.append([])
        rows[-1].append(a)
    entries = []
    y = top + 6
    for row in rows:
        x = left + (width - sum(widths[a] for a in row) + 16) / 2
        for a in row:
            sample = np.array([[x, y], [x + 13, y], [x + 26, y]])
            line = draw_arrow(
                sample, machine.symbol_names[a], styles[a].colour, start=is_involution(machine, a), end=True
            )
            text = f'<text x="{x + 32:.1f}" y="{y + 4:.1f}" text-anchor="start">{escape_text(names[a])}</text>'
            entries.append(f'<g class="symbol" font-size="{FONT:g}"><g {styles[a].line}>{line}</g>{text}</g>')
            x += widths[a]
        y += 20
    return entries, y
