"""What people see. It reads what evaluations wrote, and computes nothing anew.

curves         accuracy against length, of each training
told_apart     what tells trainings of one task and model apart
terminal_plot  in plain text
save_plot      as PNG or SVG
"""

from sdssm.report.curves import Curve, curves
from sdssm.report.differences import told_apart
from sdssm.report.plots import check_plot, save_plot
from sdssm.report.terminal import terminal_plot

__all__ = ["Curve", "check_plot", "curves", "save_plot", "terminal_plot", "told_apart"]
