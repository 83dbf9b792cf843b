"""`sdssm reproduce`: tables of the paper, or of your own, by one command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from sdssm.cli.engines import engine_of
from sdssm.cli.output import print_table
from sdssm.cli.plans import (
    add_common,
    counter,
    minutes,
    narrowing,
    narrowing_words,
    reused_places,
    saying_how_to_go_on,
    show_plans,
    spec_word,
)
from sdssm.cli.tables import finish
from sdssm.devices import device_name
from sdssm.errors import SettingsError
from sdssm.files import format_path
from sdssm.runs import ENDED

if TYPE_CHECKING:
    from sdssm.experiments import Engine, Plan, Spec

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "reproduce",
        help="tables of the paper by one command",
        description="Train, evaluate and tabulate experiments beside the published numbers; several of them are "
        "trained together, each run once. What was trained before is taken as it is; after Ctrl-C, or if it is killed, "
        "the same command goes on.",
        epilog="sdssm reproduce table1 --models sd-ssm --dry-run, then sdssm reproduce table1 --models sd-ssm; several "
        "together: sdssm reproduce table1 two-layers mine.toml --budget 0.02",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("specs", metavar="SPEC", nargs="*", help="experiments by name, or TOML files of your own")
    add("--list", action="store_true", help="name the experiments")
    told = "as much of the steps as takes about so many minutes here, in place of --budget"
    add("--minutes", metavar="M", type=minutes, help=told)
    add("--no-train", action="store_true", help="evaluate and tabulate what is finished, and train nothing")
    add_common(one)
    one.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> None:
    if options.list or not options.specs:
        _list()
        return
    specs = _specs(options)
    engine = engine_of(options)  # all that can be wrong is said before anything is begun
    trained = [spec for spec in specs if spec.kind == "accuracy"]
    others = [spec for kind in ("timing", "claims") for spec in specs if spec.kind == kind]
    _check(specs, options)
    plans = _plans(trained, options) if trained else []
    if options.dry_run:
        for spec in others:
            print(f"{spec.title}\nNothing is trained for it.\n")
        show_plans(plans, options.device)
        return
    with saying_how_to_go_on(options):
        if plans:
            _accuracy(plans, engine, options)
        for spec in others:  # a time is measured when nothing else runs, and claims are about what was found
            _other(spec, options)


def _list() -> None:
    from sdssm.experiments import spec_named, spec_names

    rows = []
    for name in spec_names():
        spec = spec_named(name)
        runs = sum(len(row.tasks) * len(list(row.variants())) * len(row.seeds) for row in spec.rows)
        rows.append([name, str(runs) if runs else "-", spec.title])
    print_table(["experiment", "runs", "what"], rows, right=("runs",))


def _specs(options: argparse.Namespace) -> list[Spec]:
    from sdssm.experiments import spec_named

    found: dict[str, Spec] = {}
    for text in options.specs:
        spec = spec_named(text)
        if spec.name in found:
            folder = format_path(options.results / spec.name)
            raise SettingsError(
                f"two of the experiments are called {spec.name}, and {folder} is for one; leave one out"
            )
        found[spec.name] = spec
    return list(found.values())


def _check(specs: Sequence[Spec], options: argparse.Namespace) -> None:
    """What can be wrong with them beside their trainings: a damaged file is said now, not after those."""
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
        given = ["engine"] if options.engine != "local" else []
        about = ("models", "rows", "tasks", "seeds", "minutes", "dry_run", "no_train")
        given += [name for name in about if getattr(options, name)]
        given += ["budget"] if options.budget != 1.0 else []
        if given:
            name = given[0].replace("_", "-")
            raise SettingsError(f"{specs[0].name} trains nothing, and --{name} is about training; leave it out")


def _plans(specs: Sequence[Spec], options: argparse.Namespace) -> list[Plan]:
    """Those of the experiments that something is left of."""
    from sdssm.experiments import make_plans, reuse

    if options.minutes is not None:
        options.budget = _budget(specs, options)
    part = narrowing(options)
    plans = [reuse(plan, reused_places(options)) for plan in make_plans(specs, options.out, part)]
    for spec in specs:
        if not part.leaves(spec):
            asked = " and ".join(f"--{name}" for name in part.given)
            print(f"sdssm: {spec.name} is skipped: {asked} leave nothing of it", file=sys.stderr)
    left = [plan for plan in plans if part.leaves(plan.spec)]
    if options.no_train and not any(run.status in ENDED for plan in left for run in plan.wanted()):
        where = format_path(options.out)
        raise SettingsError(f"nothing of it is finished in {where}, and --no-train trains nothing; leave it out")
    return left


def _budget(specs: Sequence[Spec], options: argparse.Namespace) -> float:
    """That of the minutes asked for, with what the calibration knows: the same again when the command is repeated."""
    from sdssm.experiments import make_plans, together
    from sdssm.experiments.planning.estimates import budget_for, estimate

    if options.budget != 1.0:
        raise SettingsError("--minutes chooses the budget, and --budget is one; leave one of them out")
    if options.engine != "local":
        raise SettingsError("--minutes measures this machine, and the engine trains on others; give a --budget")
    groups = estimate(together(make_plans(specs, options.out, narrowing(options))), options.device)
    budget = budget_for(groups, 60 * options.minutes)
    part = f"--budget {budget:g} takes about" if budget < 1 else "all steps take at most"
    print(f"sdssm: {part} {options.minutes:g} minutes here", file=sys.stderr)
    return budget


def _accuracy(plans: Sequence[Plan], engine: Engine, options: argparse.Namespace) -> None:
    """Train all together; then one after the other, since two may ask for other evaluations of the same run."""
    from sdssm.experiments import together, write_results
    from sdssm.experiments.execution.runner import unfinished
    from sdssm.training.progress import progress_for

    with engine:
        if not options.no_train:
            engine.run_plan(together(plans), progress_for(options.quiet, keep=False))
        for plan in plans:
            engine.evaluate_plan(plan, counter(options))
            folder = options.results / plan.spec.name
            found = write_results(plan, folder, command=_command(options), device=engine.device_name)
            left = len(unfinished(plan)) if options.no_train else 0
            note = f"{left} of {len(plan.wanted())} runs are not finished; --no-train trains none"
            _finish(folder, found, options, note if left else "")


def _other(spec: Spec, options: argparse.Namespace) -> None:
    from sdssm.experiments.results.claims import compared
    from sdssm.experiments.results.folder import save
    from sdssm.experiments.results.timing import timed

    folder = options.results / spec.name
    found = compared(spec, options.results) if spec.kind == "claims" else timed(spec, options.device)
    save(spec, folder, found, command=_command(options), device=device_name(options.device))
    _finish(folder, found, options)


def _finish(folder: Path, found: dict[str, Any], options: argparse.Namespace, note: str = "") -> None:
    finish(folder, found)
    if note:
        print(note)
    if len(options.specs) > 1:
        print()  # before the next one


def _command(options: argparse.Namespace) -> str:
    """The command as far as it decides what comes out, for the results: where that went is no part of it, but what was
    trained beside it is."""
    return join(["sdssm", "reproduce", *map(spec_word, options.specs), *narrowing_words(options)])
