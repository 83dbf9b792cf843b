"""Figures for papers, one or two columns wide, from what run folders store; imports no torch.

make_run_figure   a figure of runs: accuracy, automaton, matrices, states or eigenvalues
FIGURES           the kinds of figures
FigureOptions     the width of a figure and what it shows
PaperFigure       a figure with its caption, which writes itself as PDF, SVG or PNG
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.report.figures.figure_options import FigureOptions
    from sdssm.report.figures.paper_figure import PaperFigure
    from sdssm.report.figures.run_figures import FIGURES, make_run_figure
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "FIGURES": "sdssm.report.figures.run_figures",
            "FigureOptions": "sdssm.report.figures.figure_options",
            "PaperFigure": "sdssm.report.figures.paper_figure",
            "make_run_figure": "sdssm.report.figures.run_figures",
        },
    )

__all__ = ["FIGURES", "FigureOptions", "PaperFigure", "make_run_figure"]
