"""The picture of a report card: accuracy against length, and the facts beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from sdssm.formatting import format_chance, format_estimate
from sdssm.palette import CHANCE_COLOUR, GRID_COLOUR, LINE_COLOUR
from sdssm.report.axes import round_lengths
from sdssm.report.pictures import check_plot, new_figure, picture_look, write_figure
from sdssm.report.styles import model_colour

#: Inches: the figure, the margins of the axes, and the column of facts.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 10.6, 4.9, 0.68, 1.0, 0.62
FACTS_LEFT, AXES_RIGHT = 6.35, 6.05
#: Characters in a line of a fact and in the title, lines of a fact at most, and inches of a line.
FACT_WIDTH, TITLE_WIDTH, MOST_LINES, LINE = 56, 100, 4, 0.165
#: Lengths above this are shown on a logarithmic axis.
LOGARITHMIC_FROM = 100
#: Two ticks on a logarithmic axis need at least this factor between them.
CLOSE = 3.5
#: The titles of the facts, by section.
SECTION_TITLES = {
    "accuracy": "Accuracy",
    "misclassified": "Shortest misclassified string",
    "automaton": "Automaton",
    "forecast": "Forecast of the failing length",
    "laws": "Laws",
    "costs": "Size and speed",
}


def check_card_plot(path: Path) -> None:
    """Raise an error if the picture of a card cannot be drawn or written as this file; its folder may be missing."""
    check_plot(path if path.parent.is_dir() else Path(path.name))


def save_card_plot(card: Mapping[str, Any], path: str | Path) -> None:
    """Draw a report card, given as JSON, and write it as PNG, SVG or PDF, by the suffix of the path."""
    path = Path(path)
    check_plot(path)
    with picture_look():
        write_figure(make_card_figure(card), path)


def make_card_figure(card: Mapping[str, Any]) -> Any:
    """Draw a report card, given as JSON, as a figure of matplotlib.

    The band is the 95 % confidence interval of each accuracy. Training lengths are grey. Dotted lines show chance and
    the best constant answer; vertical lines the longest lengths with 99 % and 90 %, and the forecast.
    """
    with picture_look():
        figure = new_figure((WIDTH, HEIGHT))
        axes = figure.add_axes(
            (LEFT / WIDTH, BOTTOM / HEIGHT, (AXES_RIGHT - LEFT) / WIDTH, (HEIGHT - BOTTOM - TOP) / HEIGHT)
        )
        data = card["sections"].get("accuracy", {}).get("data")
        if data is None:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "accuracy was not measured", ha="center", va="center", color=LINE_COLOUR)
        else:
            _draw_accuracy(axes, card, data)
        _draw_facts(figure, card)
    return figure


def _draw_accuracy(axes: Any, card: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    lengths = np.array(data["lengths"])
    accuracy, low, high, constant = (
        np.array(data[name], dtype=float)  # None becomes NaN
        for name in ("accuracy", "low", "high", "best_constant")
    )
    forecast = (card["sections"].get("forecast", {}).get("data") or {}).get("length")
    last = float(lengths[-1])
    logarithmic = last > LOGARITHMIC_FROM
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xlim(1, max(last, 2))
    axes.set_ylim(0, 102)
    axes.set_yticks(range(0, 101, 20))
    axes.grid(axis="y", color=GRID_COLOUR, lw=0.8, zorder=0.5)
    axes.set_axisbelow(True)
    axes.axvspan(1, min(card["train_length"], last), color=GRID_COLOUR, alpha=0.55, lw=0, zorder=0)
    colour = model_colour(card["model"])
    axes.fill_between(lengths, low, high, color=colour, alpha=0.2, lw=0, zorder=1)
    axes.plot(lengths, accuracy, color=colour, lw=1.8, zorder=3, label=card["model"])
    balanced = data.get("balanced")
    if balanced is not None:  # cards of older versions have none
        shares = np.array(balanced["accuracy"], dtype=float)
        axes.plot(
            balanced["lengths"], shares, color=colour, marker="o", ms=4, lw=0, zorder=4, label="balanced accuracy"
        )
    axes.plot(lengths, constant, color=CHANCE_COLOUR, lw=1.4, ls=(0, (5, 1.5)), zorder=2, label="best constant answer")
    chance = card["chance"]
    axes.axhline(chance, color=LINE_COLOUR, lw=1.3, ls=(0, (1.5, 1.2)), zorder=2)
    axes.plot([], [], color=LINE_COLOUR, lw=1.3, ls=(0, (1.5, 1.2)), label=f"chance, {format_chance(chance)} %")
    for level, style in ((99, (0, (7, 2))), (90, (0, (2, 2)))):
        longest = data[f"longest_{level}"]
        if longest is not None and longest < last:
            label = f"at least {level} % up to {longest:,}"
            axes.axvline(longest, color=LINE_COLOUR, lw=1.0, ls=style, zorder=2.5, label=label)
    if forecast is not None:
        label = f"forecast: if it fails, near {format_estimate(forecast)}"
        if forecast <= last:
            axes.axvline(forecast, color="#D55E00", lw=1.6, zorder=2.6, label=label)
        else:
            axes.plot([], [], color="#D55E00", marker=">", lw=0, label=label)
    ticks = round_lengths(int(last), logarithmic=logarithmic)
    if logarithmic and len(ticks) > 1 and ticks[-1] < CLOSE * ticks[-2]:
        del ticks[-2]  # their labels would touch
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("length of the string")
    axes.set_ylabel("accuracy (%)")
    axes.annotate(
        f"training lengths, up to {card['train_length']:,}", (1, 1), (0, 3), xycoords=axes.get_xaxis_transform(),
        textcoords="offset points", ha="left", va="bottom", size=8.5, color=LINE_COLOUR, annotation_clip=False,
    )  # fmt: skip
    # Below the axes: curves and vertical lines may be anywhere in them.
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=3, fontsize=8.2, frameon=False, borderaxespad=0.0,
        columnspacing=1.2, handlelength=1.8,
    )  # fmt: skip


def _draw_facts(figure: Any, card: Mapping[str, Any]) -> None:
    """Write the title above the picture, and the facts on the right of the axes."""
    inches = figure.dpi_scale_trans
    title = wrap(f"Report card: {card['description']}", TITLE_WIDTH)[0]
    figure.text(0.1, HEIGHT - 0.1, title, transform=inches, va="top", size=11.5, weight="bold")
    y = HEIGHT - TOP
    for name, heading in SECTION_TITLES.items():
        section = card["sections"].get(name)
        if section is None:
            continue
        figure.text(FACTS_LEFT, y, heading, transform=inches, va="top", size=8.8, weight="bold")
        y -= LINE
        for line in _lines(section):
            figure.text(FACTS_LEFT, y, line, transform=inches, va="top", size=8.6, color=LINE_COLOUR)
            y -= LINE
        y -= LINE / 2
    has_curve = (card["sections"].get("accuracy") or {}).get("data") is not None
    band = " Band: 95 % confidence." if has_curve else ""
    figure.text(
        FACTS_LEFT, 0.1, f"Measured on {card['device']}.{band}", transform=inches, va="bottom",
        size=7.5, color=CHANCE_COLOUR,
    )  # fmt: skip


def _lines(section: Mapping[str, Any]) -> Sequence[str]:
    text = section["summary"] if section["data"] is not None else f"not measured: {section['reason']}"
    lines = wrap(text, FACT_WIDTH)
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][:-4]} ..."]
