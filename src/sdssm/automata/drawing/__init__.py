"""State diagrams as SVG."""

from sdssm.automata.drawing.diagram import draw

__all__ = ["draw"]
