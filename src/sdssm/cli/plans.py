"""What commands that train experiments have in common: options, the plans of a dry run, and what they say meanwhile."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.engines import add_engine
from sdssm.cli.evaluate import whole
from sdssm.cli.output import print_table
from sdssm.cli.train import seeds
from sdssm.errors import format_value

if TYPE_CHECKING:
    from sdssm.experiments import Narrowing, Plan
    from sdssm.experiments.execution.executors import Found
    from sdssm.experiments.planning.estimates import GroupEstimate

#: Where `sdssm train` leaves runs, and where they are looked for.
RUNS = Path("runs")


# -- options -----------------------------------------------------------------------------------------------------------


def add_common(one: argparse.ArgumentParser, seeded: str = "the experiment's") -> None:
    """What every command has that trains experiments; `narrowing` and `reused_places` read some of it, `seeded` says
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


def share(text: str) -> float:
    """A number above 0.

    >>> share("0.05")
    0.05
    """
    return _above_zero(text, 1000, "is no budget; give a number above 0, as 0.05")


def minutes(text: str) -> float:
    """The same, up to a year.

    >>> minutes("2.5")
    2.5
    """
    return _above_zero(text, 525_600, "are no minutes; give a number above 0, as 10")


def _above_zero(text: str, most: float, wrong: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"{format_value(text)} {wrong}")
    return value


def reused_places(options: argparse.Namespace) -> list[Path]:
    """The folders whose runs are taken."""
    given: list[Path] | None = options.reuse
    return [path for path in (RUNS,) if path.is_dir()] if given is None else given


def narrowing(options: argparse.Namespace) -> Narrowing:
    """Which part of an experiment is trained."""
    from sdssm.experiments import Narrowing

    return Narrowing(
        models=options.models, rows=options.rows, tasks=options.tasks, seeds=options.seeds, budget=options.budget
    )


def narrowing_words(options: argparse.Namespace) -> list[str]:
    """The same as it is typed, for the results."""
    words = [] if options.budget == 1.0 else ["--budget", f"{options.budget:g}"]
    for name in ("models", "rows", "tasks"):
        given = getattr(options, name)
        words += [f"--{name}", *given] if given else []
    if options.seeds is not None:
        numbers = options.seeds if isinstance(options.seeds, int) else ",".join(map(str, options.seeds)) + ","
        words += ["--seeds", str(numbers)]
    return words


def spec_word(text: str) -> str:
    """An experiment as it is typed, for the results: where its file lies is no part of it."""
    return Path(text).name if text.endswith(".toml") else text


# -- a dry run ---------------------------------------------------------------------------------------------------------


def show_plans(plans: Sequence[Plan], device: str) -> None:
    """What each plan has, and what all of them have still to train, with the time that it takes here."""
    from sdssm.experiments import together
    from sdssm.experiments.execution.runner import missing
    from sdssm.experiments.planning.estimates import estimate

    seen = set[Path]()
    for plan in plans:
        wanted = plan.wanted()
        told = ", ".join(f"{count} {state}" for state, count in Counter(run.status for run in wanted).items())
        told += f" ({elsewhere} of them elsewhere)" if (elsewhere := sum(run.reused for run in wanted)) else ""
        told += f"; {above} of them above too" if (above := sum(run.folder in seen for run in wanted)) else ""
        print(f"{plan.spec.title}\n{len(wanted)} runs: {told}\n")
        seen |= {run.folder for run in wanted}
    if groups := estimate(together(plans), device):
        _show_groups(groups, device)
        return
    left = sum(len(missing(run.folder, run.task, plan.spec.evaluate)) for plan in plans for run in plan.wanted())
    print("Nothing is left to train" + (f"; {left} evaluations are." if left else ", or to evaluate."))


def _show_groups(groups: Sequence[GroupEstimate], device: str) -> None:
    from sdssm.devices import resolve_device
    from sdssm.training.queue import AT_ONCE

    rows = [[one.name, str(len(one.runs)), f"{one.steps:,}", _duration(one.seconds)] for one in groups]
    print_table(["side by side", "runs", "steps left", "about"], rows, right=("runs", "steps left", "about"))
    known = [one.seconds for one in groups if one.seconds is not None]
    least = "at least " if len(known) < len(groups) else "about "
    print(f"\nTraining one group after the other: {least}{_duration(sum(known))}; nothing was begun.")
    if resolve_device(device).type == "cuda" and len(groups) > 1:
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


# -- while it runs -----------------------------------------------------------------------------------------------------


def counter(options: argparse.Namespace) -> Found | None:
    """Who is told how many runs are evaluated: a terminal, unless it is to be quiet."""
    return None if options.quiet or not sys.stderr.isatty() else _count


def _count(done: int, every: int) -> None:
    print(f"\r{done} of {every} evaluated" + ("\n" if done == every else ""), end="", file=sys.stderr, flush=True)


@contextmanager
def saying_how_to_go_on(options: argparse.Namespace) -> Iterator[None]:
    """On Ctrl-C; to standard error, where the results do not go."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"sdssm: stopped; the same command goes on: {options.typed}", file=sys.stderr)
        raise
