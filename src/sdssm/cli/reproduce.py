"""`sdssm reproduce`: a table of the paper, or of your own, by one command."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import join
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from sdssm.cli.engines import add_engine, engine_of
from sdssm.cli.evaluate import printable_lines, whole
from sdssm.cli.output import print_table, printable
from sdssm.cli.train import seeds
from sdssm.errors import SettingsError, shown

if TYPE_CHECKING:
    from sdssm.experiments import Engine, Plan, Spec

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


#: Where `sdssm train` leaves runs, and where they are looked for.
RUNS = Path("runs")


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "reproduce",
        help="a table of the paper by one command",
        description="Train, evaluate and tabulate an experiment beside the published numbers. What was trained before "
        "is taken as it is; after Ctrl-C, or if it is killed, the same command goes on.",
        epilog="sdssm reproduce table1 --models sd-ssm --dry-run, then sdssm reproduce table1 --models sd-ssm",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("spec", metavar="SPEC", nargs="?", help="an experiment by name, or a TOML file of your own")
    add("--list", action="store_true", help="name the experiments")
    add_common(one)
    one.set_defaults(run=_reproduce)


def add_common(one: argparse.ArgumentParser, seeded: str = "the experiment's") -> None:
    """What every command has that trains experiments; `reused_places` reads where runs are looked for, `seeded` says
    which seeds there are unless told."""
    add = one.add_argument
    add("--dry-run", action="store_true", help="print what would be trained and how long it would take")
    add("--budget", metavar="X", type=share, default=1.0, help="scale the steps: 0.05 trains a twentieth (default 1)")
    add("--models", metavar="MODEL", nargs="+", help="only these models of an experiment")
    add("--rows", metavar="ROW", nargs="+", help="only these rows of its table, by their labels")
    add("--tasks", metavar="TASK", nargs="+", help="only these of its tasks")
    add("--seeds", metavar="N", type=seeds, help=f"how many seeds, or which, as in 0,1,5 (default: {seeded})")
    add("--device", default="auto", help="auto (default), cpu, cuda or cuda:1")
    told = "run folders, shared by experiments (default runs/experiments)"
    add("--out", metavar="DIR", type=Path, default=Path("runs/experiments"), help=told)
    told = "take finished runs with the same settings from there (default: runs, if it is there; without DIR: nowhere)"
    add("--reuse", metavar="DIR", type=Path, nargs="*", help=told)
    add("--results", metavar="DIR", type=Path, default=Path("results"), help="where tables go (default results)")
    add("--workers", metavar="N", type=whole, default=1, help="processes that evaluate (default 1)")
    add("--quiet", action="store_true", help="no progress")
    add_engine(one)


def reused_places(options: argparse.Namespace) -> list[Path]:
    """The folders whose runs are taken."""
    given: list[Path] | None = options.reuse
    return [path for path in (RUNS,) if path.is_dir()] if given is None else given


def share(text: str) -> float:
    """A number above 0.

    >>> share("0.05")
    0.05
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no budget; give a number above 0, as 0.05")
    return value


def _reproduce(options: argparse.Namespace) -> None:
    from sdssm.experiments import check_results, spec_named

    if options.list or options.spec is None:
        _list()
        return
    spec = spec_named(options.spec)
    folder = options.results / spec.name
    engine = engine_of(options)  # all that can be wrong is said before anything is begun
    check_results(spec, folder)
    if spec.kind == "accuracy":
        _accuracy(spec, folder, engine, options)
        return
    if options.engine != "local":
        raise SettingsError(f"{spec.name} trains nothing, and --engine is about training; leave it out")
    given = [name for name in ("models", "rows", "tasks", "seeds", "dry_run") if getattr(options, name)]
    if given or options.budget != 1.0:
        name = given[0].replace("_", "-") if given else "budget"
        raise SettingsError(f"{spec.name} trains nothing, and --{name} is about training; leave it out")
    _other(spec, folder, options)


def _list() -> None:
    from sdssm.experiments import spec_named, spec_names

    rows = []
    for name in spec_names():
        spec = spec_named(name)
        runs = sum(len(row.tasks) * len(list(row.variants())) * len(row.seeds) for row in spec.rows)
        rows.append([name, str(runs) if runs else "-", spec.title])
    print_table(["experiment", "runs", "what"], rows, right=("runs",))


def _accuracy(spec: Spec, folder: Path, engine: Engine, options: argparse.Namespace) -> None:
    from sdssm.experiments import make_plan, reuse, write_results
    from sdssm.experiments.catalogue import published_numbers
    from sdssm.train.planning import checked_seeds
    from sdssm.train.progress import progress_for

    published_numbers(spec)  # a damaged file is said now, not after the training
    numbers = None if options.seeds is None else checked_seeds(options.seeds)
    plan = make_plan(
        spec,
        options.out,
        budget=options.budget,
        models=options.models,
        rows=options.rows,
        tasks=options.tasks,
        seeds=numbers,
    )
    plan = reuse(plan, reused_places(options))
    if options.dry_run:
        show_plan(plan, options.device)
        return
    try:
        with engine:
            engine.run_plan(plan, progress_for(options.quiet, keep=False))
            engine.evaluate_plan(plan, None if options.quiet or not sys.stderr.isatty() else count)
            called = engine.device_name
    except KeyboardInterrupt:
        print(f"sdssm: stopped; the same command goes on: {options.typed}", file=sys.stderr)
        raise
    found = write_results(plan, folder, command=_command(options), device=called)
    finish(folder, found)


def _other(spec: Spec, folder: Path, options: argparse.Namespace) -> None:
    from sdssm.experiments.claims import check_claims, compared
    from sdssm.experiments.results import device_name, save
    from sdssm.experiments.timing import timed

    if spec.kind == "claims":
        check_claims(spec)
    found = compared(spec, options.results) if spec.kind == "claims" else timed(spec, options.device)
    save(spec, folder, found, command=_command(options), device=device_name(options.device))
    finish(folder, found)


def finish(folder: Path, found: dict[str, Any]) -> None:
    """Tables and pictures, from what is on disk."""
    from sdssm.report.ranking import write_ranking
    from sdssm.report.tables import to_text, write_tables

    table = write_tables(folder)
    write_ranking(found, folder)
    width = get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
    print(printable_lines(to_text(table, width)), end="")
    pictures = _pictures(folder, found) if find_spec("matplotlib") is not None else []
    print(f"\nTables in {printable(str(folder))}" + (f", {len(pictures)} pictures of curves" if pictures else ""))


def _pictures(folder: Path, found: dict[str, Any]) -> list[Path]:
    """Curves of what the cells show: one picture, or one for each column where there are several rows too.

    Those that an earlier command left under other names go.
    """
    from sdssm.experiments.aggregate import key_of
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


def show_plan(plan: Plan, device: str) -> None:
    from sdssm.devices import device_named
    from sdssm.experiments.estimate import estimate
    from sdssm.experiments.runner import missing
    from sdssm.train.queue import AT_ONCE

    states: dict[str, int] = {}
    for run in plan.wanted():
        states[run.status] = states.get(run.status, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    told += f" ({elsewhere} of them elsewhere)" if (elsewhere := sum(run.reused for run in plan.wanted())) else ""
    print(f"{plan.spec.title}\n{len(plan.wanted())} runs: {told}\n")
    groups = estimate(plan, device)
    if not groups:
        left = sum(len(missing(run.folder, run.task, plan.spec.evaluate)) for run in plan.wanted())
        print("Nothing is left to train" + (f"; {left} evaluations are." if left else ", or to evaluate."))
        return
    rows = [[one.name, str(len(one.runs)), f"{one.steps:,}", _duration(one.seconds)] for one in groups]
    print_table(["side by side", "runs", "steps left", "about"], rows, right=("runs", "steps left", "about"))
    known = [one.seconds for one in groups if one.seconds is not None]
    least = "at least " if len(known) < len(groups) else "about "
    print(f"\nTraining one group after the other: {least}{_duration(sum(known))}; nothing was begun.")
    if device_named(device).type == "cuda" and len(groups) > 1:
        print(f"On a GPU up to {AT_ONCE['cuda']} groups train at once, some steps of each in turn, and may take less.")


def _duration(seconds: float | None) -> str:
    """In words.

    >>> _duration(42), _duration(4000), _duration(None)
    ('42 s', '1 h 6 min', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(int(seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def count(done: int, every: int) -> None:
    print(f"\r{done} of {every} evaluated" + ("\n" if done == every else ""), end="", file=sys.stderr, flush=True)


def _command(options: argparse.Namespace) -> str:
    """The command as far as it decides what comes out, for the results: where that went is no part of it."""
    parts = ["sdssm", "reproduce", Path(options.spec).name if options.spec.endswith(".toml") else options.spec]
    parts += [] if options.budget == 1.0 else ["--budget", f"{options.budget:g}"]
    for name in ("models", "rows", "tasks"):
        given = getattr(options, name)
        parts += [f"--{name}", *given] if given else []
    if options.seeds is not None:
        numbers = options.seeds if isinstance(options.seeds, int) else ",".join(map(str, options.seeds)) + ","
        parts += ["--seeds", str(numbers)]
    return join(parts)
