"""Tables and plots, made from the JSON files that evaluations and experiments write, without torch.

make_curves           accuracy against length, one curve per training
describe_differences  how trainings of one task and model differ
terminal_plot         a curve as plain text
make_figure           curves as a figure of matplotlib
check_plot, save_plot curves as PNG, SVG or PDF
"""

from sdssm.report.curves import Curve, make_curves
from sdssm.report.differences import describe_differences
from sdssm.report.plots import check_plot, make_figure, save_plot
from sdssm.report.terminal import terminal_plot

__all__ = ["Curve", "check_plot", "describe_differences", "make_curves", "make_figure", "save_plot", "terminal_plot"]
