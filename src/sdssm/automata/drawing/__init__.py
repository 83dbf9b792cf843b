"""State diagrams."""

from sdssm.automata.drawing.diagram import draw

__all__ = ["draw"]
