"""Pictures of matplotlib: their look, and the files that they are written into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError
from sdssm.extras import import_extra
from sdssm.files import check_output_folder, format_path, write_output
from sdssm.palette import FONT_FAMILY, LINE_COLOUR, TEXT_COLOUR
from sdssm.report.layouts import SCREEN

#: What the suffix of a file may be, and what is written into it about its origin: nothing that changes with time, so
#: that the same curves give the same bytes.
METADATA: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = tuple(METADATA)
PURPOSE = "a plot"


def check_plot(path: Path) -> None:
    """Raise `OutputError` if a plot cannot be drawn or written as this file."""
    if path.suffix.lower() not in FORMATS:
        ending = path.suffix or "nothing"
        choices = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise OutputError(f"{format_path(path)} ends in {ending!r}; plots are written as {choices}")
    check_output_folder(path)
    _figure_class()


def new_figure(size: tuple[float, float], dpi: int = SCREEN.dpi) -> Any:
    """Return an empty figure of matplotlib, of this width and height in inches."""
    return _figure_class()(figsize=size, dpi=dpi)


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF; call it inside `picture_look`."""
    kind = path.suffix.lower()
    out = BytesIO()
    figure.savefig(out, format=kind[1:], dpi=figure.dpi, metadata=METADATA[kind])
    data = out.getvalue()
    if kind == ".svg":  # matplotlib writes only the font that it measured, and a browser may not have it
        first = FONT_FAMILY.partition(",")[0]
        data = data.replace(f"'{first}'".encode(), f"'{first}'{FONT_FAMILY.removeprefix(first)}".encode())
    write_output(path, data)


def text_width(figure: Any, texts: Iterable[str], font: float) -> float:
    """Return the width in inches of the widest of some texts, in letters of this size."""
    canvas = import_extra("matplotlib.backends.backend_agg", PURPOSE).FigureCanvasAgg(figure)
    widest = 0.0
    for text in texts:
        artist = figure.text(0, 0, text, size=font)
        widest = max(widest, artist.get_window_extent(canvas.get_renderer()).width / figure.dpi)
        artist.remove()
    return widest


def _figure_class() -> Any:
    """Return matplotlib's Figure, which draws without a display and without the global state of pyplot."""
    return import_extra("matplotlib.figure", PURPOSE).Figure


def picture_look(font: float = SCREEN.font) -> AbstractContextManager[Any]:
    """Return a context in which matplotlib has the look of all our pictures, whatever the user's settings are.

    `font` is the size of letters in points.
    """
    settings = {
        "font.family": [FONT_FAMILY.partition(",")[0]],  # matplotlib brings it along; it warns about missing ones
        "font.size": font,
        "xtick.labelsize": font,
        "ytick.labelsize": font,
        "text.color": TEXT_COLOUR,
        "text.parse_math": False,  # names with dollar signs are shown as they are
        "axes.edgecolor": LINE_COLOUR,
        "axes.labelcolor": TEXT_COLOUR,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": LINE_COLOUR,
        "ytick.color": LINE_COLOUR,
        "xtick.labelcolor": TEXT_COLOUR,
        "ytick.labelcolor": TEXT_COLOUR,
        "svg.fonttype": "none",  # text that can be searched and selected
        "svg.hashsalt": "sdssm",  # the same identifiers every time
        "pdf.fonttype": 42,
    }
    style = import_extra("matplotlib.style", PURPOSE)
    context: AbstractContextManager[Any] = style.context(["default", settings])
    return context
