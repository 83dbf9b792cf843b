"""What `sdssm train` prints about its runs: how they ended, or how to continue with them after an interruption."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.output import print_table, print_text, quote_argument
from sdssm.devices import check_device_names
from sdssm.errors import RunError, SdssmError
from sdssm.formatting import BEST_CONSTANT, count_of, format_chance, format_loss, format_percent

if TYPE_CHECKING:
    from sdssm.evaluation.sampled_accuracy import SampledAccuracy
    from sdssm.runs import RunFolder

#: States of a run that `--resume` continues.
UNFINISHED = ("running", "stopped")
#: Below the table of a training.
EXPLANATION = (
    "balanced: at training lengths, on strings whose labels are equally frequent; balanced chance: what any constant "
    f"answer scores on them. accuracy: on the training strings of the last steps; {BEST_CONSTANT}."
)


def show_ended_runs(runs: Sequence[RunFolder], out: Path, options: argparse.Namespace) -> None:
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
        pair = (None, None) if measured is None else (measured.mean, measured.best_constant_mean)
        numbers = [format_percent(pair[0]), format_chance(pair[1])]
        numbers += [format_percent(progress.accuracy), format_chance(constant), format_loss(progress.loss)]
        rows.append([*numbers, f"{_last_step(run):,}", f"{progress.seconds:,.1f}", progress.status, str(run.path)])
    headers = ("balanced %", "balanced chance %", "accuracy %", "best constant %", "loss", "steps", "seconds")
    print_table([*headers, "status", "folder"], rows, right=headers)
    print()
    print_text(EXPLANATION)
    for run in [run for run in runs if run.status == "diverged"][:3]:  # a few say enough
        print(
            f"{quote_argument(run.path)} diverged by step {_last_step(run):,}: its loss was not finite; try a smaller "
            f"learning rate, as in --lr {run.config.train.lr / 10:.2g}"
        )
    print(f"To measure it at longer lengths: sdssm evaluate {quote_argument(out)}{_model_option(runs)}")


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
    if known := [accuracy for accuracy in balanced if accuracy is not None]:
        shares = _mean_and_least([accuracy.mean for accuracy in known])
        chance = format_chance(*(accuracy.best_constant_mean for accuracy in known))
        measured = f"; balanced accuracy at training lengths: {shares}, balanced chance {chance} %"
    if accuracies := [run.progress.accuracy for run in runs if run.progress.accuracy is not None]:
        constant = format_chance(*constants)
        measured += f"; accuracy of the last steps: {_mean_and_least(accuracies)}, best constant answer {constant} %"
    return f"{count_of(len(runs), 'run')} in {quote_argument(out)}: {counts}{measured}"


def _mean_and_least(shares: Sequence[float]) -> str:
    return f"mean {format_percent(sum(shares) / len(shares))} %, min {format_percent(min(shares))} %"


@contextmanager
def report_stopped_runs(out: Path) -> Iterator[None]:
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
