"""A state diagram as the text of an SVG file."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from xml.sax.saxutils import escape

from sdssm.automata.drawing.merging import Arrow
from sdssm.automata.drawing.shapes import ArrowShape, Diagram, LabelShape, LegendShape, StateShape, TextLine
from sdssm.automata.drawing.wording import HEADING_FONT, PAPER, STATE_FILL, STATE_LINE, Style, printable
from sdssm.palette import FONT_FAMILY, LINE_COLOUR, TEXT_COLOUR


def diagram_to_svg(diagram: Diagram) -> str:
    """Return a state diagram as SVG, with the classes and attributes that `draw` describes."""
    left, top, width, height = (f"{x:.1f}" for x in (diagram.left, diagram.top, diagram.width, diagram.height))
    size = f'width="{diagram.width:.0f}" height="{diagram.height:.0f}" viewBox="{left} {top} {width} {height}"'
    heading = []
    if diagram.heading is not None:
        heading = [_text(diagram.heading, f' class="heading" font-size="{HEADING_FONT:g}" font-weight="600"')]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="automaton" {size} role="img">',
        f"<title>{escape_text(diagram.name)}</title>",
        f'<rect class="paper" x="{left}" y="{top}" width="{width}" height="{height}" fill="{PAPER}"/>',
        f'<g font-family="{FONT_FAMILY}" text-anchor="middle" fill="{TEXT_COLOUR}">',
        *heading,
        *(
            f"<g {_line_attributes(style)}>{''.join(map(_arrow, shapes))}</g>"
            for style, shapes in groupby(diagram.arrows, key=lambda shape: shape.style)
        ),
        *map(_label, diagram.labels),
        f'<g class="start" data-start="{diagram.start_state}" {_line_attributes(diagram.start.style)}>'
        f"{_arrow(diagram.start)}</g>",
        *map(_state, diagram.states),
        *map(_legend_entry, diagram.legend),
        "</g>",
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def escape_text(text: str) -> str:
    """Return a text for use in SVG.

    >>> escape_text("a < b")
    'a &lt; b'
    """
    return escape(printable(text))


def _line_attributes(style: Style) -> str:
    dashes = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    return f'stroke="{style.colour}" fill="none" stroke-width="{style.width:g}"{dashes}'


def _arrow(shape: ArrowShape) -> str:
    if shape.is_curve:
        a, b, c = map(_xy, shape.line)
        line = f"{a}Q{b} {c}"
    else:
        line = "L".join(map(_xy, shape.line))
    heads = "".join(f'<path d="M{"L".join(map(_xy, head))}Z"/>' for head in shape.heads)
    kind = "arrow coloured" if shape.is_coloured else "arrow"
    data = "" if shape.arrow is None else f" {_data(shape.arrow)}"
    return (
        f'<g class="{kind}"{data}><title>{escape_text(shape.tooltip)}</title>'
        f'<path d="M{line}"/><g class="head" fill="{shape.style.colour}" stroke="none">{heads}</g></g>'
    )


def _data(arrow: Arrow) -> str:
    """Return the attributes that say which transitions an arrow stands for."""
    symbols = " ".join(map(str, arrow.symbols))
    both = ' data-both=""' if arrow.both else ""
    return f'data-source="{arrow.source}" data-target="{arrow.target}" data-symbols="{symbols}"{both}'


def _label(shape: LabelShape) -> str:
    box = f'x="{shape.left:.1f}" y="{shape.top:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
    return (
        f'<g class="label" {_data(shape.arrow)} font-size="{shape.font:g}">'
        f"<title>{escape_text(shape.tooltip)}</title>"
        f'<rect class="paper" {box} rx="3" fill="{PAPER}"/>{"".join(map(_text, shape.lines))}</g>'
    )


def _state(shape: StateShape) -> str:
    circles = _circle(shape, shape.radius, STATE_FILL)
    if shape.inner is not None:
        circles += _circle(shape, shape.inner, "none")
    return (
        f'<g class="state" data-state="{shape.number}" font-size="{shape.font:g}">'
        f"<title>{escape_text(shape.tooltip)}</title>{circles}{''.join(map(_text, shape.lines))}</g>"
    )


def _circle(shape: StateShape, radius: float, fill: str) -> str:
    line = f'stroke="{LINE_COLOUR}" stroke-width="{STATE_LINE:g}"'
    return f'<circle cx="{shape.x:.2f}" cy="{shape.y:.2f}" r="{radius:.1f}" fill="{fill}" {line}/>'


def _legend_entry(shape: LegendShape) -> str:
    sample = f"<g {_line_attributes(shape.sample.style)}>{_arrow(shape.sample)}</g>"
    text = _text(shape.text, ' text-anchor="start"')
    data = "" if shape.symbol is None else f' data-symbol="{shape.symbol}"'
    return f'<g class="symbol"{data} font-size="{shape.font:g}">{sample}{text}</g>'


def _text(line: TextLine, attributes: str = "") -> str:
    return f'<text{attributes} x="{line.x:.1f}" y="{line.y:.1f}">{escape_text(line.text)}</text>'


def _xy(point: Iterable[float]) -> str:
    return " ".join(f"{x:.1f}" for x in point)
