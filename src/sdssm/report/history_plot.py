"""The picture of trainings that were evaluated on the way: accuracy at long lengths against training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sdssm.formatting import format_chance
from sdssm.palette import CHANCE_COLOUR, GRID_COLOUR
from sdssm.report.histories import collect_histories
from sdssm.report.layouts import SCREEN
from sdssm.report.pictures import check_plot, new_figure, picture_look, write_figure
from sdssm.report.styles import model_colour

#: The name of the picture, without suffix.
HISTORY = "history"
#: Inches: a panel, and the margins around all of them.
PANEL_WIDTH, PANEL_HEIGHT, LEFT, RIGHT, BOTTOM, TOP, GAP = 3.9, 1.25, 1.25, 0.25, 0.55, 0.78, 0.2
#: Lines of seeds are this thin, and this transparent, so that many of them can be distinguished.
LINE_WIDTH, ALPHA = 1.0, 0.75


def save_history_plot(runs: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Draw the histories of runs, which are records of results.json, and write them by the suffix of the path."""
    path = Path(path)
    check_plot(path)
    with picture_look():
        write_figure(make_history_figure(runs), path)


def make_history_figure(runs: Sequence[Mapping[str, Any]]) -> Any:
    """Draw a panel for each row and column of a table, with a line for each seed, as a figure of matplotlib.

    The tasks are below each other, the rows of the table beside each other: what differs between these is then seen
    from left to right.
    """
    runs = [run for run in runs if run.get("history")]
    rows, columns = (list(dict.fromkeys(run[name] for run in runs)) for name in ("row", "column"))
    width = LEFT + len(rows) * PANEL_WIDTH + (len(rows) - 1) * GAP + RIGHT
    height = TOP + len(columns) * PANEL_HEIGHT + (len(columns) - 1) * GAP + BOTTOM
    with picture_look():
        figure = new_figure((width, height), SCREEN.dpi)
        for y, column in enumerate(columns):
            for x, row in enumerate(rows):
                left = LEFT + x * (PANEL_WIDTH + GAP)
                bottom = height - TOP - (y + 1) * PANEL_HEIGHT - y * GAP
                axes = figure.add_axes((left / width, bottom / height, PANEL_WIDTH / width, PANEL_HEIGHT / height))
                _draw_panel(axes, [run for run in runs if (run["row"], run["column"]) == (row, column)])
                if y == 0:
                    axes.set_title(row, size=SCREEN.font, pad=4)
                if x == 0:
                    axes.set_ylabel(f"{column}\naccuracy (%)")
                else:
                    axes.set_yticklabels([])
                if y == len(columns) - 1:
                    axes.set_xlabel("training steps")
                else:
                    axes.set_xticklabels([])
        title = f"Accuracy beyond training lengths during training, a line for each of {_count_seeds(runs)} seeds"
        figure.text(LEFT / width, 1 - 0.12 / height, title, size=SCREEN.font + 1, weight="bold", ha="left", va="top")
    return figure


def _count_seeds(runs: Sequence[Mapping[str, Any]]) -> int:
    return len({run["seed"] for run in runs})


def _draw_panel(axes: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    axes.set_ylim(0, 102)
    axes.set_yticks(range(0, 101, 20))
    axes.grid(axis="y", color=GRID_COLOUR, lw=0.8, zorder=0.5)
    axes.set_axisbelow(True)
    histories = collect_histories(runs)
    if histories is None:
        axes.text(0.5, 0.5, "not trained yet", ha="center", va="center", transform=axes.transAxes, color=CHANCE_COLOUR)
        return
    for values in histories.beyond:
        axes.plot(histories.steps, values, color=model_colour(runs[0]["model"]), lw=LINE_WIDTH, alpha=ALPHA, zorder=3)
    axes.set_xlim(0, histories.steps[-1])
    ticks = np.linspace(0, histories.steps[-1], 5)
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    # The first and last number stay within their panel: beside it are those of another.
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    chance = runs[0]["chance"]
    axes.axhline(chance, color=CHANCE_COLOUR, lw=1.2, ls=(0, (1, 1.5)), zorder=2)
    axes.text(
        0.99, chance + 2, f"chance, {format_chance(chance)} %", size=SCREEN.remark, color=CHANCE_COLOUR, ha="right",
        va="bottom", transform=axes.get_yaxis_transform(),
    )  # fmt: skip
