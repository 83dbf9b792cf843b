"""Tables, plots and pages, made from the JSON files that evaluations and experiments write, without torch.

make_curves           accuracy against length, one curve per training
describe_differences  how trainings of one task and model differ
terminal_plot         a curve as plain text
make_figure           curves as a figure of matplotlib
check_plot, save_plot curves as PNG, SVG or PDF
write_report          a page about runs and results, as one HTML file
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.report.curves import Curve, make_curves
    from sdssm.report.differences import describe_differences
    from sdssm.report.page.writing import write_report
    from sdssm.report.pictures import check_plot
    from sdssm.report.plots import make_figure, save_plot
    from sdssm.report.terminal import terminal_plot
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Curve": "sdssm.report.curves",
            "check_plot": "sdssm.report.pictures",
            "describe_differences": "sdssm.report.differences",
            "make_curves": "sdssm.report.curves",
            "make_figure": "sdssm.report.plots",
            "save_plot": "sdssm.report.plots",
            "terminal_plot": "sdssm.report.terminal",
            "write_report": "sdssm.report.page.writing",
        },
    )

__all__ = [
    "Curve",
    "check_plot",
    "describe_differences",
    "make_curves",
    "make_figure",
    "save_plot",
    "terminal_plot",
    "write_report",
]
