"""The figure of eigenvalues: the complex plane with the unit circle, for each symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sdssm.automata.drawing.wording import symbol_styles
from sdssm.errors import SettingsError
from sdssm.extras import import_extra
from sdssm.palette import CHANCE_COLOUR, GRID_COLOUR
from sdssm.report.figures.grids import EDGE, Margins, PanelGroup, make_panels
from sdssm.report.figures.matrix_figure import MatrixGroup
from sdssm.report.figures.paper_figure import PaperFigure
from sdssm.report.layouts import POINTS, PlotLayout
from sdssm.report.pictures import PURPOSE, picture_look

#: Inches of a panel, at least and at most.
LEAST, MOST = 0.8, 1.7
#: The axes reach at least this far beyond the unit circle.
REACH = 1.15


def make_eigenvalue_figure(groups: Sequence[MatrixGroup], layout: PlotLayout) -> PaperFigure:
    """Draw the eigenvalues of each matrix on the complex plane; a symbol has the colour that it has in diagrams."""
    if not all(np.isfinite(group.matrices).all() for group in groups):
        raise SettingsError("a matrix has entries that are not finite; the training diverged, pass another run")
    eigenvalues = [np.linalg.eigvals(group.matrices.astype(np.float64)) for group in groups]  # (V, N) each
    reach = max(REACH, *(1.08 * float(np.abs(values).max()) for values in eigenvalues))
    line = layout.font / POINTS
    margins = Margins(
        left=3.3 * line, bottom=2.2 * line, right=EDGE + line, head=1.6 * line, gap=0.12, group_gap=2.6 * line
    )
    with picture_look(layout.font):
        panels = [PanelGroup(group.heading, group.names) for group in groups]
        grid = make_panels(panels, layout, margins, least=LEAST, most=MOST)
        for group, values_of_group, axes_of_group in zip(groups, eigenvalues, grid.groups, strict=True):
            styles = symbol_styles(len(group.names))
            for k, (values, axes) in enumerate(zip(values_of_group, axes_of_group, strict=True)):
                _draw_plane(axes, reach, layout)
                axes.plot(
                    values.real, values.imag, ls="", marker="o", ms=layout.marker, mfc=styles[k].colour, mew=0.4,
                    mec="white", clip_on=False, zorder=3,
                )  # fmt: skip
                is_first = k % grid.columns == 0
                is_last = k + grid.columns >= len(group.names)
                axes.set_yticks([-1, 0, 1], ["\u2212i", "0", "i"] if is_first else [""] * 3)
                axes.set_xticks([-1, 0, 1], ["\u22121", "0", "1"] if is_last else [""] * 3)
    return PaperFigure(grid.figure, layout, "Eigenvalues of the matrix of each symbol, with the unit circle.")


def _draw_plane(axes: Any, reach: float, layout: PlotLayout) -> None:
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.tick_params(length=2, width=0.6, pad=2)
    for side in ("left", "bottom"):
        axes.spines[side].set_linewidth(0.6)
    axes.axhline(0, color=GRID_COLOUR, lw=0.6, zorder=0.5)
    axes.axvline(0, color=GRID_COLOUR, lw=0.6, zorder=0.5)
    circle = import_extra("matplotlib.patches", PURPOSE).Circle
    axes.add_patch(circle((0, 0), 1.0, fill=False, edgecolor=CHANCE_COLOUR, linewidth=0.6 * layout.line, zorder=1))
