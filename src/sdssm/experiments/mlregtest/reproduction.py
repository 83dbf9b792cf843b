"""Reproduce MLRegTest in one call: the languages of a folder, as many as the time allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sdssm.errors import FormatError, SettingsError
from sdssm.experiments.default_folders import RESULTS
from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.languages import (
    ALL,
    list_languages,
    read_language,
    select_languages,
)
from sdssm.experiments.mlregtest.records import FILE, LanguageRecord, RecordStore
from sdssm.files import describe_file_error, format_path
from sdssm.progress import ProgressOption, report_progress

#: The name of the experiment and of its results folder.
NAME = "mlregtest"
TITLE = "MLRegTest: every language of a folder of automata, with proof"


@dataclass(frozen=True, eq=False)
class LanguagePlan:
    """The chosen languages of a folder: their files, their fingerprints, and the records that exist already."""

    paths: dict[str, Path]
    fingerprints: dict[str, str]
    records: dict[str, LanguageRecord]

    @property
    def missing(self) -> list[Path]:
        """The files of the languages without a record, or whose proof was not done in time."""
        done = {name for name, record in self.records.items() if record.is_final}
        return [path for name, path in self.paths.items() if name not in done]


def plan_languages(
    data: Path | str,
    configuration: Configuration,
    *,
    languages: Iterable[str] = (ALL,),
    part: tuple[int, int] = (1, 1),
    results: Path | str = RESULTS,
) -> LanguagePlan:
    """Return the chosen languages of a folder and what is known about them; `part` (2, 4) is the second of four parts.

    A part has every fourth language, so that all parts take about as long.
    """
    number, count = part
    if not 1 <= number <= count:
        raise SettingsError(f"part {number}/{count} does not exist; parts are 1/{count} to {count}/{count}")
    files = list_languages(Path(data))
    names = select_languages(list(files), languages)[number - 1 :: count]
    fingerprints = {name: configuration.language_fingerprint(_read(files[name])) for name in names}
    store = RecordStore(Path(results) / NAME)
    return LanguagePlan({name: files[name] for name in names}, fingerprints, store.load(fingerprints))


def stored_languages(
    configuration: Configuration, *, languages: Iterable[str] = (ALL,), results: Path | str = RESULTS
) -> LanguagePlan:
    """Return the chosen languages among those that have a record, without a folder of automata."""
    records = RecordStore(Path(results) / NAME).load_all(configuration.fingerprint)
    names = select_languages(sorted(records), languages) if records else []
    chosen = {name: records[name] for name in names}
    return LanguagePlan({}, {name: record.fingerprint for name, record in chosen.items()}, chosen)


def run_languages(
    plan: LanguagePlan,
    configuration: Configuration,
    *,
    device: str = "auto",
    workers: int | None = None,
    at_once: int | None = None,
    max_seconds: float | None = None,
    results: Path | str = RESULTS,
    file: str = FILE,
    weights: Path | None = None,
    progress: ProgressOption = False,
    message: Callable[[str], None] = lambda text: None,
) -> LanguagePlan:
    """Train, measure and prove the languages of a plan that have no record, and return the plan with the new records.

    Args:
        plan: the languages.
        configuration: how they are trained and measured.
        device: where they are trained and measured.
        workers: processes that draw strings and prove; None: one for each core but one; 0: in this process.
        at_once: languages that train side by side; None: 128 on a GPU, 8 on a CPU.
        max_seconds: stop about then, between two batches.
        results: the parent of the results folder.
        file: the file in it to which records are appended.
        weights: a folder to keep the weights of each model in; None: they are not kept.
        progress: whether to show how far it is.
        message: receives a line of text after each batch.
    """
    from sdssm.devices import resolve_device
    from sdssm.experiments.mlregtest.batches import AT_ONCE, make_batches
    from sdssm.experiments.mlregtest.campaign import Campaign
    from sdssm.experiments.mlregtest.timing import Deadline
    from sdssm.training.signals import stop_on_signal

    deadline = Deadline(max_seconds)
    missing = [read_language(path) for path in plan.missing]
    target = resolve_device(device)
    batches = make_batches(missing, configuration, at_once or AT_ONCE[target.type])
    store = RecordStore(Path(results) / NAME, file)
    processes = spare_cores() if workers is None else workers
    with stop_on_signal() as stop, report_progress(progress) as reporter:
        reporter.start(NAME, total=len(missing), unit="languages")
        campaign = Campaign(
            configuration,
            plan.fingerprints,
            store,
            target,
            deadline=deadline,
            stop=stop,
            reporter=reporter,
            message=message,
            weights=weights,
        )
        campaign.run(batches, processes if missing else 0)
        is_stopped = stop()
    if is_stopped:
        raise KeyboardInterrupt
    return LanguagePlan(plan.paths, plan.fingerprints, store.load(plan.fingerprints))


def spare_cores() -> int:
    """Return the number of cores that this process may use besides its own, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
