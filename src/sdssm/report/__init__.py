"""Tables and plots, made from the JSON files that evaluations and experiments write, without torch.

make_curves           accuracy against length, one curve per training
describe_differences  how trainings of one task and model differ
terminal_plot         a curve as plain text
check_plot, save_plot curves as PNG or SVG
"""

from sdssm.report.curves import Curve, make_curves
from sdssm.report.differences import describe_differences
from sdssm.report.plots import check_plot, save_plot
from sdssm.report.terminal import terminal_plot

__all__ = ["Curve", "check_plot", "describe_differences", "make_curves", "save_plot", "terminal_plot"]
