"""`sdssm sweep`: look for the settings of a model that serve a task best."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from sdssm.cli.engines import engine_of
from sdssm.cli.evaluate import printable_lines, whole
from sdssm.cli.plans import (
    add_common,
    counter,
    narrowing,
    narrowing_words,
    reused_places,
    saying_how_to_go_on,
    show_plans,
    spec_word,
)
from sdssm.cli.tables import finish, table_width
from sdssm.cli.train import given_settings, literal
from sdssm.errors import SettingsError, format_value
from sdssm.models import DEFAULT_MODEL

if TYPE_CHECKING:
    from sdssm.experiments.specs.spec import Spec
    from sdssm.experiments.sweeps.search import Search
    from sdssm.experiments.sweeps.sweep import Sweep

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

#: Candidates of each cell that are printed; the files have all.
SHOWN = 20
#: Options that make an experiment of a task: a spec has its own.
OF_A_TASK = ("model", "preset", "set", "grid", "range", "max_length")
#: Options that only narrow a spec.
OF_A_SPEC = ("models", "rows", "tasks")


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "sweep",
        help="search for the best settings",
        description="Train a model with many settings, side by side where they share a shape, and rank them: all of a "
        "grid, some at random, or with Optuna. What was trained before is taken as it is; after Ctrl-C, or if it is "
        "killed, the same command goes on.",
        epilog="sdssm sweep a5 --model mamba --grid lr=1e-4,1e-3 --grid weight_decay=0,1e-4 --seeds 3, or sdssm sweep "
        "a5 --search optuna --trials 40 --range lr=1e-5..1e-2 --choice state=32,64",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("what", metavar="TASK", nargs="+", help="such as a5; or one experiment with a grid, by name or as a TOML file")
    add("--model", help=f"which model (default {DEFAULT_MODEL}); see sdssm models")
    add("--preset", help="settings by name, for what is not searched (default: the model's own)")
    add("--set", metavar="NAME=VALUE", nargs="+", action="extend", default=[], help="other settings, as steps=2000")
    for names, form, words in (
        (("--grid", "--choice"), "NAME=V,V,...", "values to try for a setting, as lr=1e-4,1e-3"),
        (("--range",), "NAME=A..B", "numbers to draw from, as lr=1e-5..1e-2 or dropout=0..0.5:linear"),
    ):
        add(*names, metavar=form, nargs="+", action="extend", default=[], help=words)
    add("--search", default="grid", metavar="KIND", help="grid (default), random or optuna")
    add("--trials", metavar="N", type=whole, help="candidates of a random or Optuna search")
    add("--search-seed", metavar="N", type=whole, default=0, help="of what is drawn (default 0)")
    add("--parallel", metavar="N", type=whole, help="candidates that train at once (default all, with optuna 8)")
    add("--keep", metavar="X", type=_number, help="share that goes on at each rung (default 1, with optuna 0.5)")
    add("--rungs", metavar="X,X", type=_numbers, help="where, as shares of the steps (default 0.25,0.5)")
    add("--select", metavar="BY", help="within: accuracy at training lengths (default); score: at test lengths")
    add("--max-length", metavar="N", type=whole, help="the longest test strings (default: the task's)")
    add("--name", help="of the results folder (default sweep-TASK-MODEL-..., or the experiment's)")
    add_common(one, seeded="the experiment's, of a task 1")
    one.set_defaults(run=_sweep)


# -- reading options ---------------------------------------------------------------------------------------------------


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a number") from None


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(_number(part) for part in text.split(","))


def _parted(option: str, items: Sequence[str], form: str) -> dict[str, str]:
    """NAME=TEXT, each name once."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or not text.strip():
            raise SettingsError(f"{option} {format_value(item)} has no value; write {form}")
        if name in found:
            raise SettingsError(f"{option} has {name} twice; keep one of them")
        found[name] = text.strip()
    return found


def values(text: str) -> list[Any]:
    """Values between commas; those of a list in brackets belong to it.

    >>> values("1e-4,none,cosine"), values("[0.9,0.99],[0.9,0.999]")
    ([0.0001, None, 'cosine'], [[0.9, 0.99], [0.9, 0.999]])
    """
    return [literal(part.strip()) for part in re.split(r",(?![^\[]*\])", text)]


def _search(options: argparse.Namespace) -> Search:
    from sdssm.experiments.sweeps.search import Search

    return Search(
        kind=options.search,
        trials=options.trials,
        seed=options.search_seed,
        parallel=options.parallel,
        keep=options.keep,
        rungs=options.rungs,
    )


def _spec(options: argparse.Namespace, search: Search) -> Spec:
    """What is searched: an experiment by its name, or one made of the options."""
    from sdssm.experiments import spec_named, spec_names
    from sdssm.experiments.specs.spec import CHOICES
    from sdssm.experiments.sweeps.sweep_spec import checked_name, sweep_spec
    from sdssm.settings import check_one_of

    first = options.what[0]
    if first not in spec_names() and not first.endswith(".toml"):
        _refuse(options, OF_A_SPEC, "narrows an experiment; name the tasks themselves, and their --model")
        choices = {name: values(text) for name, text in _parted("--grid", options.grid, "NAME=V,V,...").items()}
        ranges = _parted("--range", options.range, "NAME=A..B, as lr=1e-5..1e-2")
        if not choices and not ranges:
            raise SettingsError("there is nothing to search; give values, as in --grid lr=1e-4,1e-3")
        return sweep_spec(
            options.what,
            model=options.model or DEFAULT_MODEL,
            preset=options.preset,
            settings=given_settings(options),
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
        raise SettingsError(f"{first} is an experiment, and {options.what[1]} is given too; --tasks narrows it")
    _refuse(options, OF_A_TASK, "is for the sweep of a task, and an experiment has its own; leave it out")
    spec = spec_named(first)
    check_one_of("select", options.select or spec.choose, CHOICES)
    name = spec.name if search.kind == "grid" else f"{spec.name}-{search.kind}"
    called = name if options.name is None else checked_name(options.name)
    return replace(spec, name=called, choose=options.select or spec.choose)


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(options, name) not in (None, []):
            raise SettingsError(f"--{name.replace('_', '-')} {why}")


# -- doing it ----------------------------------------------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> None:
    from sdssm.experiments import check_results, write_results
    from sdssm.experiments.specs.catalogue import published_numbers
    from sdssm.experiments.sweeps.sweep import Sweep, run_sweep
    from sdssm.training.progress import progress_for

    engine = engine_of(options)  # all that can be wrong is said before anything is begun
    search = _search(options)
    spec = _spec(options, search)
    folder = options.results / spec.name
    check_results(spec, folder)
    published_numbers(spec)
    sweep = Sweep(spec=spec, search=search, out=options.out, part=narrowing(options), reused=reused_places(options))
    if options.dry_run:
        _show(sweep, folder, options.device)
        return
    command, progress = _command(options), progress_for(options.quiet, keep=False)
    with saying_how_to_go_on(options), engine:
        plan, pruned = run_sweep(sweep, folder, engine, command=command, progress=progress, found=counter(options))
        called = engine.device_name
    found = write_results(plan, folder, command=command, device=called, pruned=pruned)
    _rank(found)
    finish(folder, found)


def _rank(found: dict[str, Any]) -> None:
    """The best candidates, above the table that shows the best of all."""
    from sdssm.report.ranking import ranking_of
    from sdssm.report.tables import to_text

    table = ranking_of(found, SHOWN)
    if table is not None:
        print(printable_lines(to_text(table, table_width())))


def _show(sweep: Sweep, folder: Path, device: str) -> None:
    trials = sweep.trials(folder)
    known = {cell: len(some) for cell, some in trials.of.items()}
    batch = sweep.next(trials)
    if sweep.search.kind == "optuna" and batch:
        some = sum(map(len, batch.values()))
        every = len(sweep.wanted) * (sweep.search.trials or 0)
        print(f"The next {some} candidates by Optuna, after {sum(known.values())} of {every}:")
    show_plans([sweep.ahead(batch)], device)
    if sweep.search.kept < 1:
        print("Less where candidates stop early.")


def _command(options: argparse.Namespace) -> str:
    """The command as far as it decides what comes out, for the results: where that went is no part of it."""
    parts = ["sdssm", "sweep", *map(spec_word, options.what)]
    for name in ("model", "preset", "trials", "search_seed", "parallel", "keep", "select", "max_length", "name"):
        given = getattr(options, name)
        parts += [f"--{name.replace('_', '-')}", f"{given}"] if given else []
    parts += [] if options.search == "grid" else ["--search", options.search]
    parts += ["--rungs", ",".join(f"{one:g}" for one in options.rungs)] if options.rungs else []
    for name in ("set", "grid", "range"):
        given = getattr(options, name)
        parts += [f"--{name}", *given] if given else []
    return join([*parts, *narrowing_words(options)])
