"""`sdssm train`: train models side by side, or resume an interrupted training."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.cli.choices import list_choices
from sdssm.cli.model_options import add_model_option, add_trust_option, import_models
from sdssm.cli.options import (
    DEVICES_HELP,
    SETTING_OPTIONS,
    collect_settings,
    declare_command,
    parse_devices,
    parse_seeds,
    parse_value,
)
from sdssm.cli.output import print_facts, print_table, print_text, quote_argument
from sdssm.devices import check_device_names
from sdssm.errors import RunError, SdssmError, SettingsError
from sdssm.extras import import_extra
from sdssm.files import format_path
from sdssm.first_start import start_compiling
from sdssm.formatting import count_of, format_chance, format_loss, format_percent
from sdssm.models.catalogue import DEFAULT_MODEL
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.evaluation.sampled_accuracy import SampledAccuracy
    from sdssm.runs import RunFolder
    from sdssm.runs.schema import Settings
    from sdssm.tasks import Task
    from sdssm.tasks.facts import TaskFacts

#: States of a run that `--resume` continues.
UNFINISHED = ("running", "stopped")
#: Below the table of a training.
EXPLANATION = (
    "balanced: at training lengths, on strings whose labels are equally frequent, so that a constant answer scores "
    "chance. accuracy: on the training strings of the last steps, beside the best constant answer on them."
)


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "train",
        summary="train models on short strings",
        description="Train models on short strings. Several tasks and seeds are trained side by side, each run in its "
        "own folder. Ctrl-C stops after the current step; --resume continues from there.",
        examples=[
            "sdssm train a5 --seeds 3 --out runs/a5",
            "sdssm train parity cycle --model mamba --steps 5000 --set state=32",
            "sdssm train parity --model my_package.models:Gru --set width=32",
            "sdssm train my.json --dry-run",
            "sdssm train --resume runs/a5",
        ],
    )
    add = parser.add_argument
    add("tasks", metavar="TASK", nargs="*", help="task to train on, such as a5 or my.json; see sdssm tasks")
    add_model_option(parser, f"model to train (default: {DEFAULT_MODEL}), or that of the runs to resume")
    add("--preset", help="named settings of the model (default: chosen for model and task); see sdssm models")
    add("--seeds", metavar="N", type=parse_seeds, help="number of seeds, or a list such as 0,1,5 (default: 1)")
    add("--steps", metavar="N", type=parse_value, default=argparse.SUPPRESS, help="number of training steps")
    add("--lr", metavar="X", type=parse_value, default=argparse.SUPPRESS, help="learning rate")
    add("--batch", metavar="N", type=parse_value, default=argparse.SUPPRESS, help="strings per step")
    add("--state", metavar="N", type=parse_value, default=argparse.SUPPRESS, help="entries of the state, or auto")
    add("--train-length", metavar="N", type=parse_value, default=argparse.SUPPRESS, help="longest training string")
    add("--device", default="auto", type=parse_devices, help=DEVICES_HELP)
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="parent of the run folders (default: runs/TASK, followed by the model, the preset and the settings that "
        "are not the default ones)",
    )
    add(
        "--set",
        metavar="NAME=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="any other settings, such as state=32; sdssm settings MODEL lists all of them with their defaults",
    )
    add(
        "--resume",
        metavar="DIR",
        nargs="?",
        type=Path,
        const=True,
        help="continue the unfinished runs in DIR; without DIR, the runs of this command",
    )
    add_trust_option(parser, "with --resume: ")
    add("--overwrite", action="store_true", help="replace runs that exist already")
    add("--dry-run", action="store_true", help="print the facts about the tasks and their training strings, then exit")
    add("--quiet", action="store_true", help="print no progress, and one line at the end instead of a table")
    add("--tensorboard", action="store_true", help="also write scalars for TensorBoard into each run folder")
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> None:
    if options.tensorboard:
        import_extra("tensorboard", "--tensorboard")  # before any folder is created
    settings = collect_settings(options)
    facts = _check_options(options, settings)
    out = _out_folder(options, settings)
    choices = list_choices(options.tasks, options.model, options.preset, settings)
    if options.dry_run:
        for line in choices:
            print_text(line)
        _show_plan(facts, out, options, settings)
        return
    if not options.tasks:
        _resume(options, out)
        return
    if options.device in ("auto", "cpu") and options.model == DEFAULT_MODEL:
        start_compiling()
    from sdssm.training import progress_for, train
    from sdssm.training.progress import AnnouncingProgress

    lines = [make_printable(str(line)) for line in (*choices, *facts)]
    with _report_interrupt(out):
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
            progress=AnnouncingProgress(progress_for(options.quiet, keep=False), lines),
            tensorboard=options.tensorboard,
        )
    _show_runs(runs, out, options)


def _check_options(options: argparse.Namespace, settings: dict[str, Any]) -> list[TaskFacts]:
    """Raise an error for unknown tasks, models, presets and settings, before torch is imported.

    Returns the facts about each task.
    """
    if options.resume is not None and options.overwrite:
        raise SettingsError("--resume continues runs and --overwrite replaces them; leave one of them out")
    if options.out is not None and str(options.out) in ("", "."):
        raise SettingsError("--out is the current folder; name a folder for the runs, as in --out runs/a5")
    from sdssm.models.registry import find_entry
    from sdssm.tasks.facts import describe_task
    from sdssm.tasks.library import get_task
    from sdssm.tasks.reach import check_labels, check_reach

    if options.dry_run and not options.tasks:
        raise SettingsError("--dry-run describes a training that is not started; name a task, as in sdssm train a5")
    if options.trust and options.tasks:
        raise SettingsError("--trust is about the folders of --resume DIR; name your own model with --model instead")
    model = options.model or DEFAULT_MODEL
    if options.tasks:
        model = options.model = find_entry(model).name  # an import path is registered under its name
    facts = []
    for name in options.tasks:
        task = get_task(name)
        resolved = _resolve(options, settings, task)
        length = resolved.train.train_length or task.train_length
        check_labels(task)
        starts_anywhere = resolved.model.state_embedding is not None  # then every transition is taken
        if not starts_anywhere and not resolved.train.allow_unidentified:
            check_reach(task, length)
        facts.append(describe_task(task, length, "uniform" if starts_anywhere else resolved.train.sampling))
    return facts


def _show_plan(facts: Sequence[TaskFacts], out: Path, options: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Print what would be trained, and the fact sheet of each task."""
    from sdssm.tasks.library import get_task

    seeds = options.seeds or 1
    runs = len(facts) * (seeds if isinstance(seeds, int) else len(seeds))
    print(f"{count_of(runs, 'run')} of {options.model} in {format_path(out)}; nothing was started.\n")
    for name, task_facts in zip(options.tasks, facts, strict=True):
        train = _resolve(options, settings, get_task(name)).train
        steps = f"{count_of(train.steps, 'step')} of {count_of(train.batch, 'string')}"
        print_facts(task_facts.task, {"training": steps, **task_facts.to_lines()})
    devices = check_device_names(options.device)
    if len(devices) > 1:
        _show_groups(options, settings, out, devices)


def _show_groups(options: argparse.Namespace, settings: dict[str, Any], out: Path, devices: Sequence[str]) -> None:
    """Print the groups of runs that several devices would share."""
    from sdssm.training.planning import group_runs, plan_runs

    _, planned = plan_runs(
        options.tasks,
        model=options.model,
        preset=options.preset,
        seeds=options.seeds or 1,
        steps=None,
        out=out,
        settings=settings,
        variants=None,
        device=None,
    )
    groups = group_runs(planned, lambda plan: (plan[2], plan[1]))
    rows = []
    for group in groups:
        names = ", ".join(dict.fromkeys(task.name for _, task, _ in group))
        rows.append([f"{options.model} on {names}", str(len(group)), f"{group[0][2].train.steps:,}"])
    print()
    print_table(["side by side", "runs", "steps"], rows, right=("runs", "steps"))
    print()
    print_text(f"{', '.join(devices)} share the groups; the longest start first.")
    if len(groups) < len(devices):
        print_text(f"There {'is' if len(groups) == 1 else 'are'} fewer groups than devices; a group trains on one.")


def _resolve(options: argparse.Namespace, settings: dict[str, Any], task: Task) -> Settings:
    """Return the settings of the training on a task, with those of its preset."""
    from sdssm.runs.schema import choose_preset, resolve_settings

    preset = options.preset or choose_preset(options.model, task, settings.get("train_length"))
    return resolve_settings(options.model, preset, task, settings)


def _out_folder(options: argparse.Namespace, settings: dict[str, Any]) -> Path:
    """Return the folder given by --resume or --out, or the default one of the tasks."""
    if isinstance(options.resume, Path):
        if options.out is not None and options.out != options.resume:
            resumed, out = format_path(options.resume), format_path(options.out)
            raise SettingsError(f"--resume is {resumed}, but --out is {out}; keep one of them")
        return options.resume
    if options.out is not None:
        return Path(options.out)
    from sdssm.runs.find import default_folder
    from sdssm.tasks import get_task

    tasks = [get_task(name) for name in options.tasks]
    return default_folder(tasks, options.model or DEFAULT_MODEL, options.preset, settings)


def _resume(options: argparse.Namespace, out: Path) -> None:
    """Continue every unfinished run of a folder."""
    if not isinstance(options.resume, Path):
        raise SettingsError("no task was given; name one, as in sdssm train a5, or use sdssm train --resume DIR")
    changed = [name for name in SETTING_OPTIONS if hasattr(options, name)]
    changed += [name for name in ("set", "preset", "seeds", "overwrite") if getattr(options, name)]
    if changed:
        option = "--" + changed[0].replace("_", "-")
        raise SettingsError(
            f"--resume keeps the settings of the runs, but {option} was given; leave it out, or name the tasks to train"
        )
    from sdssm.runs import find_runs
    from sdssm.runs.repair import restore_model
    from sdssm.training import resume
    from sdssm.training.progress import progress_for
    from sdssm.training.starting import create_planned

    create_planned(out, print_text)
    existing = find_runs(out)
    unfinished = [run.path for run in existing if run.status in UNFINISHED]
    # Runs that have ended need no code, but --model must be theirs.
    import_models(unfinished if options.model is None else [out], options)
    if not unfinished:
        restored = [line for run in existing if (line := restore_model(run)) is not None]
        print("\n".join(restored) or f"Nothing to do: all {len(existing)} runs in {format_path(out)} have ended.")
        return
    with _report_interrupt(out):
        runs = resume(
            out,
            device=options.device,
            progress=progress_for(options.quiet, keep=False),
            tensorboard=options.tensorboard,
        )
    _show_runs([run for run in runs if run.path in unfinished], out, options)


def _show_runs(runs: Sequence[RunFolder], out: Path, options: argparse.Namespace) -> None:
    """Print the outcome of each run, and the command that evaluates them.

    With --quiet, print one line for all runs. If none has a result to evaluate, raise an error.
    """
    from sdssm.evaluation.training_lengths import measure_at_training_lengths
    from sdssm.runs.constant_answers import training_constants

    if runs and all(run.status == "diverged" for run in runs):
        rate = min(run.config.train.lr for run in runs)
        raise RunError(
            f"{count_of(len(runs), 'run')} in {quote_argument(out)} diverged: the loss was not finite by step "
            f"{max(map(_last_step, runs)):,}; try a smaller learning rate, as in --lr {rate / 10:.2g}"
        )
    device = check_device_names(options.device)[0]
    balanced = [measure_at_training_lengths(run, device) for run in runs]
    constants = training_constants([run.config for run in runs])
    if options.quiet:
        print(_summarise(runs, out, balanced, constants))
        return
    rows = []
    for run, measured, constant in zip(runs, balanced, constants, strict=True):
        progress = run.progress
        numbers = [format_percent(None if measured is None else measured.mean), format_chance(_chance(run, measured))]
        numbers += [format_percent(progress.accuracy), format_chance(constant), format_loss(progress.loss)]
        rows.append([*numbers, f"{_last_step(run):,}", f"{progress.seconds:,.1f}", progress.status, str(run.path)])
    headers = ("balanced %", "chance %", "accuracy %", "best constant %", "loss", "steps", "seconds")
    print_table([*headers, "status", "folder"], rows, right=headers)
    print()
    print_text(EXPLANATION)
    for run in [run for run in runs if run.status == "diverged"][:3]:  # a few say enough
        print(
            f"{quote_argument(run.path)} diverged by step {_last_step(run):,}: its loss was not finite; try a smaller "
            f"learning rate, as in --lr {run.config.train.lr / 10:.2g}"
        )
    print(f"To measure it at longer lengths: sdssm evaluate {quote_argument(out)}{_model_option(runs)}")


def _chance(run: RunFolder, balanced: SampledAccuracy | None) -> float:
    """Return what a constant answer scores on the strings of the balanced accuracy, or the chance level."""
    return 100 / run.config.n_classes if balanced is None else balanced.best_constant_mean


def _last_step(run: RunFolder) -> int:
    """Return the last step of a run; of one that diverged, the step at which that was seen."""
    steps = [event["step"] for event in run.events() if event.get("diverged")] if run.status == "diverged" else []
    return int(steps[-1]) if steps else run.progress.step


def _model_option(runs: Sequence[RunFolder]) -> str:
    """Return the option that names the code of these runs, if it is neither ours nor that of an installed plug-in."""
    from sdssm.models.registry import plugin_paths

    installed = plugin_paths()
    models = [run.config.model for run in runs]
    paths = {model.import_path for model in models if model.import_path != installed.get(model.name)}
    return "".join(f" --model {quote_argument(path)}" for path in paths if path is not None)


def _summarise(
    runs: Sequence[RunFolder], out: Path, balanced: Sequence[SampledAccuracy | None], constants: Sequence[float]
) -> str:
    statuses = Counter(run.progress.status for run in runs)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    measured = ""
    if shares := [accuracy.mean for accuracy in balanced if accuracy is not None]:
        chance = format_chance(*map(_chance, runs, balanced))
        measured = f"; balanced accuracy at training lengths: {_mean_and_least(shares)}, chance {chance} %"
    if accuracies := [run.progress.accuracy for run in runs if run.progress.accuracy is not None]:
        constant = format_chance(*constants)
        measured += f"; accuracy of the last steps: {_mean_and_least(accuracies)}, best constant answer {constant} %"
    return f"{count_of(len(runs), 'run')} in {quote_argument(out)}: {counts}{measured}"


def _mean_and_least(shares: Sequence[float]) -> str:
    return f"mean {format_percent(sum(shares) / len(shares))} %, min {format_percent(min(shares))} %"


@contextmanager
def _report_interrupt(out: Path) -> Iterator[None]:
    """On Ctrl-C or another signal, print on standard error at which step the runs stopped and how to continue."""
    from sdssm.runs import find_runs
    from sdssm.runs.plan_file import missing_runs

    try:
        yield
    except KeyboardInterrupt:
        unfinished: list[RunFolder] | None
        try:
            unfinished = [run for run in find_runs(out) if run.status in UNFINISHED]
        except SdssmError:
            unfinished = None  # it stopped before there were run folders
        folder, line = quote_argument(out), ""
        if planned := missing_runs(out):
            missing = f"{count_of(len(planned), 'run')} in {folder} not yet created"
            line = f"stopped with {missing}; to continue: sdssm train --resume {folder}"
        elif unfinished:
            first, last = min(run.step for run in unfinished), max(run.step for run in unfinished)
            reached = f"{first:,}" if first == last else f"{first:,} to {last:,}"
            command = f"sdssm train --resume {folder}{_model_option(unfinished)}"
            line = f"stopped at step {reached}; to continue: {command}"
        elif unfinished is not None:
            line = f"stopped; all runs in {folder} had ended"
        with suppress(OSError):  # the terminal may be closed, which is what SIGHUP says
            print(f"sdssm: {line}" if line else "sdssm: stopped before the first run was created", file=sys.stderr)
        raise
