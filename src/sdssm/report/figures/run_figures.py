"""Figures of runs: read what their folders store, and draw it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from sdssm.errors import RunError, SettingsError, did_you_mean
from sdssm.files import format_path
from sdssm.means import mean_of_known
from sdssm.models.settings import WEIGHTS_FILE
from sdssm.report.figures.automaton_figure import NamedMachine, make_automaton_figure
from sdssm.report.figures.eigenvalue_figure import make_eigenvalue_figure
from sdssm.report.figures.figure_options import FigureOptions
from sdssm.report.figures.matrix_figure import MatrixGroup, make_matrix_figure
from sdssm.report.figures.paper_figure import PaperFigure
from sdssm.report.figures.state_figure import StateGroup, make_state_figure
from sdssm.report.layouts import column_layout
from sdssm.report.page.findings import read_extracted_machine
from sdssm.report.page.json_fields import JsonFields
from sdssm.report.page.page_sources import PageSources
from sdssm.report.page.run_data import PageRun, read_run
from sdssm.report.page.run_detail import DetailReader
from sdssm.report.page.symbol_matrices import SymbolMatrices, compute_symbol_matrices, is_single_sd_ssm
from sdssm.report.page.weight_files import read_tensors
from sdssm.report.plots import describe_plot, make_figure
from sdssm.runs.disk import read_json
from sdssm.runs.own_files import EXTRACTION_FILE


def make_run_figure(kind: str, paths: Sequence[Path | str], options: FigureOptions | None = None) -> PaperFigure:
    """Draw a figure of the runs at or below these paths.

    Args:
        kind: one of `FIGURES`.
        paths: run folders, or folders that contain them.
        options: the width and what is shown; None for the defaults.
    """
    if kind not in FIGURES:
        raise SettingsError(f"there is no figure {kind!r}; {did_you_mean(kind, FIGURES)}")
    runs = _read_runs([Path(path) for path in paths])
    return FIGURES[kind](runs, options or FigureOptions())


# -- kinds of figures ------------------------------------------------------------------------------------------------


def _draw_accuracy(runs: Sequence[PageRun], options: FigureOptions) -> PaperFigure:
    layout = column_layout(options.columns)
    evaluation = {"runs": [_evaluation_record(run) for run in runs]}
    figure = make_figure(evaluation, view=options.view, layout=layout, logarithmic=True)
    return PaperFigure(figure, layout, describe_plot(evaluation, view=options.view, logarithmic=True))


def _draw_automaton(runs: Sequence[PageRun], options: FigureOptions) -> PaperFigure:
    layout = column_layout(options.columns)
    rows: dict[str, list[NamedMachine]] = {}
    for run in runs:
        name = run.task.name
        row = rows.setdefault(run.task.digest, [NamedMachine(name, run.task.machine)])
        extraction = run.data["extraction"]
        if extraction is not None:
            fields = JsonFields(read_json(_folder(run) / EXTRACTION_FILE), EXTRACTION_FILE)
            is_equal = bool(extraction["equals_task"])
            heading = f"extracted from {_describe(run)}: {'equal' if is_equal else 'not equal'}"
            row.append(NamedMachine(heading, read_extracted_machine(fields), is_copy=is_equal))
    return make_automaton_figure(list(rows.values()), layout)


def _draw_matrices(runs: Sequence[PageRun], options: FigureOptions) -> PaperFigure:
    groups = [_matrix_group(run, len(runs) > 1, dictionary=options.dictionary) for run in runs]
    return _name_runs(make_matrix_figure(groups, column_layout(options.columns)), runs)


def _draw_eigenvalues(runs: Sequence[PageRun], options: FigureOptions) -> PaperFigure:
    groups = [_matrix_group(run, len(runs) > 1, dictionary=options.dictionary) for run in runs]
    return _name_runs(make_eigenvalue_figure(groups, column_layout(options.columns)), runs)


def _draw_states(runs: Sequence[PageRun], options: FigureOptions) -> PaperFigure:
    groups = [_state_group(run, len(runs) > 1, options.strings) for run in runs]
    return _name_runs(make_state_figure(groups, column_layout(options.columns)), runs)


#: The figures by name, each a function of runs and options.
FIGURES: Mapping[str, Callable[[Sequence[PageRun], FigureOptions], PaperFigure]] = {
    "accuracy": _draw_accuracy,
    "automaton": _draw_automaton,
    "matrices": _draw_matrices,
    "states": _draw_states,
    "eigenvalues": _draw_eigenvalues,
}


# -- what run folders store ------------------------------------------------------------------------------------------


def _read_runs(paths: Sequence[Path]) -> list[PageRun]:
    sources = PageSources.find(paths)
    if sources.problems:
        problem = sources.problems[0]
        raise RunError(f"{problem['path']}: {problem['message']}")
    if not sources.runs:
        raise RunError(f"there is no run folder in {format_path(paths[0])}; a figure needs run folders, not results")
    runs = [read_run(path) for path in sources.runs]
    for run in runs:
        if run.data["problems"]:
            raise RunError(f"{format_path(_folder(run))}: {run.data['problems'][0]}")
    return runs


def _folder(run: PageRun) -> Path:
    assert run.path is not None  # `read_run` sets it
    return run.path


def _describe(run: PageRun) -> str:
    return f"{run.data['model']}, seed {run.data['seed']}"


def _name_runs(drawn: PaperFigure, runs: Sequence[PageRun]) -> PaperFigure:
    """Return a figure whose caption names its run; several runs are named in the figure."""
    if len(runs) > 1:
        return drawn
    caption = f"{run_title(runs[0])}. {drawn.caption}"
    return PaperFigure(drawn.figure, drawn.layout, caption)


def run_title(run: PageRun) -> str:
    """Return task, model and seed of a run."""
    return f"{run.task.name}, {_describe(run)}"


def _evaluation_record(run: PageRun) -> dict[str, Any]:
    """Return the evaluation of a run under the names that curves are made from."""
    measured, stored = run.measured("accuracy"), run.evaluation or run.listed
    if measured is None or stored is None:
        folder = quote(str(_folder(run)))
        raise RunError(f"{format_path(_folder(run))} was not evaluated; run sdssm evaluate {folder} first")
    return {
        **run.record,
        "seed": run.data["seed"],
        "status": run.data["status"],
        "chance": run.task.chance_accuracy,
        "strings": stored.strings,
        "best_constant_mean": mean_of_known(stored.best_constant.values),
        "max_length": measured.lengths[-1],
        "lengths": list(measured.lengths),
        "accuracy": list(measured.values),
        "has_ticks_at_lengths": run.evaluation is None,
    }


def _symbol_matrices(run: PageRun) -> SymbolMatrices:
    config, folder = run.config, format_path(_folder(run))
    assert config is not None  # `read_run` sets it
    if not is_single_sd_ssm(config.model):
        raise RunError(
            f"{folder} is a run of {run.data['model']}; only an SD-SSM with one layer has a matrix for each symbol"
        )
    if not (_folder(run) / WEIGHTS_FILE).exists():
        raise RunError(f"{folder} has no {WEIGHTS_FILE} yet; it is written when the training ends")
    return compute_symbol_matrices(config.model, read_tensors(_folder(run) / WEIGHTS_FILE), config.n_symbols)


def _matrix_group(run: PageRun, has_heading: bool, *, dictionary: bool) -> MatrixGroup:
    computed = _symbol_matrices(run)
    if dictionary:
        matrices = computed.dictionary
        names = tuple(f"matrix {k}" for k in range(len(matrices)))
    else:
        matrices = computed.matrices
        names = tuple(f"symbol {name}" for name in run.task.machine.symbol_names)
    return MatrixGroup(run_title(run) if has_heading else "", names, matrices)


def _state_group(run: PageRun, has_heading: bool, most: int) -> StateGroup:
    reader = DetailReader(run)
    cloud = reader.read("states")
    if cloud is None:
        raise RunError(f"{format_path(_folder(run))}: {reader.missing['states']}")
    return StateGroup(
        heading=run_title(run) if has_heading else "",
        lengths=tuple(cloud["lengths"]),
        points=tuple(np.column_stack([x, y])[:most] for x, y in zip(cloud["x"], cloud["y"], strict=True)),
        states=tuple(np.array(states[:most], dtype=np.int64) for states in cloud["state"]),
        correct=tuple(np.array(correct[:most], dtype=bool) for correct in cloud["correct"]),
        n_states=run.task.machine.n_states,
        explained=cloud["explained"],
    )
