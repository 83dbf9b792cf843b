"""Tables of evaluations: one row for each run, or for each training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sdssm.display import ResultTable
from sdssm.evaluation.sampled_accuracy import MEASURES
from sdssm.formatting import UNKNOWN, count_of, format_chance, format_percent

if TYPE_CHECKING:
    from sdssm.evaluation.records import Aggregate, RunEvaluation

#: The columns of text; all others are numbers.
TEXT_COLUMNS = ("task", "model", "settings", "folder", "status", "measure")
#: The columns that only a detailed table has, by header or by its first words.
DETAILS = ("95 % band", "mean to", "first below 99", "radius", "balanced at", "covering at", "covering constant")


def tabulate_evaluations(
    runs: Sequence[RunEvaluation], *, settings: Sequence[str] = (), detailed: bool = False
) -> ResultTable:
    """Return a table with one row for each run: its means, or its accuracy at the listed lengths.

    Args:
        runs: the evaluations.
        settings: in words, how the settings of each run differ from those of the others; empty to leave them out.
        detailed: add the columns of `DETAILS`.
    """
    names = name_runs(runs, settings)
    if any(is_unfinished(run) for run in runs):
        names = [{**name, "status": run.status or UNKNOWN} for name, run in zip(names, runs, strict=True)]
    rows = [{**name, **_values(run, detailed)} for name, run in zip(names, runs, strict=True)]
    headers = list(dict.fromkeys(header for row in rows for header in row))
    return ResultTable(
        headers,
        [[row.get(header, UNKNOWN) for header in headers] for row in rows],
        title=_title(runs),
        notes=collect_notes(runs),
        right=[header for header in headers if header not in TEXT_COLUMNS],
    )


def tabulate_trainings(
    trainings: Sequence[Sequence[RunEvaluation]], aggregates: Sequence[Aggregate], *, settings: Sequence[str] = ()
) -> ResultTable:
    """Return a table with the best, mean and worst seed of each training, over all lengths or at each listed one.

    Args:
        trainings: the runs of each training.
        aggregates: the aggregate of each training.
        settings: in words, how the settings of each training differ from those of the others; empty to leave them out.
    """
    first = [runs[0] for runs in trainings]
    names = [
        {key: value for key, value in name.items() if key not in ("seed", "folder")}
        for name in name_runs(first, settings)
    ]
    any_diverged = any(aggregate.diverged for aggregate in aggregates)
    rows = []
    for name, runs, aggregate in zip(names, trainings, aggregates, strict=True):
        cells = {**name, "seeds": str(aggregate.seeds)}
        cells |= {"diverged": str(aggregate.diverged)} if any_diverged else {}
        rows += [{**cells, **row} for row in _summarise_training(runs)]
    places = [header for header in ("at length", "to length") if any(header in row for row in rows)]
    headers = list(dict.fromkeys(header for row in rows for header in row if header not in places))
    place = headers.index("max") if rows else 0
    headers[place:place] = places
    return ResultTable(
        headers,
        [[row.get(header, UNKNOWN) for header in headers] for row in rows],
        right=[header for header in headers if header not in TEXT_COLUMNS],
    )


def _summarise_training(runs: Sequence[RunEvaluation]) -> list[dict[str, str]]:
    """Return a row for each measure, or with listed lengths for each measure and length."""
    first, ended = runs[0], [run for run in runs if not run.diverged]
    rows = []

    def add(measure: str, values: Sequence[float], constant: float | None, place: Mapping[str, str]) -> None:
        numbers = _best_mean_worst(_max_mean_min(values))
        rows.append({"measure": measure, **place, **numbers, **_baseline(constant, first.chance)})

    for measure in MEASURES:
        sampled = [getattr(run, measure) for run in ended]
        if not sampled or None in sampled:
            continue
        if first.lengths is None:
            add(measure, [accuracy.mean for accuracy in sampled], sampled[0].best_constant_mean, {})
            continue
        for k, length in enumerate(sampled[0].lengths):
            values = [accuracy.accuracy[k] for accuracy in sampled]
            add(measure, values, sampled[0].best_constant[k], {"at length": f"{length:,}"})
    if first.lengths is None:
        values = [run.mean for run in ended if not math.isnan(run.mean)]
        add("accuracy", values, first.best_constant_mean, {})
        return rows
    column = "to length" if first.mean_to else "at length"
    for k, length in enumerate(first.lengths):
        values = [(run.mean_to or run.accuracy)[k] for run in ended]
        constant = None if first.best_constant is None else first.best_constant[k]
        add("accuracy", values, constant, {column: f"{length:,}"})
    return rows


def name_runs(runs: Sequence[RunEvaluation], settings: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return the columns that identify each run: task, model, seed, and more if these do not suffice."""
    names = [
        {"task": run.task, "model": run.model}
        | ({"settings": settings[k] or UNKNOWN} if any(settings) else {})
        | {"seed": UNKNOWN if run.seed is None else str(run.seed)}
        for k, run in enumerate(runs)
    ]
    if len({tuple(name.values()) for name in names}) < len(runs) and any(run.folder for run in runs):
        names = [{**name, "folder": run.folder or UNKNOWN} for name, run in zip(names, runs, strict=True)]
    return names


def is_unfinished(run: RunEvaluation) -> bool:
    """Return whether a run was read before its training ended, or diverged; the note of the run says at which step."""
    return run.status not in (None, "finished")


def collect_notes(runs: Sequence[RunEvaluation]) -> list[str]:
    """Return each note of the runs once, with the folders of the runs that have it, unless all have it."""
    notes = []
    for note in sorted({run.note for run in runs if run.note}):
        folders = [run.folder for run in runs if run.note == note and run.folder]
        notes.append(f"{note} ({', '.join(folders)})" if folders and len(folders) < len(runs) else note)
    return notes


def _title(runs: Sequence[RunEvaluation]) -> str:
    if not runs:
        return "no runs"
    strings = "/".join(dict.fromkeys(f"{run.strings:,}" for run in runs))
    title = f"{count_of(len(runs), 'run')}: accuracy in %, on {strings} strings of each length, mean over lengths"
    lengths = {run.balanced.lengths for run in runs if run.balanced is not None and run.lengths is None}
    if not lengths:
        return title
    listed = ", ".join(f"{length:,}" for length in max(lengths, key=len))
    return f"{title}; balanced and covering over the lengths {listed}"


def describe_headline(run: RunEvaluation) -> str:
    """Return the balanced accuracy of a run beside chance, and its accuracy beside the best constant answer."""
    longest = f"to length {run.max_length:,}"
    accuracy = f"accuracy {format_percent(run.mean)} %"
    if run.best_constant_mean is not None:
        accuracy += f" (best constant answer {format_chance(run.best_constant_mean)} %)"
    if run.balanced is None:
        return f"{accuracy} {longest}, chance {format_chance(run.chance)} %"
    chance = f"balanced chance {format_chance(run.headline_chance)} %"
    return f"balanced accuracy {format_percent(run.headline)} % {longest}, {chance}; {accuracy}"


def _values(run: RunEvaluation, detailed: bool) -> dict[str, str]:
    """Return the cells of a run."""
    values = _values_at_every_length(run) if run.lengths is None else _values_at_lengths(run)
    if run.spectral_radius is not None:
        values["radius"] = f"{max(run.spectral_radius):.3f}"
    return {header: value for header, value in values.items() if detailed or not header.startswith(DETAILS)}


def _values_at_every_length(run: RunEvaluation) -> dict[str, str]:
    band = UNKNOWN if run.mean_band is None else "-".join(map(format_percent, run.mean_band))
    return {
        "to length": f"{run.max_length:,}",
        **_balanced(run),
        "accuracy": format_percent(run.mean),
        **_baseline(run.best_constant_mean, run.chance),
        "95 % band": band,
        "training lengths": format_percent(run.mean_within),
        "beyond": format_percent(run.mean_beyond),
        **_covering(run),
        "first below 99": "never" if run.first_failure is None else f"{run.first_failure:,}",
    }


def _values_at_lengths(run: RunEvaluation) -> dict[str, str]:
    columns = {"at": run.accuracy} | ({} if run.mean_to is None else {"mean to": run.mean_to})
    values = {
        f"{words} {length:,}": format_percent(value)
        for words, numbers in columns.items()
        for length, value in zip(run.evaluated_lengths, numbers, strict=True)
    }
    constants = (
        {"best constant": format_chance(*run.best_constant)} if run.best_constant else _baseline(None, run.chance)
    )
    for name in MEASURES:
        sampled = getattr(run, name)
        if sampled is not None:
            pairs = zip(sampled.lengths, sampled.accuracy, strict=True)
            values |= {f"{name} at {length:,}": format_percent(value) for length, value in pairs}
    return {**_balanced(run), **values, **constants, **_covering(run)}


def _balanced(run: RunEvaluation) -> dict[str, str]:
    """Return the cells of the balanced accuracy, a mean over lengths, and of its chance level: of a constant answer."""
    if run.balanced is None:
        return {}
    return {
        "balanced": format_percent(run.balanced.mean),
        "balanced chance": format_chance(run.balanced.best_constant_mean),
    }


def _covering(run: RunEvaluation) -> dict[str, str]:
    """Return the cells of the covering accuracy, a mean over lengths, and of the best constant answer there."""
    if run.covering is None:
        return {}
    return {
        "covering": format_percent(run.covering.mean),
        "covering constant": format_chance(run.covering.best_constant_mean),
    }


def _baseline(constant: float | None, chance: float | None) -> dict[str, str]:
    """Return the cell of the best constant answer; of a random guess for evaluations of older versions."""
    return {"chance": format_chance(chance)} if constant is None else {"best constant": format_chance(constant)}


def _best_mean_worst(values: tuple[float | None, float | None, float | None]) -> dict[str, str]:
    return dict(zip(("max", "mean", "min"), map(format_percent, values), strict=True))


def _max_mean_min(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values or any(map(math.isnan, values)):  # NaN: the task has no string as short, for any seed
        return None, None, None
    return max(values), math.fsum(values) / len(values), min(values)
