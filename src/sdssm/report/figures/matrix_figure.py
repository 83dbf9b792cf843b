"""The figure of matrices: a heat map for each symbol, with one colour bar for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdssm.errors import SettingsError
from sdssm.extras import import_extra
from sdssm.palette import COLOURS
from sdssm.report.figures.grids import EDGE, Margins, PanelGroup, hide_ticks, make_panels
from sdssm.report.figures.paper_figure import PaperFigure
from sdssm.report.layouts import POINTS, PlotLayout
from sdssm.report.pictures import PURPOSE, picture_look

#: Inches: a panel at least and at most, the colour bar, and the space on its left.
LEAST, MOST, BAR, BAR_GAP = 0.72, 1.5, 0.09, 0.1
#: The width of the tick labels of the colour bar, in letters.
TICK_LETTERS = 5


@dataclass(frozen=True, eq=False)
class MatrixGroup:
    """Matrices (n, N, N) of one run, and their names."""

    heading: str
    names: tuple[str, ...]
    matrices: np.ndarray


def make_matrix_figure(groups: Sequence[MatrixGroup], layout: PlotLayout) -> PaperFigure:
    """Draw matrices as heat maps: negative entries blue, zero white, positive entries vermilion.

    All panels have the same scale, from minus to plus the largest absolute entry.
    """
    if not all(np.isfinite(group.matrices).all() for group in groups):
        raise SettingsError("a matrix has entries that are not finite; the training diverged, pass another run")
    largest = max(float(np.abs(group.matrices).max()) for group in groups) or 1.0
    margins = Margins(
        left=EDGE,
        bottom=layout.font * 0.6 / POINTS,  # half a tick label of the colour bar
        right=BAR_GAP + BAR + layout.font * 0.62 * (TICK_LETTERS + 1) / POINTS,
        head=layout.font * 1.6 / POINTS,
    )
    with picture_look(layout.font):
        panels = [PanelGroup(group.heading, group.names) for group in groups]
        grid = make_panels(panels, layout, margins, least=LEAST, most=MOST)
        image = None
        for group, axes_of_group in zip(groups, grid.groups, strict=True):
            for matrix, axes in zip(group.matrices, axes_of_group, strict=True):
                image = axes.imshow(
                    matrix, cmap=diverging_colours(), vmin=-largest, vmax=largest, interpolation="nearest"
                )
                hide_ticks(axes)
        width, height = grid.figure.get_size_inches()
        span = min(grid.top - grid.bottom, 2.4)
        box = ((grid.right + BAR_GAP) / width, (grid.top - span) / height, BAR / width, span / height)
        bar = grid.figure.colorbar(image, cax=grid.figure.add_axes(box))
        bar.outline.set_linewidth(0.6)
        ticks = [-largest, 0.0, largest]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "\u2212") for tick in ticks])
        bar.ax.tick_params(length=2, width=0.6, pad=2)
    return PaperFigure(grid.figure, layout, "Transition matrices; all panels have the colour scale on the right.")


def diverging_colours() -> Any:
    """Return a colour map from blue over white to vermilion, which colour-blind readers can distinguish."""
    colours = import_extra("matplotlib.colors", PURPOSE)
    return colours.LinearSegmentedColormap.from_list("sdssm", [COLOURS[0], "#ffffff", COLOURS[1]])
