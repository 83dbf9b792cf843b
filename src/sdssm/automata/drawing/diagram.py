"""State diagrams: where the shapes of a machine are. No other program is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sdssm.automata.drawing.arrows import LABELLED, ArrowPainter, least_distance, make_arrow
from sdssm.automata.drawing.canvas import Canvas
from sdssm.automata.drawing.layout import Layout, lay_out
from sdssm.automata.drawing.merging import Arrow, is_involution, merge_transitions
from sdssm.automata.drawing.shapes import Diagram, LegendShape, StateShape, TextLine
from sdssm.automata.drawing.svg import diagram_to_svg
from sdssm.automata.drawing.wording import (
    FONT,
    HEADING_FONT,
    LETTER,
    MOST_NAMED,
    RIM,
    Style,
    printable,
    shorten,
    state_labels,
    symbol_styles,
    text_width,
)
from sdssm.automata.refinement import Floats
from sdssm.automata.sources import as_machine
from sdssm.errors import AutomatonError

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine


#: The most states and arrows of a diagram.
MOST_STATES_DRAWN, MOST_ARROWS = 200, 2_000
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

    Scripts and styles of a page find the parts by attributes: `data-state="q"` on a state; `data-source`, `data-target`
    and `data-symbols="0 2"` (numbers of symbols) on an arrow and on its label, with `data-both` if the same symbols
    lead back; `data-start="q"` on the arrow that marks the start state; `data-symbol` on a line of the legend. The
    classes are automaton, paper, heading, state, arrow (and coloured, if it has the colour of its symbol), head, label,
    start and symbol.

    >>> from sdssm.automata.machine import Machine
    >>> text = draw(Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]), title="Parity")
    >>> text.startswith("<svg"), "even" in text
    (True, True)
    """
    return diagram_to_svg(make_diagram(machine, title=title))


def make_diagram(machine: Any, *, title: str | None = None) -> Diagram:
    """Return the shapes of the state diagram of a machine, which `draw` describes.

    >>> from sdssm.automata.machine import Machine
    >>> diagram = make_diagram(Machine(table=[[0, 1], [1, 0]]))
    >>> len(diagram.states), [arrow.arrow.symbols for arrow in diagram.arrows]
    (2, [(1,), (0,), (0,)])
    """
    machine = as_machine(machine)
    if machine.n_states > MOST_STATES_DRAWN:
        raise AutomatonError(
            f"a diagram shows at most {MOST_STATES_DRAWN} states and this machine has {machine.n_states:,}; "
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
    states = tuple(_place_state(machine, q, positions[q], radius, labels[q], font) for q in range(machine.n_states))
    coloured = [] if is_labelled else sorted({arrow.symbols[0] for arrow in arrows if len(arrow.symbols) == 1})
    legend = [
        LegendEntry(machine.symbol_names[a], styles[a], is_both=is_involution(machine, a), symbol=a) for a in coloured
    ]
    if legend and any(len(arrow.symbols) > 1 for arrow in arrows):
        legend.append(LegendEntry("several symbols, as labelled", LABELLED, is_both=False))

    left, top = np.minimum(canvas.low, positions.min(0) - radius) - 16
    right, bottom = np.maximum(canvas.high, positions.max(0) + radius) + 16
    heading = shorten(printable(title), 100) if title else ""
    width = max(right - left, 150.0, text_width(heading) * BOLD_LETTER * HEADING_FONT + 32)
    left -= (width - (right - left)) / 2
    entries, bottom = _place_legend(legend, left, bottom, width)
    top -= 30 if heading else 0
    return Diagram(
        left=float(left),
        top=float(top),
        width=float(width),
        height=float(bottom - top),
        name=title or repr(machine),
        heading=TextLine(float(left + width / 2), float(top + 26), heading) if heading else None,
        arrows=painter.arrows,
        labels=tuple(painter.labels),
        start=marker,
        start_state=machine.start,
        states=states,
        legend=entries,
    )


class LegendEntry(NamedTuple):
    """A line of the legend: a sample arrow and its meaning."""

    name: str
    style: Style
    is_both: bool
    symbol: int | None = None  #: None: several symbols


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


def _place_state(
    machine: Machine, q: int, position: Floats, radius: float, names: list[str], font: float
) -> StateShape:
    x, y = (float(value) for value in position)
    middle = (len(names) - 1) / 2
    return StateShape(
        number=q,
        x=x,
        y=y,
        radius=radius,
        inner=radius - RIM if machine.is_acceptor and machine.outputs[q] == 1 else None,
        lines=tuple(TextLine(x, y + (k - middle) * 13 + font * 0.35, name) for k, name in enumerate(names)),
        font=font,
        tooltip=f"{machine.state_names[q]} (state {q}, output {machine.outputs[q]})",
    )


def _place_legend(
    legend: list[LegendEntry], left: float, top: float, width: float
) -> tuple[tuple[LegendShape, ...], float]:
    """Place the legend, a sample line and a name for each entry, and return it with its lower end."""
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
            corners = np.array([[x, y], [x + 13, y], [x + 26, y]])
            sample = make_arrow(corners, entry.name, entry.style, start=entry.is_both, end=True)
            shapes.append(LegendShape(sample, TextLine(x + 32, y + 4, names[k]), FONT, entry.symbol))
            x += widths[k]
        y += 20
    return tuple(shapes), y
