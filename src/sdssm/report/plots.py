"""Accuracy-against-length plots as PNG or SVG, with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sdssm.errors import OutputError
from sdssm.extras import import_extra
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.report.curves import Curve, has_log_axis, make_curves
from sdssm.report.rendering import format_chance

FORMATS = (".png", ".svg")
SIZE, DPI = (7.0, 3.6), 150  # inches, and dots per inch of a PNG
#: With more curves than this the legend is outside the axes, where it covers nothing.
MOST_INSIDE = 2
#: With more curves than this there are no bands, as they would cover each other.
MOST_BANDS = 5
#: Inches for each line of an outside legend.
LEGEND_LINE = 0.19
STYLES = ("-", "--", "-.")
#: A line with gaps, for a curve on top of another, and how close (in percent) the two are to count as one line.
GAPS, HIDDEN = (0, (5, 5)), 1.0
#: With more chance levels than this the legend names only the lowest and the highest.
MOST_LEVELS = 4


def check_plot(path: Path) -> None:
    """Raise `OutputError` if a plot cannot be drawn or written as this file."""
    if path.suffix.lower() not in FORMATS:
        ending = path.suffix or "nothing"
        raise OutputError(f"{format_path(path)} ends in {ending!r}; plots are written as {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {format_path(path)}: there is no folder {format_path(path.parent)}; create it first"
        )
    _figure_class()


def save_plot(evaluation: Mapping[str, Any], path: Path, *, each: bool = False) -> None:
    """Draw the curves of an evaluation (as JSON) and write them as PNG or SVG, by the suffix of the path.

    A line is the mean over seeds, with a band from minimum to maximum; with `each` there is a line for each run.
    Training lengths are shaded, and a dotted line shows chance.
    """
    check_plot(path)
    data = _draw(make_curves(evaluation, each=each), path.suffix.lower()[1:])
    try:
        write_atomic(path, data)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose another path"
        ) from None


def _draw(curves: list[Curve], kind: str) -> bytes:
    is_outside = len(curves) > MOST_INSIDE
    size = (SIZE[0] + 2.5, max(SIZE[1], LEGEND_LINE * (len(curves) + 4))) if is_outside else SIZE
    figure = _figure_class()(figsize=size, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    trained = sorted({curve.train_length for curve in curves})
    for length in trained:
        label = f"trained up to {' or '.join(map(str, trained))}" if length == trained[-1] else None
        axes.axvspan(0.5, length + 0.5, color="0.9" if len(trained) == 1 else "0.93", lw=0, zorder=0, label=label)
    for number, curve in enumerate(curves):
        name = curve.name if curve.seeds == 1 else f"{curve.name}, {curve.seeds} seeds"
        marker = "o" if len(curve.lengths) <= 20 else None
        style: Any = STYLES[number // 10 % len(STYLES)]  # there are ten colours
        if any(_coincide(curve, other) for other in curves[:number]):
            style = GAPS  # the curve below shows through
        (line,) = axes.plot(
            curve.lengths, curve.mean, linestyle=style, lw=1.6, marker=marker, ms=4, label=name, clip_on=False, zorder=3
        )
        if curve.seeds > 1 and len(curves) <= MOST_BANDS:
            axes.fill_between(curve.lengths, curve.low, curve.high, color=line.get_color(), alpha=0.2, lw=0)
    _draw_chance(axes, sorted({curve.chance for curve in curves if curve.chance is not None}))
    first, last = (f(int(curve.lengths[k]) for curve in curves) for f, k in ((min, 0), (max, -1)))
    if any(has_log_axis(curve.lengths) for curve in curves):
        axes.set_xscale("log")
        axes.set_xlim(first, last)
    else:
        axes.set_xlim(0.5, last + 0.5)
    axes.set_ylim(0, 102)
    axes.set_yticks(np.arange(0, 101, 20))
    axes.set_xlabel("length of the string")
    axes.set_ylabel("accuracy (%)")
    axes.spines[["top", "right"]].set_visible(False)
    if is_outside:
        figure.legend(frameon=False, fontsize="small", loc="outside right upper")
    else:
        axes.legend(frameon=False, fontsize="small", loc="best")
    out = BytesIO()
    # Without a date or a version the same curves always give the same bytes.
    figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def _coincide(curve: Curve, other: Curve) -> bool:
    """Whether two curves are so close everywhere that the second would hide the first."""
    return np.array_equal(curve.lengths, other.lengths) and bool(np.all(np.abs(curve.mean - other.mean) < HIDDEN))


def _draw_chance(axes: Any, levels: Sequence[float]) -> None:
    """Draw a dotted line for each chance level, with one entry in the legend."""
    shown = list(map(format_chance, levels))
    words = ", ".join(shown) if len(shown) <= MOST_LEVELS else f"{shown[0]} to {shown[-1]}"
    for level in levels:
        label = f"chance, {words} %" if level == levels[-1] else None
        axes.axhline(level, color="0.35", lw=1.2, ls=":", zorder=2, label=label)


def _figure_class() -> Any:
    """Return matplotlib's Figure, which draws without a display and without the global state of pyplot."""
    return import_extra("matplotlib.figure", "a plot").Figure
