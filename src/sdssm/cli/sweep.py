"""`sdssm sweep`: search for the best settings of a model on a task."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from sdssm.cli.experiment_options import (
    add_experiment_options,
    make_executor,
    make_selection,
    selection_arguments,
    spec_argument,
)
from sdssm.cli.model_options import add_model_option
from sdssm.cli.options import (
    collect_settings,
    declare_command,
    parse_length,
    parse_number,
    parse_numbers,
    parse_parallel,
    parse_seed,
    parse_value,
    split_assignment,
    whole_number_between,
)
from sdssm.cli.plans import report_interrupt, show_plans
from sdssm.cli.tables import show_results
from sdssm.errors import SettingsError, format_value
from sdssm.experiments.default_folders import reused_folders
from sdssm.limits import MOST_TRIALS
from sdssm.models.catalogue import DEFAULT_MODEL
from sdssm.printable import make_lines_printable
from sdssm.text_tables import terminal_width

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.experiments.specs.spec import Spec
    from sdssm.experiments.sweeps.search import Search
    from sdssm.experiments.sweeps.sweep import Sweep

#: Candidates of each cell that are printed; the files in the results folder contain all.
MOST_CANDIDATES = 20
#: Options that describe the sweep of a task; an experiment defines these itself.
TASK_OPTIONS = ("model", "preset", "set", "grid", "range", "max_length")
#: Arguments of the library that are options of the command, with underscores instead of hyphens.
LIBRARY_ARGUMENTS = ("search", "trials", "parallel", "keep", "rungs", "select", "max_length")
#: Options that narrow an experiment.
SPEC_OPTIONS = ("models", "rows", "tasks")


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "sweep",
        summary="search for the best settings",
        description="Train a model with many settings and rank them: all combinations of a grid, random draws, or a "
        "search with Optuna. Candidates with parameters of the same shape are trained side by side. Finished runs are "
        "not trained again; after an interruption, the same command continues.",
        examples=[
            "sdssm sweep a5 --model mamba --grid lr=1e-4,1e-3 --grid weight_decay=0,1e-4 --seeds 3",
            "sdssm sweep a5 --search optuna --trials 40 --range lr=1e-5..1e-2 --choice state=32,64",
        ],
    )
    add = parser.add_argument
    add("what", metavar="TASK", nargs="+", help="task, such as a5; or an experiment with a grid, by name or TOML file")
    add_model_option(parser, f"model to train (default: {DEFAULT_MODEL})")
    add("--preset", help="named settings, for settings that are not searched (default: the model's own preset)")
    for names, metavar, text in (
        (("--set",), "NAME=VALUE", "settings that are the same for all candidates, such as steps=2000"),
        (("--grid", "--choice"), "NAME=V,V,...", "values to try for a setting, such as lr=1e-4,1e-3"),
        (("--range",), "NAME=A..B", "range to draw from, such as lr=1e-5..1e-2 or dropout=0..0.5:linear"),
    ):
        add(*names, metavar=metavar, nargs="+", action="extend", default=[], help=text)
    add("--search", default="grid", metavar="KIND", help="grid, random or optuna (default: %(default)s)")
    add(
        "--trials",
        metavar="N",
        type=whole_number_between(1, MOST_TRIALS),
        help="number of candidates of a random or Optuna search",
    )
    add(
        "--search-seed",
        metavar="N",
        type=parse_seed,
        default=0,
        help="seed of the search (default: %(default)s)",
    )
    add(
        "--parallel",
        metavar="N",
        type=parse_parallel,
        help="candidates that are trained at once (default: all; with optuna 8)",
    )
    add(
        "--keep",
        metavar="X",
        type=parse_number,
        help="share of the candidates that continue after each rung (default: 1; with optuna 0.5)",
    )
    add(
        "--rungs",
        metavar="X,X",
        type=parse_numbers,
        help="when candidates are compared, as shares of the steps (default: 0.25,0.5)",
    )
    add(
        "--select",
        metavar="BY",
        help="rank by accuracy at training lengths (within) or at test lengths (score) (default: within)",
    )
    add("--max-length", metavar="N", type=parse_length, help="longest test string (default: the task's)")
    add("--name", help="name of the results folder (default: sweep-TASK-MODEL-..., or that of the experiment)")
    add_experiment_options(parser, default_seeds="the experiment's, or 1 for a task")
    parser.set_defaults(run=_sweep)


# -- options -----------------------------------------------------------------------------------------------------------


def _split_assignments(option: str, items: Sequence[str], form: str) -> dict[str, str]:
    """Return the names and values of NAME=VALUE items; each name may occur once."""
    values: dict[str, str] = {}
    for item in items:
        name, value = split_assignment(item)
        if not value:
            raise SettingsError(f"{option} {format_value(item)} has no value; write {form}")
        if name in values:
            raise SettingsError(f"{option} has {name} twice; keep one of them")
        values[name] = value
    return values


def parse_choices(text: str) -> list[Any]:
    """Parse values separated by commas; commas in brackets belong to a list.

    >>> parse_choices("1e-4,none,cosine"), parse_choices("[0.9,0.99],[0.9,0.999]")
    ([0.0001, None, 'cosine'], [[0.9, 0.99], [0.9, 0.999]])
    """
    return [parse_value(part.strip()) for part in re.split(r",(?![^\[]*\])", text)]


def name_options(message: str) -> str:
    """Return an error about an argument of the library in the words of the command line.

    >>> name_options("max_length is 0; it must be at least 1"), name_options("lr is 'a'; it must be a number")
    ('--max-length is 0; it must be at least 1', "lr is 'a'; it must be a number")
    """
    names = "|".join(LIBRARY_ARGUMENTS)
    return re.sub(rf"^({names})(?= (is|are) )", lambda match: f"--{match[1].replace('_', '-')}", message)


def _make_search(options: argparse.Namespace) -> Search:
    from sdssm.experiments.sweeps.search import Search

    return Search(
        kind=options.search,
        trials=options.trials,
        seed=options.search_seed,
        parallel=options.parallel,
        keep=options.keep,
        rungs=options.rungs,
    )


def _make_spec(options: argparse.Namespace, search: Search) -> Spec:
    """Return the experiment to search: one that is named, or one that the options describe."""
    from sdssm.experiments import get_spec, list_experiments
    from sdssm.experiments.specs.spec import CHOICES
    from sdssm.experiments.sweeps.sweep_spec import check_results_name, make_sweep_spec
    from sdssm.settings import check_one_of

    first = options.what[0]
    if first not in list_experiments() and not first.endswith(".toml"):
        _refuse(options, SPEC_OPTIONS, "narrows an experiment; name the tasks themselves, and their --model")
        grid = _split_assignments("--grid", options.grid, "NAME=V,V,...")
        choices = {name: parse_choices(text) for name, text in grid.items()}
        ranges = _split_assignments("--range", options.range, "NAME=A..B, such as lr=1e-5..1e-2")
        if not choices and not ranges:
            raise SettingsError("there is nothing to search; give values, as in --grid lr=1e-4,1e-3")
        return make_sweep_spec(
            options.what,
            model=options.model or DEFAULT_MODEL,
            preset=options.preset,
            settings=collect_settings(options),
            choices=choices,
            ranges=ranges,
            search=search,
            seeds=options.seeds or 1,
            select=options.select or "within",
            max_length=options.max_length,
            budget=options.budget,
            name=options.name,
        )
    if len(options.what) > 1:
        raise SettingsError(f"{first} is an experiment, but {options.what[1]} is given too; --tasks narrows it")
    _refuse(options, TASK_OPTIONS, "is for the sweep of a task, and an experiment defines its own; leave it out")
    spec = get_spec(first)
    check_one_of("select", options.select or spec.choose, CHOICES)
    name = spec.name if search.kind == "grid" else f"{spec.name}-{search.kind}"
    if options.name is not None:
        name = check_results_name(options.name)
    return replace(spec, name=name, choose=options.select or spec.choose)


def _refuse(options: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    for name in names:
        if getattr(options, name) not in (None, []):
            raise SettingsError(f"--{name.replace('_', '-')} {reason}")


# -- running -----------------------------------------------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> None:
    from sdssm.experiments import check_results, selected_results, write_results
    from sdssm.experiments.specs.catalogue import published_numbers
    from sdssm.experiments.sweeps.sweep import Sweep, run_sweep
    from sdssm.training.progress import progress_for

    executor = make_executor(options)  # all errors in the options are reported before anything is started
    try:
        search = _make_search(options)
        spec = _make_spec(options, search)
    except SettingsError as error:
        raise SettingsError(name_options(str(error))) from None
    folder = options.results / spec.name
    check_results(spec, folder)
    published_numbers(spec)
    selection, reused = make_selection(options), reused_folders(options.reuse)
    sweep = Sweep(spec=spec, search=search, out=options.out, selection=selection, reused=reused)
    if options.dry_run:
        _show_plan(sweep, folder, options)
        return
    command, progress = _command(options), progress_for(options.quiet, keep=False)
    with report_interrupt(options), executor:
        plan, pruned = run_sweep(
            sweep, folder, executor, command=command, progress=progress, evaluation_progress=not options.quiet
        )
        device = executor.device_name
    results = write_results(plan, folder, command=command, device=device, pruned=pruned)
    selected = selected_results(plan, pruned)
    _show_ranking(selected)
    show_results(folder, results, selected, progress=not options.quiet)


def _show_ranking(results: dict[str, Any]) -> None:
    """Print the best candidates of each cell."""
    from sdssm.report.ranking import make_ranking_table
    from sdssm.report.rendering import to_text

    table = make_ranking_table(results, MOST_CANDIDATES)
    if table is not None:
        print(make_lines_printable(to_text(table, terminal_width())))


def _show_plan(sweep: Sweep, folder: Path, options: argparse.Namespace) -> None:
    """Print what would be trained next."""
    study = sweep.load_study(folder)
    known = sum(map(len, study.by_cell.values()))
    batch = sweep.next_batch(study)
    if sweep.search.kind == "optuna" and batch:
        candidates = sum(map(len, batch.values()))
        total = len(sweep.selected_rows) * (sweep.search.trials or 0)
        print(f"The next {candidates} candidates by Optuna, after {known} of {total}:")
    show_plans([sweep.upcoming_plan(batch)], options)
    if sweep.search.kept_share < 1:
        print("It takes less time if candidates are stopped early.")


def _command(options: argparse.Namespace) -> str:
    """Return the command as the results record it: all that affects numbers, no folders or devices."""
    parts = ["sdssm", "sweep", *map(spec_argument, options.what)]
    for name in ("model", "preset", "trials", "search_seed", "parallel", "keep", "select", "max_length", "name"):
        value = getattr(options, name)
        parts += [f"--{name.replace('_', '-')}", f"{value}"] if value else []
    parts += [] if options.search == "grid" else ["--search", options.search]
    parts += ["--rungs", ",".join(f"{rung:g}" for rung in options.rungs)] if options.rungs else []
    for name in ("set", "grid", "range"):
        values = getattr(options, name)
        parts += [f"--{name}", *values] if values else []
    return join([*parts, *selection_arguments(options)])
