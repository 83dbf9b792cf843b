"""The sizes of pictures: on a screen, and in one or two columns of a paper."""

from __future__ import annotations

from dataclasses import dataclass

from sdssm.errors import SettingsError

#: The smallest letters of a figure in a paper, in points.
LEAST_FONT = 7.0
#: Points of an inch.
POINTS = 72


@dataclass(frozen=True, kw_only=True)
class PlotLayout:
    """Sizes of a plot of curves: inches, and points for letters and lines.

    Attributes:
        width: of the figure.
        left, bottom: margins of the panels, with their tick labels and names.
        gap: between two panels.
        accuracy, error: the height of a panel, by what it shows.
        has_title: whether a title and a note stand above the panels; in a paper the caption says it.
        font, small, remark: letters of labels and ticks, of the note above, and of remarks inside the panel.
        line: width of a curve.
        marker: size of a marker.
        text_line: height of a line of a label.
        sample: length of the sample of a curve beside its name.
        wrap: characters in a line of a label.
        dpi: of a PNG.
    """

    width: float
    left: float
    bottom: float
    gap: float
    accuracy: float
    error: float
    has_title: bool
    font: float
    small: float
    remark: float
    line: float
    marker: float
    text_line: float
    sample: float
    wrap: int
    dpi: int

    @property
    def bend(self) -> float:
        """How far from the panel the thin line to a label ends."""
        return 0.12

    @property
    def text_start(self) -> float:
        """How far from the panel the name of a curve starts."""
        return self.bend + 0.04 + self.sample + 0.05


SCREEN = PlotLayout(
    width=6.8,
    left=0.68,
    bottom=0.55,
    gap=0.2,
    accuracy=2.9,
    error=2.2,
    has_title=True,
    font=9.5,
    small=8.5,
    remark=7.5,
    line=1.8,
    marker=4.5,
    text_line=0.165,
    sample=0.26,
    wrap=22,
    dpi=150,
)
TWO_COLUMNS = PlotLayout(
    width=7.0,
    left=0.52,
    bottom=0.44,
    gap=0.16,
    accuracy=2.2,
    error=1.7,
    has_title=False,
    font=8.0,
    small=7.5,
    remark=7.0,
    line=1.5,
    marker=3.5,
    text_line=0.14,
    sample=0.24,
    wrap=22,
    dpi=300,
)
ONE_COLUMN = PlotLayout(
    width=3.3,
    left=0.47,
    bottom=0.4,
    gap=0.14,
    accuracy=1.65,
    error=1.3,
    has_title=False,
    font=7.0,
    small=7.0,
    remark=7.0,
    line=1.2,
    marker=2.5,
    text_line=0.122,
    sample=0.15,
    wrap=13,
    dpi=300,
)
#: The layouts of figures in a paper, by columns.
COLUMNS = {1: ONE_COLUMN, 2: TWO_COLUMNS}


def column_layout(columns: int) -> PlotLayout:
    """Return the layout of a figure that is one or two columns wide."""
    if columns not in COLUMNS:
        raise SettingsError(f"columns must be 1 or 2, got {columns!r}; 1 is {ONE_COLUMN.width} in wide, 2 is 7 in")
    return COLUMNS[columns]
