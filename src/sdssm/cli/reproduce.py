"""`sdssm reproduce`: train and tabulate experiments of the paper, or your own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
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
from sdssm.cli.mlregtest import add_language_options, check_no_language_options, reproduce_languages
from sdssm.cli.options import declare_command, parse_minutes
from sdssm.cli.output import print_table, print_text
from sdssm.cli.plans import report_interrupt, show_plans
from sdssm.cli.tables import show_results
from sdssm.devices import check_device_names
from sdssm.errors import OutputError, SettingsError
from sdssm.experiments.default_folders import reused_folders
from sdssm.experiments.mlregtest.reproduction import NAME as MLREGTEST
from sdssm.experiments.mlregtest.reproduction import TITLE as MLREGTEST_TITLE
from sdssm.files import format_path
from sdssm.formatting import UNKNOWN

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.experiments import Executor, Plan, Spec


#: A training with a smaller share of its steps says little about the whole.
FEW_STEPS = 0.1


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "reproduce",
        summary="reproduce tables of the paper",
        description="Train, evaluate and tabulate experiments next to the published numbers. Several experiments are "
        "trained together, and a run that they share is trained once. Finished runs are not trained again; after an "
        "interruption, the same command continues.",
        examples=[
            "sdssm reproduce --list",
            "sdssm reproduce table1 --models sd-ssm --dry-run",
            "sdssm reproduce table1 two-layers mine.toml --budget 0.02",
            "sdssm reproduce mlregtest --data att --languages tuning",
        ],
    )
    add = parser.add_argument
    add("specs", metavar="SPEC", nargs="*", help="name of an experiment, or your own TOML file")
    add("--list", action="store_true", help="list the experiments")
    add(
        "--minutes",
        metavar="M",
        type=parse_minutes,
        help="choose the --budget so that training takes about M minutes on this machine",
    )
    add(
        "--no-train",
        action="store_true",
        help="train nothing; evaluate and tabulate the finished runs, or show the stored results if there are none",
    )
    add_experiment_options(parser)
    add_language_options(parser)
    parser.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> None:
    if options.list or not options.specs:
        _list_experiments()
        return
    if MLREGTEST in options.specs:
        with report_interrupt(options):
            reproduce_languages(options)
        return
    check_no_language_options(options)
    specs = _load_specs(options)
    executor = make_executor(options)  # all errors in the options are reported before anything is started
    accuracy_specs = [spec for spec in specs if spec.kind == "accuracy"]
    other_specs = [spec for kind in ("timing", "claims") for spec in specs if spec.kind == kind]
    _check(specs, options)
    plans = _make_plans(accuracy_specs, options) if accuracy_specs else []
    if options.dry_run:
        for spec in other_specs:
            print(f"{spec.title}\nNothing is trained for it.\n")
        if plans:
            show_plans(plans, options)
        return
    with report_interrupt(options):
        if plans:
            _run_accuracy(plans, executor, options)
        for spec in other_specs:  # after training: timings need an idle machine, and claims compare the results
            _run_untrained(spec, options)


def _list_experiments() -> None:
    from sdssm.experiments.specs.catalogue import summarise_experiments

    rows = [[entry.name, str(entry.runs or UNKNOWN), entry.title] for entry in summarise_experiments()]
    rows.append([MLREGTEST, "980", MLREGTEST_TITLE])
    print_table(["experiment", "runs", "title"], rows, right=("runs",))
    print()
    print_text(f"{UNKNOWN}: nothing is trained for it. sdssm reproduce NAME --dry-run shows what NAME would train.")


def _load_specs(options: argparse.Namespace) -> list[Spec]:
    from sdssm.experiments import get_spec

    specs: dict[str, Spec] = {}
    for text in options.specs:
        spec = get_spec(text)
        if spec.name in specs:
            folder = format_path(options.results / spec.name)
            raise SettingsError(
                f"two of the experiments are called {spec.name} and would share {folder}; leave one of them out"
            )
        specs[spec.name] = spec
    return list(specs.values())


def _check(specs: Sequence[Spec], options: argparse.Namespace) -> None:
    """Check result folders, published numbers and options before anything is trained."""
    from sdssm.experiments import check_results
    from sdssm.experiments.results.claims import check_claims
    from sdssm.experiments.specs.catalogue import published_numbers

    for spec in specs:
        check_results(spec, options.results / spec.name)
        if spec.kind == "claims":
            check_claims(spec)
        else:
            published_numbers(spec)
    if all(spec.kind != "accuracy" for spec in specs):
        unused = ["engine"] if options.engine != "local" else []
        unused += [
            name for name in ("models", "rows", "tasks", "seeds", "minutes", "no_train") if getattr(options, name)
        ]
        unused += ["budget"] if options.budget != 1.0 else []
        if unused:
            name = unused[0].replace("_", "-")
            raise SettingsError(f"{specs[0].name} trains nothing, and --{name} is about training; leave it out")


def _make_plans(specs: Sequence[Spec], options: argparse.Namespace) -> list[Plan]:
    """Return the plans of the experiments of which at least one cell is selected."""
    from sdssm.experiments import make_plans, reuse_runs

    if options.minutes is not None:
        options.budget = _choose_budget(specs, options)
    selection = make_selection(options)
    plans = [reuse_runs(plan, reused_folders(options.reuse)) for plan in make_plans(specs, options.out, selection)]
    for spec in specs:
        if not selection.keeps(spec):
            narrowed_by = " and ".join(f"--{name}" for name in selection.filters)
            print(f"sdssm: {spec.name} is skipped: {narrowed_by} leave nothing of it", file=sys.stderr)
    left = [plan for plan in plans if selection.keeps(plan.spec)]
    # A list, not any(): a damaged file is an error even if another experiment has results.
    usable = [_has_ended_run(plan) or _read_stored(plan, options) is not None for plan in left if options.no_train]
    if options.no_train and not any(usable):
        raise SettingsError(
            f"{format_path(options.out)} holds no finished run of it, {format_path(options.results)} no results, and "
            "--no-train trains nothing; leave out --no-train"
        )
    return left


def _has_ended_run(plan: Plan) -> bool:
    from sdssm.runs import FINAL_STATUSES

    return any(run.status in FINAL_STATUSES for run in plan.selected_runs())


def _read_stored(plan: Plan, options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the stored results of an experiment; None if there are none."""
    from sdssm.experiments.json_files import read_json
    from sdssm.experiments.results.folder import RESULTS

    path = options.results / plan.spec.name / RESULTS
    results = read_json(path)
    if results is None and path.exists():
        raise OutputError(f"{format_path(path)} is damaged; restore it, or leave out --no-train to write it again")
    return results


def _choose_budget(specs: Sequence[Spec], options: argparse.Namespace) -> float:
    """Return the budget that takes the minutes of --minutes; the same when the command is repeated."""
    from sdssm.experiments import make_plans, merge_plans
    from sdssm.experiments.planning.estimates import budget_for, estimate_plan

    if options.budget != 1.0:
        raise SettingsError("--minutes chooses the budget, so --budget cannot be given too; leave one of them out")
    if options.engine != "local":
        raise SettingsError("--minutes measures this machine, but the engine trains on others; give a --budget")
    plan = merge_plans(make_plans(specs, options.out, make_selection(options)))
    devices = check_device_names(options.device)
    groups = estimate_plan(plan, devices[0], progress=not options.quiet)
    budget = budget_for(groups, 60 * options.minutes * max(1, min(len(devices), len(groups))))
    part = f"--budget {budget:g} takes about" if budget < 1 else "all steps take at most"
    print(f"sdssm: {part} {options.minutes:g} minutes on this machine", file=sys.stderr)
    if budget < FEW_STEPS:
        planned = max(group.steps for group in groups)
        steps = max(1, round(planned * budget))
        print(
            f"sdssm: warning: that is {steps:,} of {planned:,} steps; most models need far more to learn, so expect "
            "accuracies near chance",
            file=sys.stderr,
        )
    return budget


def _run_accuracy(plans: Sequence[Plan], executor: Executor, options: argparse.Namespace) -> None:
    """Train all plans together, then evaluate them one after the other.

    They are evaluated in turn because two experiments may evaluate the same run differently.
    """
    from sdssm.experiments import merge_plans, selected_results, write_results
    from sdssm.experiments.planning.remaining import unfinished_runs
    from sdssm.training.progress import progress_for

    with executor:
        if not options.no_train:
            executor.run_plan(merge_plans(plans), progress_for(options.quiet, keep=False))
        for plan in plans:
            if options.no_train and not _has_ended_run(plan):
                _show_stored(plan, options)
                continue
            executor.evaluate_plan(plan, progress=not options.quiet)
            folder = options.results / plan.spec.name
            results = write_results(plan, folder, command=_command(options), device=executor.device_name)
            left = len(unfinished_runs(plan)) if options.no_train else 0
            note = f"{left} of {len(plan.selected_runs())} runs are not finished; --no-train trains none"
            _finish(folder, results, options, note if left else "", selected_results(plan))


def _show_stored(plan: Plan, options: argparse.Namespace) -> None:
    """Write and print the tables and plots of stored results, of which no run is here."""
    from sdssm.experiments.results.folder import RESULTS

    folder, results = options.results / plan.spec.name, _read_stored(plan, options)
    if results is not None:
        _finish(folder, results, options, f"all from {format_path(folder / RESULTS)}; no finished run is here")
    else:
        print(f"sdssm: {plan.spec.name} is skipped: it has no finished run and no results", file=sys.stderr)


def _run_untrained(spec: Spec, options: argparse.Namespace) -> None:
    """Measure the times of an experiment, or compare its claims with the results."""
    from sdssm.experiments.reproduction import measure_untrained

    folder, command = options.results / spec.name, _command(options)
    device = check_device_names(options.device)[0]
    results = measure_untrained(spec, folder, device, command=command, progress=not options.quiet)
    _finish(folder, results, options)


def _finish(
    folder: Path,
    results: dict[str, Any],
    options: argparse.Namespace,
    note: str = "",
    selected: dict[str, Any] | None = None,
) -> None:
    show_results(folder, results, selected, progress=not options.quiet)
    if note:
        print(note)
    if len(options.specs) > 1:
        print()  # an empty line before the next experiment


def _command(options: argparse.Namespace) -> str:
    """Return the command as the results record it: all that affects numbers, no folders or devices."""
    return join(["sdssm", "reproduce", *map(spec_argument, options.specs), *selection_arguments(options)])
