"""Write and print the tables and plots of a results folder."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sdssm.formatting import count_of
from sdssm.printable import make_lines_printable, make_printable
from sdssm.progress import report_progress
from sdssm.text_tables import terminal_width


def show_results(
    folder: Path, results: dict[str, Any], selected: dict[str, Any] | None = None, *, progress: bool = True
) -> None:
    """Write tables and plots into the results folder, and print a table.

    Args:
        folder: the results folder.
        results: all results in the folder.
        selected: the results of the part that the command selects, which are printed; None for all.
    """
    from sdssm.experiments.results.chance import fill_constants
    from sdssm.report.ranking import write_ranking
    from sdssm.report.rendering import to_text
    from sdssm.report.tables import make_table, write_tables

    results = fill_constants(results)
    table = write_tables(folder, results)
    write_ranking(results, folder)
    table = table if selected is None else make_table(fill_constants(selected))
    print(make_lines_printable(to_text(table, terminal_width())), end="")
    plots = _write_plots(folder, results, progress) if find_spec("matplotlib") is not None else 0
    print(
        f"\nTables in {make_printable(str(folder))}"
        + (f", with {count_of(plots, 'plot')} of curves as PNG and SVG" if plots else "")
    )
    if selected is not None:
        _explain_difference(results, selected)


def _explain_difference(results: dict[str, Any], selected: dict[str, Any]) -> None:
    """Say how the files differ from the printed table, if they do."""
    from sdssm.experiments.results.records import record_key

    stored, shown = ({record_key(run) for run in part["runs"]} for part in (results, selected))
    if stored - shown:
        print(f"They also hold {count_of(len(stored - shown), 'run')} of other commands.")
    if shown - stored:
        print("Where the folder has runs with more steps, its tables show these.")


def _write_plots(folder: Path, results: dict[str, Any], progress: bool) -> int:
    """Plot the curves of the runs in the table, remove plots of earlier commands, and return the number of plots.

    One plot shows all runs, unless there are several rows and several columns: then each column has its own.
    """
    from sdssm.experiments.results.records import record_key
    from sdssm.report import save_plot
    from sdssm.report.history_plot import HISTORY, save_history_plot
    from sdssm.runs import folder_name

    shown_keys = {tuple(key) for key in results.get("shown", [])}
    runs = [run for run in results["runs"] if run["accuracy"] and record_key(run) in shown_keys]
    # A part of a search may contain the same runs as the whole search.
    runs = list({(run["column"], run["training"], run["seed"], run["steps"]): run for run in runs}.values())
    columns = list(dict.fromkeys(run["column"] for run in runs))
    one_per_column = len(columns) > 1 and len({run["row"] for run in runs}) > 1
    label = "row" if one_per_column or len(columns) == 1 else "column"
    runs = [{**run, "label": run[label]} for run in runs]
    plots = {"curves": runs}
    if one_per_column:
        plots = {f"curves-{folder_name(name)}": [run for run in runs if run["column"] == name] for name in columns}
    paths = [folder / f"{name}{suffix}" for name, plotted in plots.items() if plotted for suffix in (".png", ".svg")]
    if any(run.get("history") for run in runs):
        paths += [folder / f"{HISTORY}{suffix}" for suffix in (".png", ".svg")]
    with report_progress(progress) as reporter:
        reporter.start("draw curves", total=len(paths), unit="files")
        for done, path in enumerate(paths):
            reporter.update(done)
            if path.stem == HISTORY:
                save_history_plot(runs, path)
            else:
                save_plot({"runs": plots[path.stem]}, path)
    patterns = [f"{name}.{suffix}" for name in ("curves*", HISTORY) for suffix in ("png", "svg")]
    for old in (path for pattern in patterns for path in folder.glob(pattern)):
        if old not in paths:
            old.unlink()
    return len(paths) // 2
