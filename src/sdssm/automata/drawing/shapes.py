"""The shapes of a state diagram: what every writer of diagrams draws, in pixels, with y downwards."""

from __future__ import annotations

from dataclasses import dataclass

from sdssm.automata.drawing.merging import Arrow
from sdssm.automata.drawing.wording import Style
from sdssm.automata.refinement import Floats


@dataclass(frozen=True, eq=False)
class ArrowShape:
    """A line with arrowheads.

    `line` has the three control points of a quadratic Bezier curve, or more points that are joined by straight lines.
    Each of `heads` is a filled triangle (3, 2), tip first.
    """

    line: Floats
    heads: tuple[Floats, ...]
    style: Style
    tooltip: str
    is_coloured: bool = False  #: whether its colour is that of its symbol
    arrow: Arrow | None = None  #: the transitions that it stands for; None: the start arrow, or a sample in the legend

    @property
    def is_curve(self) -> bool:
        """Whether `line` has the control points of a curve."""
        return len(self.line) == 3


@dataclass(frozen=True, eq=False)
class TextLine:
    """A line of text: its baseline starts at `x`, or is centred there, as the shape that contains it says."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, eq=False)
class LabelShape:
    """The symbols of an arrow, on a box that covers the lines behind it."""

    left: float
    top: float
    width: float
    height: float
    lines: tuple[TextLine, ...]  #: centred
    font: float  #: the size of the letters
    tooltip: str
    arrow: Arrow


@dataclass(frozen=True, eq=False)
class StateShape:
    """The circle of a state; `inner` is the radius of the second circle of an accepting state."""

    number: int
    x: float
    y: float
    radius: float
    inner: float | None
    lines: tuple[TextLine, ...]  #: centred
    font: float
    tooltip: str


@dataclass(frozen=True, eq=False)
class LegendShape:
    """A sample arrow, and beside it what it stands for."""

    sample: ArrowShape
    text: TextLine  #: starts at its x
    font: float
    symbol: int | None  #: None: several symbols


@dataclass(frozen=True, eq=False)
class Diagram:
    """A state diagram: its frame, and its shapes in the order in which they are drawn."""

    left: float
    top: float
    width: float
    height: float
    name: str  #: for programs that read the picture aloud
    heading: TextLine | None  #: centred
    arrows: tuple[ArrowShape, ...]
    labels: tuple[LabelShape, ...]
    start: ArrowShape
    start_state: int
    states: tuple[StateShape, ...]
    legend: tuple[LegendShape, ...]
