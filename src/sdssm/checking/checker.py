"""`check`: measure the report card of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from sdssm.checking.accuracy_measurement import STRINGS, measure_accuracy
from sdssm.checking.automaton_search import find_automaton
from sdssm.checking.card_section import (
    SHARES,
    TITLES,
    CardSection,
    SectionClock,
    SectionResult,
    check_section_names,
    measure_section,
)
from sdssm.checking.checked_model import CheckedModel, ModelRequest, find_checked_model
from sdssm.checking.cost_measurement import SECONDS as SPEED_SECONDS
from sdssm.checking.cost_measurement import measure_costs
from sdssm.checking.forecast import forecast_failure
from sdssm.checking.implemented import LSTAR
from sdssm.checking.misclassified import find_misclassified
from sdssm.checking.report_card import ReportCard
from sdssm.checking.section_results import AutomatonSection, ForecastSection, LawsSection, MisclassifiedSection
from sdssm.devices import device_name
from sdssm.errors import SettingsError, format_value
from sdssm.exact.measurement.measured_gains import measure_gains
from sdssm.extras import import_extra
from sdssm.progress import ProgressOption, ProgressReporter, report_progress
from sdssm.settings import check_at_least
from sdssm.testing import LawResult, check_laws
from sdssm.testing.catalogue import LAWS
from sdssm.training.progress import Progress

#: The seconds that a card takes at most by default, without training.
MAX_SECONDS = 100.0
#: The part of a section's time that a search is given: it ends a little after its limit.
SEARCH_SHARE = 0.8
#: The part of a section's time that each of three speeds is measured for: first calls take time too.
COSTS_SHARE = 0.1


def check(
    model: Any,
    task: Any = None,
    *,
    train: bool = False,
    steps: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    device: str | torch.device = "auto",
    max_length: int | None = None,
    strings: int = STRINGS,
    sections: Sequence[str] | None = None,
    max_seconds: float = MAX_SECONDS,
    trust: bool = False,
    progress: ProgressOption = False,
    training_progress: Progress | bool | None = None,
) -> ReportCard:
    """Measure the report card of a model: accuracy by length, where it fails, its automaton, laws and costs.

    A section that fails or takes too long is left out, and its line says why.

    Args:
        model: a name of `sdssm.list_models()`, an import path, a class or function `(n_symbols, n_classes) -> module`,
            any `nn.Module`, a run, or the folder of a run or of a saved model.
        task: a name, a `Task` or a machine. A run and a saved model may know theirs.
        train: train the model first. Otherwise a name is checked with its initial weights.
        steps: of the training, as in `sdssm.train`.
        preset: of the training.
        settings: of the training.
        out: keep the run of the training in this folder; by default it is not kept.
        overwrite: replace a run that is in `out`.
        seed: of the training or of the initial weights, and of searches.
        device: "auto", "cpu", "cuda" or "cuda:1"; a module stays where it is with "auto".
        max_length: the longest strings; by default 50,000, or 2,000 for a model that cannot read in pieces.
        strings: the number of strings at each length up to the test length.
        sections: the names of the sections to measure; by default all.
        max_seconds: the time for all sections together. Training is not counted.
        trust: import the code of a model that is not part of this package, as its folder names it.
        progress: True shows how far it is on standard error; a function receives each `ProgressEvent`.
        training_progress: the display of the training, as the argument `progress` of `sdssm.train`.

    >>> from sdssm.exact import compile
    >>> card = check(compile("parity"), "parity", sections=["accuracy"], max_length=60, strings=16)
    >>> card.value("accuracy", "longest_99"), card.value("accuracy", "chance")
    (60, 50.0)
    """
    names = check_section_names(sections)
    _check_seconds(max_seconds)
    check_at_least("strings", strings, 1)
    check_at_least("seed", seed, 0)
    if max_length is not None:
        check_at_least("max_length", max_length, 1)
    request = ModelRequest(
        train=train,
        steps=steps,
        preset=preset,
        settings=settings,
        out=out,
        overwrite=overwrite,
        seed=seed,
        device=device,
        trust=trust,
        training_progress=training_progress,
    )
    return check_subject(
        find_checked_model(model, task, request),
        seed=seed,
        max_length=max_length,
        strings=strings,
        sections=names,
        max_seconds=max_seconds,
        progress=progress,
    )


def check_subject(
    subject: CheckedModel,
    *,
    seed: int = 0,
    max_length: int | None = None,
    strings: int = STRINGS,
    sections: Sequence[str] | None = None,
    known: Sequence[CardSection] = (),
    max_seconds: float = MAX_SECONDS,
    progress: ProgressOption = False,
) -> ReportCard:
    """Measure the report card of a model that is built and trained.

    `known` are sections of an earlier card, which a forecast is compared with. The other arguments are those of
    `check`.
    """
    names = check_section_names(sections)
    started = monotonic()
    order = [name for name in SHARES if name in names]
    clock = SectionClock(max_seconds, order)
    measured: dict[str, CardSection] = {section.name: section for section in known}
    with report_progress(progress) as reporter:
        measurements = _measurements(subject, seed, max_length, strings, measured, reporter)
        for name in order:
            reporter.start(f"check {subject.model.name}: {TITLES[name]}")
            measured[name] = measure_section(name, measurements[name], clock.seconds_for(name))
    return ReportCard(
        model=subject.model.name,
        task=subject.task.name,
        description=subject.description,
        weights=subject.weights,
        chance=subject.task.chance_accuracy,
        train_length=subject.train_length,
        n_symbols=subject.task.n_symbols,
        n_classes=subject.task.n_classes,
        seed=subject.seed,
        steps=subject.steps,
        folder=subject.folder,
        device=device_name(subject.model.device),
        seconds=monotonic() - started,
        sections=tuple(measured[name] for name in TITLES if name in names),
    )


def _measurements(
    subject: CheckedModel,
    seed: int,
    max_length: int | None,
    strings: int,
    measured: Mapping[str, CardSection],
    reporter: ProgressReporter,
) -> dict[str, Callable[[float], SectionResult]]:
    """Return the function that measures each section, given its seconds."""
    model, length = subject.model, subject.train_length
    task = replace(subject.task, train_length=length)

    def measure_accuracy_within(seconds: float) -> SectionResult:
        return measure_accuracy(
            model,
            task,
            train_length=length,
            max_length=max_length,
            strings=strings,
            max_seconds=seconds,
            reporter=reporter,
        )

    def measure_costs_within(seconds: float) -> SectionResult:
        each = min(SPEED_SECONDS, COSTS_SHARE * seconds)
        return measure_costs(model, task, train_length=length, seconds=each, seed=seed)

    def find_misclassified_within(seconds: float) -> SectionResult:
        return MisclassifiedSection(find_misclassified(model, task, max_seconds=SEARCH_SHARE * seconds, seed=seed))

    def check_laws_within(seconds: float) -> SectionResult:
        end, results = monotonic() + seconds, list[LawResult]()
        laws = [law for law in LAWS if not law.needs_factory]
        for number, law in enumerate(laws):
            if monotonic() > end:
                return LawsSection(tuple(results), tuple(law.name for law in laws[number:]))
            results += check_laws(model, task=task, seed=seed, laws=[law])
        return LawsSection(tuple(results))

    def forecast_within(seconds: float) -> SectionResult:
        data = measured["accuracy"].data if "accuracy" in measured else None
        failing, longest = (None, None) if data is None else (data["failing_length"], data["lengths"][-1])
        forecast = forecast_failure(model, task, seed=seed, max_seconds=seconds)
        return ForecastSection(forecast, failing, longest, measure_gains(model, task, seed=seed))

    def find_automaton_within(seconds: float) -> SectionResult:
        known = measured["misclassified"].data if "misclassified" in measured else None
        hints = [known["string"]] if known is not None and known["string"] is not None else []
        automaton = find_automaton(model, task, max_seconds=SEARCH_SHARE * seconds, hints=hints, seed=seed)
        if automaton.method == LSTAR and automaton.machine is None:
            import_extra("aalpy", "the automaton of a model without states")  # without it there was no search
        return AutomatonSection(automaton)

    return {
        "accuracy": measure_accuracy_within,
        "misclassified": find_misclassified_within,
        "automaton": find_automaton_within,
        "forecast": forecast_within,
        "laws": check_laws_within,
        "costs": measure_costs_within,
    }


def _check_seconds(seconds: float) -> None:
    if not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        raise SettingsError(
            f"max_seconds is {format_value(seconds)}; pass a number of seconds above 0",
            shell=f"--max-seconds is {format_value(seconds)}; pass a number of seconds above 0, as in --max-seconds 60",
        )
