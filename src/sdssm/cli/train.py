"""`sdssm train`: train models side by side, or resume an interrupted training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
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
from sdssm.cli.output import print_facts, print_table, print_text
from sdssm.cli.training_results import UNFINISHED, report_stopped_runs, show_ended_runs
from sdssm.devices import check_device_names
from sdssm.errors import SettingsError
from sdssm.extras import import_extra
from sdssm.files import format_path
from sdssm.first_start import start_compiling
from sdssm.formatting import count_of
from sdssm.models.catalogue import DEFAULT_MODEL
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.runs.schema import Settings
    from sdssm.tasks import Task
    from sdssm.tasks.facts import TaskFacts


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
    with report_stopped_runs(out):
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
    show_ended_runs(runs, out, options)


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
        print_text(f"{count_of(len(groups), 'group')} for {len(devices)} devices: a group trains on one of them.")


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
            f"--resume keeps the settings of the runs, but {option} was given; leave it out, or train again in another "
            "folder: sdssm train TASK --out DIR"
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
    with report_stopped_runs(out):
        runs = resume(
            out,
            device=options.device,
            progress=progress_for(options.quiet, keep=False),
            tensorboard=options.tensorboard,
        )
    show_ended_runs([run for run in runs if run.path in unfinished], out, options)
