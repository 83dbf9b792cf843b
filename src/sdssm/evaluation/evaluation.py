"""`evaluate`: from runs, or a model, to the accuracy at every length."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.devices import device_name, resolve_device
from sdssm.errors import ModelError, RunError, RunWarning, format_value
from sdssm.evaluation.asked import Asked, EvaluationError, asked_for
from sdssm.evaluation.lengths import Reader, Reading, outgrows, read_fresh, read_prefixes
from sdssm.evaluation.records import FRESH, PREFIXES, Evaluation, RunEvaluation
from sdssm.evaluation.spectrum import spectral_radii
from sdssm.evaluation.statistics import Band, band_of_each, band_of_lengths, band_of_strings, first_below, mean
from sdssm.evaluation.strings import TestStrings
from sdssm.evaluation.training import changed_settings, common_name
from sdssm.files import describe_file_error, format_path
from sdssm.models import Classifier
from sdssm.models.rescaled import Scaled
from sdssm.models.saved import holds_a_model
from sdssm.runs import RunFolder, Status, find_runs, load
from sdssm.runs.schema import Settings
from sdssm.tasks import Task
from sdssm.tasks import get_task as named_task

What = Classifier | RunFolder | str | Path
#: The files in a run folder that hold the last evaluation of the run, at every length and at lengths named one by one.
FILE, LISTED_FILE = "evaluation.json", "evaluation-lengths.json"


def evaluate(
    what: What | Iterable[What],
    *,
    task: str | Task | Machine | None = None,
    max_length: int | None = None,
    lengths: Sequence[int] | int | None = None,
    strings: int = 512,
    seed: int = 1,
    fresh: bool = False,
    device: str | torch.device = "auto",
    found: Callable[[RunEvaluation], None] | None = None,
) -> Evaluation:
    """The accuracy at every length 1..max_length (the task's test length), or at the `lengths` given.

    `what` is a model (with its `get_task`), a run, the path of one or of a folder of many, or several of these. What is
    found of a run that has ended is also written into its folder as evaluation.json. A run that diverged is read as it
    was before, and left out of the aggregate. All lengths are read in one pass
    over the `strings` strings of a `seed`, unless `fresh` asks for strings of its own for each length, as published.
    `found` is called with the result for each run, for who wants to see them come.

    >>> from sdssm.models import ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 2, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(model, task="parity", max_length=100, strings=64).runs[0]
    >>> len(run.accuracy), 40 < run.mean < 60
    (100, True)
    """
    asked = asked_for(max_length, lengths, strings, seed, fresh, device)
    results = []
    subjects = _each(what)
    for subject in subjects:
        if isinstance(subject, Classifier):
            result = _of_model(subject, task, asked)
        else:
            try:
                model, of, status = _loaded(subject, task, asked)
                result = _of_run(subject, model, of, status, asked)
            except (ModelError, RunError, EvaluationError) as error:
                if len(subjects) == 1 or task is not None:
                    raise
                warnings.warn(f"{format_path(subject.path)}: {error}; left out", RunWarning, stacklevel=2)
                continue
        results.append(result)
        if found is not None:
            found(result)
    if not results:
        raise EvaluationError("there is nothing to evaluate; give a model, or the folder of a run that has ended")
    return Evaluation(tuple(results))


def _of_model(model: Classifier, task: str | Task | Machine | None, asked: Asked) -> RunEvaluation:
    if task is None:
        raise EvaluationError("a model alone does not know its task; pass task=, as in evaluate(model, task='a5')")
    of = task if isinstance(task, Task) else named_task(task)
    before = next(model.parameters()).device
    try:
        found = _one(model.to(asked.device or before), of, of.train_length, asked)
        return replace(found, settings=changed_settings(Settings(model=model.settings), None, of.name))
    finally:
        model.to(before)


def _loaded(run: RunFolder, task: str | Task | Machine | None, asked: Asked) -> tuple[Classifier, Task, Status]:
    if task is not None:
        raise EvaluationError("a run knows its own task; leave task= out, or pass sdssm.load(folder) to use another")
    status = run.progress  # before its weights: what is trained further meanwhile is not what was read
    return load(run.path, device=asked.device or resolve_device("auto")), run.config.known_task(), status


def _of_run(run: RunFolder, model: Classifier, task: Task, status: Status, asked: Asked) -> RunEvaluation:
    config = run.config
    found = _one(model, task, config.train_length, asked)
    result = replace(
        found,
        seed=config.seed,
        folder=str(run.path),
        preset=config.preset,
        settings=changed_settings(config.settings, config.preset, found.task),
        status=status.status,
        note=_joined(found.note, _how_it_ended(status)),
    )
    if status.status != "running":  # what is trained further soon differs from what was evaluated
        _keep(run, LISTED_FILE if asked.listed else FILE, result)
    return result


def _how_it_ended(status: Status) -> str | None:
    """What to know of a run that has not come to its end."""
    if status.status == "finished":
        return None
    if status.status == "diverged":
        return f"diverged: read as it was at step {status.step:,}, and left out of the best, mean and worst"
    return f"not finished: read as it was at step {status.step:,}"


def _keep(run: RunFolder, name: str, result: RunEvaluation) -> None:
    """Write the result into the run's folder, or say that it cannot be: who asked has it all the same."""
    try:
        if run.status == result.status:  # else it is trained further by now
            run.write_json(name, result.to_json())
    except RunError as error:
        cause = error.__cause__  # without the advice to who trains
        why = describe_file_error(cause) if isinstance(cause, OSError) else str(error)
        where = format_path(run.path / name)
        warnings.warn(f"{where} cannot be written: {why}; this result is not kept", RunWarning, stacklevel=4)


def _one(model: Classifier, task: Task, train_length: int, asked: Asked) -> RunEvaluation:
    if (model.n_symbols, model.n_classes) != (task.n_symbols, task.n_classes):
        raise EvaluationError(
            f"the model reads {model.n_symbols} symbols and tells {model.n_classes} classes, but {task.name} has "
            f"{task.n_symbols} and {task.n_classes}; evaluate it on the task it was made for"
        )
    lengths = np.arange(1, task.test_length + 1) if asked.lengths is None else asked.lengths
    if model.longest is not None and lengths[-1] > model.longest:
        raise EvaluationError(
            f"{model.settings.name} was made for strings of at most {model.longest:,} symbols, and {lengths[-1]:,} "
            f"were asked for; choose a max_length up to {model.longest:,}"
        )
    within = lengths <= train_length
    groups = np.stack([np.ones_like(within), within, ~within])
    random_start = model.settings.state_embedding is not None
    strings = TestStrings(task, asked.strings, asked.seed, next(model.parameters()).device, random_start)
    note = None if asked.fresh else _why_fresh(model, strings)
    fresh = asked.fresh or note is not None

    def read(reader: Reader) -> Reading:
        return read_fresh(reader, strings, lengths) if fresh else read_prefixes(reader, strings, lengths, groups)

    if Scaled.reads(model) and outgrows(model, strings, int(lengths[-1])):
        reading = read(Scaled(model))
        note = _joined(note, "states outgrow the range of its numbers, and are read by their direction")
    else:
        reading = read(model)
    if reading.overflowed:
        note = _joined(note, "some of its numbers were not finite, which counts as a wrong answer")
    accuracy, known = reading.accuracy, reading.correct >= 0
    low, high = band_of_each(np.where(known, reading.correct, 0), reading.strings)
    means = [mean(accuracy[group]) for group in groups]
    bands = [_band(reading, number, group & known, asked.seed) for number, group in enumerate(groups)]
    matrices = model.symbol_matrices()
    return RunEvaluation(
        task=common_name(task),
        model=model.settings.name,
        seed=None,
        train_length=train_length,
        max_length=int(lengths[-1]),
        mean=math.nan if means[0] is None else 100 * means[0],
        mean_within=_percent(means[1]),
        mean_beyond=_percent(means[2]),
        first_below_99=first_below(lengths, accuracy, 0.99),
        accuracy=_percents(accuracy),
        lengths=tuple(lengths.tolist()) if asked.listed else None,
        mean_band=bands[0],
        within_band=bands[1],
        beyond_band=bands[2],
        accuracy_low=_percents(np.where(known, low, np.nan).round(6)),
        accuracy_high=_percents(np.where(known, high, np.nan).round(6)),
        mean_to=_percents(reading.means) if asked.listed and reading.means is not None else None,
        spectral_radius=None if matrices is None else tuple(spectral_radii(matrices.detach())),
        strings=reading.strings,
        string_seed=asked.seed,
        read=PREFIXES if reading.scores is not None else FRESH,
        note=note,
        digest=task.digest,
        device=device_name(strings.device),
    )


def _joined(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def _why_fresh(model: Classifier, strings: TestStrings) -> str | None:
    """Why prefixes cannot stand for strings of each length, if so."""
    if not model.causal:
        return "fresh strings for each length: what the model says of a prefix depends on what follows"
    if not model.prefixes:
        return "fresh strings for each length: the model reads a prefix otherwise than a string of that length"
    if strings.places is None:
        return "fresh strings for each length: prefixes of uniformly drawn valid strings are not uniformly drawn"
    return None


def _band(reading: Reading, number: int, group: np.ndarray, seed: int) -> Band | None:
    """The band of the mean over a group of lengths, in percent. Each group draws the same strings again."""
    if not group.any():
        return None
    generator = np.random.default_rng(seed)
    if reading.scores is not None:
        low, high = band_of_strings(reading.scores[number] / group.sum(), generator)
    else:
        low, high = band_of_lengths(reading.correct[group], reading.strings, generator)
    return 100 * low, 100 * high


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _percents(shares: np.ndarray) -> tuple[float, ...]:
    return tuple((100 * shares).tolist())


def _each(what: What | Iterable[What]) -> list[Classifier | RunFolder]:
    """Models and runs, each run once."""
    single = isinstance(what, str) or not isinstance(what, Iterable)
    found: dict[object, Classifier | RunFolder] = {}
    for one in [what] if single else what:  # type: ignore[union-attr]  # it was asked whether it is iterable
        if isinstance(one, Classifier):
            found[id(one)] = one
        elif isinstance(one, RunFolder | str | Path):
            for run in [one] if isinstance(one, RunFolder) else _runs_in(Path(one)):
                found.setdefault(run.path.resolve(), run)
        else:
            raise EvaluationError(f"{format_value(one)} cannot be evaluated; give a model, a run, or the path of one")
    return list(found.values())


def _runs_in(path: Path) -> list[RunFolder]:
    try:
        return find_runs(path)
    except RunError:
        if not holds_a_model(path):
            raise
    raise EvaluationError(
        f"{format_path(path)} holds a model without a run, and so without its task; give both, "
        f"as in sdssm.evaluate(sdssm.load({format_value(str(path), 200)}), task='a5')"
    )
