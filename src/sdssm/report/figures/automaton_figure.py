"""The figure of automata: state diagrams, the extracted one beside the true one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sdssm.automata import Machine
from sdssm.automata.drawing import make_diagram
from sdssm.errors import SettingsError
from sdssm.report.figures.grids import EDGE, shorten_text
from sdssm.report.figures.paper_figure import PaperFigure
from sdssm.report.figures.state_diagram import FittedDiagram, draw_sample
from sdssm.report.layouts import LEAST_FONT, POINTS, TWO_COLUMNS, PlotLayout
from sdssm.report.pictures import new_figure, picture_look, text_width

#: Inches between two diagrams, between the entries of a legend, and from the start of a sample to its text.
GAP, LEGEND_GAP, SAMPLE = 0.2, 0.14, 0.25
#: The height of a line of the legend and of a heading, and the size of a sample, relative to the size of the letters.
LINE_HEIGHT, SAMPLE_SCALE = 1.7, 0.08
#: The most diagrams of a figure.
MOST_DIAGRAMS = 24


@dataclass(frozen=True, eq=False)
class NamedMachine:
    """A machine and the heading of its diagram.

    `is_copy` says that it equals the first machine of its row: it is drawn only if there is room beside that one.
    """

    heading: str
    machine: Machine
    is_copy: bool = False


@dataclass(frozen=True, eq=False)
class _Part:
    """A diagram with its heading and the rows of its legend: numbers of entries."""

    heading: str
    fitted: FittedDiagram
    rows: list[list[int]]

    def height(self, font: float) -> float:
        """Return the height in inches."""
        lines = len(self.rows) + bool(self.heading)
        return self.fitted.height * self.fitted.scale / POINTS + lines * font * LINE_HEIGHT / POINTS


def make_automaton_figure(rows: Sequence[Sequence[NamedMachine]], layout: PlotLayout) -> PaperFigure:
    """Draw the state diagrams of machines; those of one row are beside each other if the figure is wide enough.

    No letter is smaller than 7 pt. Names of states that do not fit into their circles are left out. If the labels of
    arrows would cover each other, an error says what to do.
    """
    count = sum(map(len, rows))
    if not 1 <= count <= MOST_DIAGRAMS:
        raise SettingsError(f"a figure has 1 to {MOST_DIAGRAMS} state diagrams, and this one {count}; pass fewer runs")
    with picture_look(layout.font):
        ruler = new_figure((layout.width, 1.0), layout.dpi)
        parts = [part for row in rows for part in _fit_row(ruler, row, layout)]
        heights = [max(part.height(layout.font) for part in line) for line in parts]
        total = sum(heights) + GAP * (len(heights) - 1) + 2 * EDGE
        figure = new_figure((layout.width, total), layout.dpi)
        top = total - EDGE
        for line, height in zip(parts, heights, strict=True):
            room = _room(layout, len(line))
            for k, part in enumerate(line):
                _draw(figure, part, EDGE + k * (room + GAP), top, room, layout)
            top -= height + GAP
    sentences = ["State diagrams." if count > 1 else "State diagram."]
    if not all(part.fitted.has_names for line in parts for part in line):
        sentences.append(f"Names of states that would be smaller than {LEAST_FONT:g} pt are left out.")
    return PaperFigure(figure, layout, " ".join(sentences))


def _room(layout: PlotLayout, beside: int) -> float:
    """Return the width of a diagram if there are so many beside each other."""
    return (layout.width - 2 * EDGE - GAP * (beside - 1)) / beside


def _fit_row(ruler: Any, row: Sequence[NamedMachine], layout: PlotLayout) -> list[list[_Part]]:
    """Return the diagrams of a row: beside each other if their labels can be read then, otherwise below each other.

    Below each other, copies are left out.
    """
    if len(row) > 1 and layout.width >= TWO_COLUMNS.width:
        line = [_fit(ruler, named, layout, len(row)) for named in row]
        if all(part.fitted.has_readable_labels for part in line):
            return [line]
    shown = [named for named in row if not named.is_copy]
    if len(shown) < len(row):
        copies = " and ".join(named.heading for named in row if named.is_copy)
        shown[0] = replace(shown[0], heading=f"{shown[0].heading}; {copies}")
    parts = [_fit(ruler, named, layout, 1) for named in shown]
    for named, part in zip(shown, parts, strict=True):
        if not part.fitted.has_readable_labels:
            has_more = layout.width < TWO_COLUMNS.width
            raise SettingsError(
                f"the labels of the state diagram {named.heading} would cover each other at {LEAST_FONT:g} pt; "
                + ("use --columns 2" if has_more else "sdssm tasks show TASK --svg FILE draws it at any size")
            )
    return [[part] for part in parts]


def _fit(ruler: Any, named: NamedMachine, layout: PlotLayout, beside: int) -> _Part:
    diagram, room = make_diagram(named.machine), _room(layout, beside)
    widths = [_entry_width(ruler, entry.text.text, layout) for entry in diagram.legend]
    rows: list[list[int]] = []
    for k, width in enumerate(widths):
        if not rows or sum(widths[other] + LEGEND_GAP for other in rows[-1]) + width > room:
            rows.append([])
        rows[-1].append(k)
    return _Part(named.heading, FittedDiagram.fit(diagram, room * POINTS, layout.font), rows)


def _entry_width(figure: Any, text: str, layout: PlotLayout) -> float:
    return SAMPLE * layout.font / LEAST_FONT + text_width(figure, [text], layout.font)


def _draw(figure: Any, part: _Part, left: float, top: float, room: float, layout: PlotLayout) -> None:
    """Draw heading, diagram and legend below each other, centred in the room."""
    inches, middle = figure.dpi_scale_trans, left + room / 2
    line = layout.font * LINE_HEIGHT / POINTS
    if part.heading:
        heading = shorten_text(figure, part.heading, room, layout.font)
        figure.text(middle, top - 0.02, heading, transform=inches, ha="center", va="top", size=layout.font)
        top -= line
    fitted = part.fitted
    width, height = (pixels * fitted.scale / POINTS for pixels in (fitted.diagram.width, fitted.height))
    total_width, total_height = figure.get_size_inches()
    box = (
        (middle - width / 2) / total_width,
        (top - height) / total_height,
        width / total_width,
        height / total_height,
    )
    fitted.draw(figure.add_axes(box))
    y = top - height - line / 2
    for row in part.rows:
        texts = [fitted.diagram.legend[k].text.text for k in row]
        widths = [_entry_width(figure, text, layout) for text in texts]
        x = middle - (sum(widths) + LEGEND_GAP * (len(widths) - 1)) / 2
        for k, text, entry_width in zip(row, texts, widths, strict=True):
            draw_sample(figure, fitted.diagram.legend[k], x, y, layout.font * SAMPLE_SCALE)
            start = x + entry_width - text_width(figure, [text], layout.font)
            figure.text(start, y, text, transform=inches, va="center_baseline", size=layout.font)
            x += entry_width + LEGEND_GAP
        y -= line
