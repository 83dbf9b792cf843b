"""The figure of states: the model's states in two dimensions, at several lengths, coloured by automaton state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdssm.automata.drawing.wording import COLOURS
from sdssm.extras import import_extra
from sdssm.palette import TEXT_COLOUR
from sdssm.report.figures.grids import EDGE, Margins, PanelGroup, hide_ticks, make_panels
from sdssm.report.figures.paper_figure import PaperFigure
from sdssm.report.layouts import POINTS, PlotLayout
from sdssm.report.pictures import PURPOSE, picture_look

#: Inches of a panel, at least and at most.
LEAST, MOST = 0.95, 1.7
#: States beyond the colours that can be distinguished are coloured along this map, without its lightest end.
MANY_COLOURS, LIGHTEST = "viridis", 0.92


@dataclass(frozen=True, eq=False)
class StateGroup:
    """States of one model in two dimensions after strings of several lengths.

    Attributes:
        heading: above its panels.
        lengths: of the strings, one for each panel.
        points: (S, 2) for each length.
        states: (S,), of the automaton, for each length.
        correct: (S,), whether the prediction is, for each length.
        n_states: of the automaton.
        explained: the shares of the variance along both axes.
    """

    heading: str
    lengths: tuple[int, ...]
    points: tuple[np.ndarray, ...]
    states: tuple[np.ndarray, ...]
    correct: tuple[np.ndarray, ...]
    n_states: int
    explained: tuple[float, float]


def make_state_figure(groups: Sequence[StateGroup], layout: PlotLayout) -> PaperFigure:
    """Draw a panel for each length; all panels of a run have the same axes, so that drift shows as movement.

    A dot is a string, coloured by the automaton's state; a cross is a string that is misclassified.
    """
    line = layout.font / POINTS
    below = 2.0 * line
    margins = Margins(
        left=2.0 * line, bottom=below, right=EDGE, head=1.6 * line, gap=0.08, row_gap=below, group_gap=below + line
    )
    with picture_look(layout.font):
        panels = [PanelGroup(group.heading, tuple(map(_panel_heading, group.lengths))) for group in groups]
        grid = make_panels(panels, layout, margins, least=LEAST, most=MOST)
        for group, axes_of_group in zip(groups, grid.groups, strict=True):
            low, high = _limits(group)
            colours = state_colours(group.n_states)
            for k, axes in enumerate(axes_of_group):
                hide_ticks(axes)
                axes.set_xlim(low[0], high[0])
                axes.set_ylim(low[1], high[1])
                _draw_points(axes, group, k, colours, layout)
                if k % grid.columns == 0:
                    axes.set_ylabel(_axis_name(2, group), labelpad=2)
                if k + grid.columns >= len(group.lengths):
                    axes.set_xlabel(_axis_name(1, group), labelpad=2)
    caption = (
        "States of the model after random strings of each length, on their two principal axes (share of the variance); "
        "colours are the states of the automaton, crosses are misclassified strings."
    )
    return PaperFigure(grid.figure, layout, caption)


def state_colours(n_states: int) -> list[str]:
    """Return a colour for each state of an automaton: those of all pictures, or with many states a gradual map."""
    if n_states <= len(COLOURS):
        return list(COLOURS[:n_states])
    chosen = import_extra("matplotlib", PURPOSE).colormaps[MANY_COLOURS]
    to_hex = import_extra("matplotlib.colors", PURPOSE).to_hex
    return [to_hex(chosen(LIGHTEST * q / (n_states - 1))) for q in range(n_states)]


def _panel_heading(length: int) -> str:
    return f"length {length:,}"


def _axis_name(axis: int, group: StateGroup) -> str:
    return f"axis {axis} ({100 * group.explained[axis - 1]:.0f} %)"


def _limits(group: StateGroup) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of both axes: all points with a margin, and equal scales."""
    points = np.concatenate([part for part in group.points if len(part)] or [np.zeros((1, 2))])
    middle = (points.min(0) + points.max(0)) / 2
    half = max(0.54 * float(np.ptp(points, axis=0).max()), 1e-9)
    return middle - half, middle + half


def _draw_points(axes: Any, group: StateGroup, k: int, colours: Sequence[str], layout: PlotLayout) -> None:
    points, states, correct = group.points[k], group.states[k], group.correct[k].astype(bool)
    size = (0.9 * layout.marker) ** 2
    shades = np.array(colours)[states]
    axes.scatter(*points[correct].T, s=size, c=shades[correct], lw=0, alpha=0.75, zorder=2)
    wrong = ~correct
    if wrong.any():
        axes.scatter(*points[wrong].T, s=size, c=shades[wrong], lw=0, alpha=0.75, zorder=2)
        axes.scatter(*points[wrong].T, s=1.2 * size, c=TEXT_COLOUR, marker="x", lw=0.5 * layout.line, zorder=3)
