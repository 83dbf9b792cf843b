"""A figure for a paper: what is drawn, and what its caption should say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.report.layouts import PlotLayout
from sdssm.report.pictures import check_plot, picture_look, write_figure


@dataclass(frozen=True, eq=False)
class PaperFigure:
    """A figure of matplotlib with its layout and a caption, in sentences."""

    figure: Any
    layout: PlotLayout
    caption: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        width, height = self.figure.get_size_inches()
        return float(width), float(height)

    def save(self, path: Path) -> None:
        """Write the figure as PNG, SVG or PDF, by the suffix of the path."""
        check_plot(path)
        with picture_look(self.layout.font):
            write_figure(self.figure, path)
