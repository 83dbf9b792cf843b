"""`sdssm train`: train models side by side, or go on where a training stopped."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from sdssm.cli.output import print_table, printable
from sdssm.errors import SdssmError, SettingsError, format_value
from sdssm.extras import import_extra
from sdssm.files import format_path
from sdssm.models import DEFAULT_MODEL

if TYPE_CHECKING:
    from sdssm.runs import RunFolder

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

#: Options that are settings under their own names.
SHORTCUTS = ("steps", "lr", "batch", "train_length")


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "train",
        help="train models on short strings",
        description="Train models on short strings, several seeds and tasks side by side, each in a folder of its own. "
        "Ctrl-C stops after the next step; --resume goes on from there.",
        epilog="sdssm train a5 --seeds 3 --out runs/a5, then sdssm evaluate runs/a5",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("tasks", metavar="TASK", nargs="*", help="such as a5, arithmetic or my.json; see sdssm tasks")
    add("--model", help=f"which model (default {DEFAULT_MODEL}); see sdssm models")
    add("--preset", help="settings by name: paper, readme, ... (default: the model's own, see sdssm models)")
    add("--seeds", metavar="N", type=seeds, help="how many seeds, or which, as in 0,1,5 (default 1)")
    add("--steps", metavar="N", type=literal, default=argparse.SUPPRESS, help="how many steps")
    add("--lr", metavar="X", type=literal, default=argparse.SUPPRESS, help="learning rate")
    add("--batch", metavar="N", type=literal, default=argparse.SUPPRESS, help="strings a step")
    add("--train-length", metavar="N", type=literal, default=argparse.SUPPRESS, help="the longest strings")
    add("--device", default="auto", help="auto (default), cpu, cuda or cuda:1")
    add("--out", metavar="DIR", type=Path, help="where the run folders go (default runs/TASK, or runs/TASK+TASK-MODEL)")
    add("--set", metavar="NAME=VALUE", nargs="+", action="extend", default=[], help="any other setting, as state=32")
    add("--resume", metavar="DIR", nargs="?", type=Path, const=True, help="go on with the runs in DIR, or in --out")
    add("--overwrite", action="store_true", help="start anew where there are runs")
    add("--quiet", action="store_true", help="no progress")
    add("--tensorboard", action="store_true", help="scalars for TensorBoard in each run folder")
    one.set_defaults(run=_train)


# -- reading options ---------------------------------------------------------------------------------------------------


def seeds(text: str) -> int | list[int]:
    """How many seeds, or which.

    >>> seeds("3"), seeds("0,1,5"), seeds("7,")
    (3, [0, 1, 5], [7])
    """
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*,?", text, re.ASCII) or text == "0":
        raise argparse.ArgumentTypeError(
            f"{format_value(text)} is neither a number of seeds, as 3, nor a list, as 0,1,5"
        )
    if "," not in text:
        return int(text)
    found = [int(part) for part in text.split(",") if part]
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{format_value(text)} holds a seed twice; keep one of them")
    return found


def literal(text: str) -> Any:
    """A value as it is written on a command line: a number, true, false, none, a JSON list, or a word.

    >>> literal("1e-3"), literal("true"), literal("None"), literal("[0.9, 0.99]"), literal("cosine")
    (0.001, True, None, [0.9, 0.99], 'cosine')
    """
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float, json.loads):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return text


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """--set and its shortcuts together."""
    found = {name: getattr(options, name) for name in SHORTCUTS if hasattr(options, name)}
    for item in options.set:
        name, equals, value = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise SettingsError(f"--set {format_value(item)} has no value; write NAME=VALUE, as in --set state=32")
        if name in found:
            raise SettingsError(f"{name} is set twice; keep one of them")
        found[name] = literal(value.strip())
    return found


# -- doing it ----------------------------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> None:
    if options.tensorboard:
        import_extra("tensorboard", "--tensorboard")  # before anything is made
    settings = given_settings(options)
    out = _where(options)
    if not options.tasks:
        _resume(options, out, settings)
        return
    from sdssm.training import progress_for, train

    with _saying_where(out):
        runs = train(
            options.tasks if len(options.tasks) > 1 else options.tasks[0],
            model=options.model or DEFAULT_MODEL,
            preset=options.preset,
            seeds=options.seeds or 1,
            device=options.device,
            out=out,
            settings=settings,
            resume=options.resume is not None,
            overwrite=options.overwrite,
            progress=progress_for(options.quiet, keep=False),
            tensorboard=options.tensorboard,
        )
    _show(runs, out)


def _where(options: argparse.Namespace) -> Path:
    """The folder that --out, --resume or the task's name says."""
    if isinstance(options.resume, Path):
        if options.out is not None and options.out != options.resume:
            raise SettingsError(
                f"--resume says {format_path(options.resume)} and --out {format_path(options.out)}; keep one of them"
            )
        return options.resume
    if options.out is not None:
        return Path(options.out)
    from sdssm.runs import default_folder

    return default_folder(options.tasks, options.model or DEFAULT_MODEL)


def _resume(options: argparse.Namespace, out: Path, settings: dict[str, Any]) -> None:
    """Go on with every run of a folder that has not ended."""
    if not isinstance(options.resume, Path):
        raise SettingsError("no task was given; as in sdssm train a5, or sdssm train --resume DIR")
    given = [*settings, *(name for name in ("model", "preset", "seeds", "overwrite") if getattr(options, name))]
    if given:
        raise SettingsError(f"--resume goes on as it began, but {given[0]} was given; name the tasks to train anew")
    from sdssm.runs import find_runs
    from sdssm.training import resume
    from sdssm.training.progress import progress_for

    found = find_runs(out)
    unfinished = [run.path for run in found if run.status in ("running", "stopped")]
    if not unfinished:
        print(f"Nothing to do: none of the {len(found)} runs in {format_path(out)} is unfinished.")
        return
    with _saying_where(out):
        runs = resume(
            out,
            device=options.device,
            progress=progress_for(options.quiet, keep=False),
            tensorboard=options.tensorboard,
        )
    _show([run for run in runs if run.path in unfinished], out)


def _show(runs: Sequence[RunFolder], out: Path) -> None:
    """What came of it, and what to type next."""
    rows = []
    for run in runs:
        at = run.progress
        accuracy = "-" if at.accuracy is None else f"{at.accuracy:.2f}"
        loss = "-" if at.loss is None else f"{at.loss:.4f}"
        rows.append([accuracy, loss, f"{at.step:,}", f"{at.seconds:,.1f}", at.status, str(run.path)])
    numbers = ("accuracy %", "loss", "steps", "seconds")
    print_table([*numbers, "status", "folder"], rows, right=numbers)
    print(f"\nAccuracy is that of the last steps, at training lengths. Longer strings: sdssm evaluate {_typed(out)}")


@contextmanager
def _saying_where(out: Path) -> Iterator[None]:
    """On Ctrl-C, say where it stopped; to standard error, where the results do not go."""
    from sdssm.runs import find_runs

    try:
        yield
    except KeyboardInterrupt:
        steps: list[int] | None
        try:
            steps = [run.step for run in find_runs(out) if run.status in ("running", "stopped")]
        except SdssmError:
            steps = None  # it had not begun
        if steps:
            at = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,}"
            print(f"sdssm: stopped at step {at}; sdssm train --resume {_typed(out)} goes on", file=sys.stderr)
        elif steps is not None:
            print(f"sdssm: stopped; the runs in {_typed(out)} had ended", file=sys.stderr)
        raise


def _typed(path: Path) -> str:
    """A path as a shell takes it."""
    return printable(quote(str(path)))
