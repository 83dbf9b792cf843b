"""State diagrams as SVG text. No other program is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sdssm.automata.drawing.arrows import LABELLED, PAPER, ArrowPainter, draw_arrow, least_distance
from sdssm.automata.drawing.canvas import Canvas
from sdssm.automata.drawing.general import Floats
from sdssm.automata.drawing.layout import Layout, lay_out
from sdssm.automata.drawing.merging import Arrow, is_involution, merge_transitions
from sdssm.automata.drawing.wording import (
    FONT,
    LETTER,
    MOST_NAMED,
    RIM,
    Style,
    escape_text,
    printable,
    shorten,
    state_labels,
    symbol_styles,
    text_width,
)
from sdssm.automata.sources import as_machine
from sdssm.errors import AutomatonError
from sdssm.palette import FONT_FAMILY, LINE_COLOUR, TEXT_COLOUR

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine


#: The most states and arrows of a diagram.
MOST_STATES, MOST_ARROWS = 200, 2_000
FILL = "#f6f8fa"
#: The width of a letter of the title, which is bold, relative to the font size.
BOLD_LETTER = 0.7


def draw(machine: Any, *, title: str | None = None) -> str:
    """Return the state diagram of a machine as the text of an SVG file.

    Symbols that lead from the same state to the same state are one arrow, labelled as in `a-g, i-z`. In acceptors, and
    where many symbols act alike, all arrows are labelled; otherwise each symbol has a colour, which the legend names.
    An arrow without a source marks the start state. A symbol that undoes itself everywhere (an involution) is drawn as
    one line with arrowheads at both ends. A machine with outputs 0 and 1 is an acceptor: states with output 1 have
    double circles. Other states are labelled `name / output`, without the output if the output of every state is its
    number. Long texts are shortened; the tooltips of states and arrows show them in full.

    >>> from sdssm.automata.machine import Machine
    >>> text = draw(Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]), title="Parity")
    >>> text.startswith("<svg"), "even" in text
    (True, True)
    """
    machine = as_machine(machine)
    if machine.n_states > MOST_STATES:
        raise AutomatonError(
            f"a diagram shows at most {MOST_STATES} states and this machine has {machine.n_states:,}; "
            "draw the minimal machine (minimise), or a smaller one of the same family"
        )
    arrows, is_labelled = merge_transitions(machine)
    if len(arrows) > MOST_ARROWS:
        raise AutomatonError(
            f"a diagram shows at most {MOST_ARROWS:,} arrows and this machine has {len(arrows):,}; "
            "draw a machine with fewer symbols"
        )
    labels, radius, font = state_labels(machine)
    layout = lay_out(machine.table, machine.start)
    styles = symbol_styles(machine.n_symbols)
    positions = layout.positions * _scale(machine, layout, arrows, radius, is_labelled=is_labelled)
    canvas = Canvas(positions, radius, regular=layout.kind in ("ring", "two rings", "cycles"))
    painter = ArrowPainter(machine, canvas, styles, is_labelled=is_labelled)
    painter.draw_edges(arrows, layout.bends)
    if canvas.is_leftmost(machine.start):  # then the start arrow comes from the left, and loops avoid it
        marker = painter.draw_start_arrow()
        painter.draw_loops(arrows)
    else:
        painter.draw_loops(arrows)
        marker = painter.draw_start_arrow()
    painter.draw_edge_labels()
    nodes = [_draw_state(machine, q, positions[q], radius, labels[q], font) for q in range(machine.n_states)]
    coloured = [] if is_labelled else sorted({arrow.symbols[0] for arrow in arrows if len(arrow.symbols) == 1})
    legend = [LegendEntry(machine.symbol_names[a], styles[a], is_both=is_involution(machine, a)) for a in coloured]
    if legend and any(len(arrow.symbols) > 1 for arrow in arrows):
        legend.append(LegendEntry("several symbols, as labelled", LABELLED, is_both=False))
    shapes = [*painter.lines, *painter.labels, marker, *nodes]
    return _document(machine, title, canvas, legend, shapes)


class LegendEntry(NamedTuple):
    """A line of the legend: a sample arrow and its meaning."""

    name: str
    style: Style
    is_both: bool


def _scale(machine: Machine, layout: Layout, arrows: list[Arrow], radius: float, *, is_labelled: bool) -> float:
    """Return the distance of states at distance 1 in the layout, in pixels: arrows and their labels need room."""
    room = 46.0 if machine.n_states <= MOST_NAMED else 28.0
    if machine.n_states <= MOST_NAMED:
        room += 16.0 if is_labelled else 5.0 * min(max(machine.n_symbols - 2, 0), 8)
    scale = 2 * radius + room
    painter = ArrowPainter(machine, Canvas(layout.positions, radius, regular=True), [], is_labelled=is_labelled)
    for arrow in arrows:
        if arrow.source != arrow.target:
            along = layout.positions[arrow.target] - layout.positions[arrow.source]
            distance = float(np.hypot(*along))
            needed = 2 * radius + least_distance(painter.find_label(arrow), along / distance)
            scale = max(scale, needed / distance)
    return scale


def _draw_state(machine: Machine, q: int, position: Floats, radius: float, lines: list[str], font: float) -> str:
    tooltip = f"{machine.state_names[q]} (state {q}, output {machine.outputs[q]})"
    x, y = position
    text = ""
    for k, line in enumerate(lines):
        baseline = y + (k - (len(lines) - 1) / 2) * 13 + font * 0.35
        text += f'<text x="{x:.1f}" y="{baseline:.1f}">{escape_text(line)}</text>'
    circles = _circle(position, radius, FILL)
    if machine.is_acceptor and machine.outputs[q] == 1:
        circles += _circle(position, radius - RIM, "none")
    return f'<g class="state" font-size="{font:g}"><title>{escape_text(tooltip)}</title>{circles}{text}</g>'


def _circle(position: Floats, radius: float, fill: str) -> str:
    x, y = position
    line = f'stroke="{LINE_COLOUR}" stroke-width="1.4"'
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:.1f}" fill="{fill}" {line}/>'


def _document(
    machine: Machine, title: str | None, canvas: Canvas, entries: list[LegendEntry], shapes: list[str]
) -> str:
    rim = canvas.radius
    left, top = np.minimum(canvas.low, canvas.at.min(0) - rim) - 16
    right, bottom = np.maximum(canvas.high, canvas.at.max(0) + rim) + 16
    heading = shorten(printable(title), 100) if title else ""
    width = max(right - left, 150.0, text_width(heading) * BOLD_LETTER * 15 + 32)
    left -= (width - (right - left)) / 2
    legend, bottom = _draw_legend(entries, left, bottom, width)
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
            f'<g font-family="{FONT_FAMILY}" text-anchor="middle" fill="{TEXT_COLOUR}">',
            *shapes,
            *legend,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _draw_legend(legend: list[LegendEntry], left: float, top: float, width: float) -> tuple[list[str], float]:
    """Draw the legend, a sample line and a name for each entry, and return it with its lower end."""
    names = [shorten(printable(entry.name), 28) for entry in legend]
    widths = [34 + text_width(name) * LETTER * FONT + 16 for name in names]
    rows: list[list[int]] = [[]] if legend else []
    for k, entry_width in enumerate(widths):
        if rows[-1] and sum(widths[other] for other in rows[-1]) + entry_width > width - 24:
            rows.append([])
        rows[-1].append(k)
    shapes = []
    y = top + 6
    for row in rows:
        x = left + (width - sum(widths[k] for k in row) + 16) / 2
        for k in row:
            entry = legend[k]
            sample = np.array([[x, y], [x + 13, y], [x + 26, y]])
            line = draw_arrow(sample, entry.name, entry.style.colour, start=entry.is_both, end=True)
            text = f'<text x="{x + 32:.1f}" y="{y + 4:.1f}" text-anchor="start">{escape_text(names[k])}</text>'
            shapes.append(f'<g class="symbol" font-size="{FONT:g}"><g {entry.style.line}>{line}</g>{text}</g>')
            x += widths[k]
        y += 20
    return shapes, y
