"""The end of a command that fills a results folder: tables there and here, and pictures."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from sdssm.cli.evaluate import printable_lines
from sdssm.cli.output import printable


def table_width() -> int | None:
    """Of the terminal; None where there is none."""
    return get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def finish(folder: Path, found: dict[str, Any]) -> None:
    """Tables and pictures, from what is on disk."""
    from sdssm.report.ranking import write_ranking
    from sdssm.report.tables import to_text, write_tables

    table = write_tables(folder)
    write_ranking(found, folder)
    print(printable_lines(to_text(table, table_width())), end="")
    pictures = _pictures(folder, found) if find_spec("matplotlib") is not None else []
    print(f"\nTables in {printable(str(folder))}" + (f", {len(pictures)} pictures of curves" if pictures else ""))


def _pictures(folder: Path, found: dict[str, Any]) -> list[Path]:
    """Curves of what the cells show: one picture, or one for each column where there are several rows too.

    Those that an earlier command left under other names go.
    """
    from sdssm.experiments.results.cells import key_of
    from sdssm.report import save_plot
    from sdssm.runs import folder_name

    shown_runs = {tuple(key) for key in found.get("shown", [])}
    runs = [run for run in found["runs"] if run["accuracy"] and key_of(run) in shown_runs]
    # A part of a search may show the same runs as the whole.
    runs = list({(run["column"], run["training"], run["seed"], run["steps"]): run for run in runs}.values())
    columns = list(dict.fromkeys(run["column"] for run in runs))
    apart = len(columns) > 1 and len({run["row"] for run in runs}) > 1
    called = "row" if apart or len(columns) == 1 else "column"
    runs = [{**run, "label": run[called]} for run in runs]
    groups = {f"curves-{folder_name(column)}": [r for r in runs if r["column"] == column] for column in columns}
    paths = []
    for name, some in (groups if apart else {"curves": runs}).items():
        for ending in (".png", ".svg") if some else ():
            save_plot({"runs": some}, folder / f"{name}{ending}")
            paths.append(folder / f"{name}{ending}")
    for old in (*folder.glob("curves*.png"), *folder.glob("curves*.svg")):
        if old not in paths:
            old.unlink()
    return paths
