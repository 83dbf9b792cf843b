"""What every figure of a paper must satisfy: readable letters, nothing cut off, no text on another."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from sdssm.report.figures import PaperFigure
from sdssm.report.layouts import LEAST_FONT
from sdssm.report.pictures import picture_look

#: Pixels by which the boxes of two texts may overlap: a box is slightly larger than its letters.
TOUCHING = 2.0


def shown_texts(drawn: PaperFigure) -> list[Text]:
    """Return the texts of a figure that are visible and not empty."""
    return [text for text in drawn.figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def assert_legible(drawn: PaperFigure) -> None:
    """Assert that letters have at least 7 pt, and that texts are inside the figure and apart from each other."""
    with picture_look(drawn.layout.font):
        canvas: Any = FigureCanvasAgg(drawn.figure)
        renderer = canvas.get_renderer()
        drawn.figure.draw(renderer)
        texts = [text for text in shown_texts(drawn) if is_drawn(text)]
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    sizes = [(text.get_text(), float(text.get_fontsize())) for text in texts]
    assert not [(text, size) for text, size in sizes if size < LEAST_FONT - 1e-6]
    width, height = drawn.figure.bbox.width, drawn.figure.bbox.height
    assert not [(text, box.bounds) for text, box in boxes if not is_inside(box, width, height)]
    assert not [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if do_overlap(one, other)]
    for axes in drawn.figure.axes:
        assert is_inside(axes.bbox, width, height)


def is_drawn(text: Text) -> bool:
    """Return whether a text is not that of axes that are hidden, or of a tick outside its axes."""
    axes = text.axes
    if axes is None:
        return True
    if not axes.axison and text in axes.findobj(Text) and text not in axes.texts:
        return False
    ticks = {label for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels(which="both")}
    return text not in ticks or bool(axes.axison)


def is_inside(box: Any, width: float, height: float) -> bool:
    """Return whether a box is inside a figure of this size, in pixels, up to one pixel."""
    return bool(box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1)


def do_overlap(one: Any, other: Any) -> bool:
    """Return whether two boxes have more in common than their rims."""
    return bool(
        min(one.x1, other.x1) - max(one.x0, other.x0) > TOUCHING
        and min(one.y1, other.y1) - max(one.y0, other.y0) > TOUCHING
    )
