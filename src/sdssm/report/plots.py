"""Accuracy against length as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sdssm.errors import OutputError
from sdssm.extras import import_extra
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.report.curves import Curve, curves, logarithmic

FORMATS = (".png", ".svg")
SIZE, DOTS = (7.0, 3.6), 150  # inches, and dots per inch of a PNG
#: More curves than this have their names beside the picture, where they cover nothing.
BESIDE = 2
#: More than this have no bands, which would cover each other.
FEW = 3
#: Inches for each name beside it.
LINE = 0.19
STYLES = ("-", "--", ":")


def check_plot(path: Path) -> None:
    """Whether a plot can be drawn and written as this file, before the work that leads to it begins."""
    if path.suffix.lower() not in FORMATS:
        ending = path.suffix or "nothing"
        raise OutputError(f"{format_path(path)} ends in {ending!r}; plots are written as {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {format_path(path)}: there is no folder {format_path(path.parent)}; make it first"
        )
    _figure_class()


def save_plot(evaluation: Mapping[str, Any], path: Path, *, each: bool = False) -> None:
    """Draw the curves of an evaluation (as JSON) and write them as PNG or SVG, as the file's name ends.

    The mean over seeds with a band from the least to the greatest; with `each`, a line for each run.
    """
    check_plot(path)
    data = _drawn(curves(evaluation, each=each), path.suffix.lower()[1:])
    try:
        write_atomic(path, data)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose a path that can be written"
        ) from None


def _drawn(found: list[Curve], kind: str) -> bytes:
    beside = len(found) > BESIDE
    size = (SIZE[0] + 2.5, max(SIZE[1], LINE * (len(found) + 3))) if beside else SIZE
    figure = _figure_class()(figsize=size, dpi=DOTS, layout="constrained")
    axes = figure.subplots()
    trained = sorted({curve.train_length for curve in found})
    for length in trained:
        label = f"trained up to {' or '.join(map(str, trained))}" if length == trained[-1] else None
        axes.axvspan(0.5, length + 0.5, color="0.9" if len(trained) == 1 else "0.93", lw=0, zorder=0, label=label)
    for number, curve in enumerate(found):
        name = curve.name if curve.seeds == 1 else f"{curve.name}, {curve.seeds} seeds"
        marker = "o" if len(curve.lengths) <= 20 else None
        style = STYLES[number // 10 % len(STYLES)]  # there are ten colours
        (line,) = axes.plot(
            curve.lengths, curve.mean, style, lw=1.6, marker=marker, ms=4, label=name, clip_on=False, zorder=3
        )
        if curve.seeds > 1 and len(found) <= FEW:
            axes.fill_between(curve.lengths, curve.low, curve.high, color=line.get_color(), alpha=0.2, lw=0)
    first, last = (f(int(curve.lengths[k]) for curve in found) for f, k in ((min, 0), (max, -1)))
    if any(logarithmic(curve.lengths) for curve in found):
        axes.set_xscale("log")
        axes.set_xlim(first, last)
    else:
        axes.set_xlim(0.5, last + 0.5)
    axes.set_ylim(0, 102)
    axes.set_yticks(np.arange(0, 101, 20))
    axes.set_xlabel("length of the string")
    axes.set_ylabel("accuracy (%)")
    axes.spines[["top", "right"]].set_visible(False)
    if beside:
        figure.legend(frameon=False, fontsize="small", loc="outside right upper")
    else:
        axes.legend(frameon=False, fontsize="small", loc="best")
    out = BytesIO()
    # The same picture has the same bytes, whenever it is drawn.
    figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def _figure_class() -> Any:
    """A figure of its own draws without a display and leaves a user's own figures alone."""
    return import_extra("matplotlib.figure", "a plot").Figure
