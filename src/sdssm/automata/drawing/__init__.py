"""State diagrams: as SVG, and as shapes that other writers draw."""

from sdssm.automata.drawing.diagram import draw, make_diagram

__all__ = ["draw", "make_diagram"]
