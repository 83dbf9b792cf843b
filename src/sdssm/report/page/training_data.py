"""Trainings: runs that differ in their seeds only, with their curves over the seeds."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.models.train_settings import TrainSettings
from sdssm.report.differences import describe_differences, training_key
from sdssm.report.page.identifiers import make_identifier
from sdssm.report.page.json_fields import LONGEST_NAME, clip_text, round_percent
from sdssm.report.page.length_choice import choose_lengths_shown
from sdssm.report.page.page_types import CurveData, TrainingData
from sdssm.report.page.run_data import PageRun
from sdssm.report.page.stored_evaluation import MeasuredValues
from sdssm.report.styles import line_style
from sdssm.settings import setting_types

#: SVG counts dashes in pixels, matplotlib in line widths.
LINE_WIDTH = 2.0
#: The settings that every model has: those of the training.
SHARED_SETTINGS = frozenset(setting_types(TrainSettings))


def group_runs(runs: Sequence[PageRun]) -> list[list[PageRun]]:
    """Group runs by training, diverged seeds last in each group.

    Seeds that were evaluated to other lengths, or not yet, belong to the same training.
    """
    groups: dict[str, list[PageRun]] = {}
    for run in runs:
        groups.setdefault(training_key(run.record), []).append(run)
    return [sorted(group, key=_has_diverged) for group in groups.values()]


def make_trainings(groups: Sequence[Sequence[PageRun]], most_lengths: int) -> list[TrainingData]:
    """Return the trainings of groups of runs, and note in each run which training it belongs to.

    `most_lengths` is the number of lengths that a curve has at most.
    """
    firsts = [group[0] for group in groups]
    differences = describe_differences([run.record for run in firsts])
    differing = _find_differing(firsts)
    variants: dict[tuple[str, str], int] = {}
    labels: set[tuple[str, str]] = set()
    trainings: list[TrainingData] = []
    for group, difference in zip(groups, differences, strict=True):
        first = group[0]
        task, model = first.data["task"], first.data["model"]
        variant = variants.setdefault((task, model), 0)
        variants[task, model] += 1
        style = line_style(model, variant)
        label = clip_text(f"{model}, {difference}" if difference else model, LONGEST_NAME)
        if (task, label) in labels:  # cut after the same words
            label = f"{clip_text(label, LONGEST_NAME - 8)} ({variant + 1})"
        labels.add((task, label))
        identifier = make_identifier(f"{first.task.name}-{model}", training_key(first.record))
        for run in group:
            run.data["training"] = identifier
        kept = [run for run in group if not _has_diverged(run)] or list(group)
        training: TrainingData = {
            "id": identifier,
            "task": task,
            "model": model,
            "label": label,
            "preset": first.data["preset"],
            "colour": style.colour,
            "dashes": [] if style.dashes == "-" else [length * LINE_WIDTH for length in style.dashes[1]],
            "differing": {name: first.data["settings"][name] for name in differing if name in first.data["settings"]},
            "train_length": first.task.train_length,
            "runs": [run.data["id"] for run in group],
            "accuracy": _curve([run.measured("accuracy") for run in kept], most_lengths),
            "balanced": _curve([run.measured("balanced") for run in kept], most_lengths),
            "covering": _curve([run.measured("covering") for run in kept], most_lengths),
            "best_constant": _curve([run.measured("best_constant") for run in kept[:1]], most_lengths),
        }
        trainings.append(training)
    return trainings


def _has_diverged(run: PageRun) -> bool:
    return run.data["status"] == "diverged"


def _find_differing(runs: Sequence[PageRun]) -> list[str]:
    """Return the settings that differ between trainings of a model, or between any two if all models have them."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for name, value in run.data["settings"].items():
            group = "" if name in SHARED_SETTINGS else run.data["model"]
            values.setdefault((name, group), set()).add(value)
    return list(dict.fromkeys(name for (name, _), different in values.items() if len(different) > 1))


def _curve(measures: Sequence[MeasuredValues | None], most_lengths: int) -> CurveData | None:
    """Return mean, minimum and maximum over the seeds at each length that a seed was measured at."""
    values: dict[int, list[float]] = {}
    for measure in measures:
        if measure is not None:
            for length, value in zip(measure.lengths, measure.values, strict=True):
                values.setdefault(length, []).extend([] if value is None else [value])
    if not values:
        return None
    shown = {length: values[length] for length in choose_lengths_shown(sorted(values), most_lengths)}
    return {
        "lengths": list(shown),
        "mean": [round_percent(sum(group) / len(group)) if group else None for group in shown.values()],
        "low": [round_percent(min(group)) if group else None for group in shown.values()],
        "high": [round_percent(max(group)) if group else None for group in shown.values()],
    }
