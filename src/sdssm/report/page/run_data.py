"""Runs as the page lists them, read from run folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from sdssm.errors import RunError
from sdssm.evaluation.description import changed_settings
from sdssm.evaluation.stored import EVALUATION_FILE, LENGTHS_FILE
from sdssm.formatting import format_setting
from sdssm.models.model_folder import CERTIFICATE_FILE
from sdssm.report.page.findings import read_certificate, read_extraction, read_horizon
from sdssm.report.page.identifiers import make_identifier
from sdssm.report.page.json_fields import LONGEST_NAME, JsonFields, clip_text, round_number, round_percent
from sdssm.report.page.page_types import RunData
from sdssm.report.page.run_files import RunFiles
from sdssm.report.page.stored_evaluation import MeasuredValues, StoredEvaluation
from sdssm.report.page.task_data import load_run_task, task_identifier
from sdssm.runs.claim import is_held
from sdssm.runs.comparison import WITHOUT_EFFECT
from sdssm.runs.folder import RunFolder
from sdssm.runs.own_files import EXTRACTION_FILE, HORIZON_FILE, STATUS_FILE
from sdssm.runs.repeating import repeat_command
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task

#: Characters of a command.
LONGEST_COMMAND = 4_000
#: What status.json may say.
STATUSES = ("running", "finished", "stopped", "diverged")


@dataclass(frozen=True, kw_only=True, eq=False)
class PageRun:
    """A run of the page and what its other parts are made from.

    Attributes:
        data: what the page lists.
        record: what distinguishes its training from others, under the names of an evaluation's JSON.
        task: its task, with the lengths of the run.
        evaluation: its accuracy at each length; None if it was not evaluated.
        listed: its accuracy at single lengths, which may be greater; None if there is none.
        config: None for a run that is known from a results file only.
        path: its folder; None likewise.
    """

    data: RunData
    record: Mapping[str, Any]
    task: Task
    evaluation: StoredEvaluation | None
    listed: StoredEvaluation | None = None
    config: RunConfig | None = None
    path: Path | None = None

    def measured(self, name: str) -> MeasuredValues | None:
        """Return a measure at every length and, beyond the last, at listed lengths; None if it was not taken.

        `name` is that of a field of `StoredEvaluation`, such as "accuracy" or "balanced".
        """
        parts = [None if part is None else getattr(part, name) for part in (self.evaluation, self.listed)]
        known = [part for part in parts if part is not None and part.lengths]
        return known[0].followed_by(known[1]) if len(known) == 2 else known[0] if known else None


@dataclass(frozen=True)
class TrainingProgress:
    """The contents of status.json."""

    status: str
    step: int
    steps: int
    seconds: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    device: str | None = None

    @classmethod
    def from_fields(cls, fields: JsonFields) -> TrainingProgress:
        """Return the progress; raise a `RunError` if the file is damaged."""
        fields.require("status", "step", "steps")
        status = fields.name("status") or ""
        if status not in STATUSES:
            raise RunError(f"{fields.where}: status must be one of {', '.join(STATUSES)}, got {status!r}")
        return cls(
            status=status,
            step=fields.whole("step") or 0,
            steps=fields.whole("steps") or 0,
            seconds=fields.number("seconds"),
            loss=fields.number("loss"),
            accuracy=fields.number("accuracy"),
            device=fields.name("device"),
        )


def read_run(path: Path) -> PageRun:
    """Read a run folder; raise an `SdssmError` if it is none, or if its config or its task cannot be read.

    Other files that are damaged are left out, and the problems of the run say so.
    """
    run = RunFolder.open(path)
    config = run.config
    task = load_run_task(config)
    files = RunFiles(path)
    progress = files.read(STATUS_FILE, TrainingProgress.from_fields) or TrainingProgress(**asdict(run.derive_status()))
    status, folder = progress.status, quote(str(path))

    def read_result(name: str, convert: Any, command: str) -> Any:
        return files.read_result(name, status, config.digest, convert, f"sdssm {command} {folder}")

    symbols = task.machine.symbol_names
    evaluation = read_result(EVALUATION_FILE, StoredEvaluation.from_fields, "evaluate")
    listed = read_result(LENGTHS_FILE, StoredEvaluation.from_fields, "evaluate")
    data: RunData = {
        "id": make_identifier(str(path), str(path)),
        "folder": str(path),
        "source": str(path),
        "task": task_identifier(task.name, task.digest),
        "training": "",  # `make_trainings` fills it in
        "model": clip_text(config.model.name, LONGEST_NAME),
        "preset": clip_text(config.preset, LONGEST_NAME),
        "seed": config.seed,
        "status": "interrupted" if status == "running" and _is_abandoned(path) else status,
        "step": progress.step,
        "steps": progress.steps,
        "seconds": round_number(progress.seconds, 1),
        "device": progress.device,
        "accuracy": round_percent(progress.accuracy),
        "loss": round_number(progress.loss, 6),
        **summarise_evaluation(evaluation or listed, task.train_length),  # type: ignore[typeddict-item]  # the fields of an evaluation
        "certified": read_result(CERTIFICATE_FILE, lambda fields: read_certificate(fields, symbols), "certify"),
        "horizon": read_result(HORIZON_FILE, read_horizon, "horizon"),
        "extraction": read_result(EXTRACTION_FILE, lambda fields: read_extraction(fields, symbols), "extract"),
        "settings": _format_settings(config),
        "versions": _format_versions(config),
        "command": clip_text(repeat_command(config), LONGEST_COMMAND),
        "problems": files.problems,
        "has_detail": False,
        "is_playable": False,
        "not_playable": None,
    }
    record = {
        "task": config.task,
        "model": config.model.name,
        "digest": config.digest,
        "preset": config.preset,
        "train_length": config.train_length,
        "settings": changed_settings(config.settings, config.preset, config.task),
    }
    return PageRun(data=data, record=record, task=task, evaluation=evaluation, listed=listed, config=config, path=path)


def summarise_evaluation(evaluation: StoredEvaluation | None, train_length: int) -> dict[str, Any]:
    """Return the fields of a run that come from its evaluation."""
    if evaluation is None:
        means = ("mean_within", "mean_beyond", "constant_within", "constant_beyond")
        unknown = dict.fromkeys(("headline", "headline_chance", *means, "max_length"))
        return {**unknown, "headline_lengths": None, "first_failure": None, "headline_name": "accuracy"}
    headline, name, chance = evaluation.headline
    within, beyond = evaluation.mean_constants(train_length)
    return {
        "headline": round_percent(headline),
        "headline_name": name,
        "headline_chance": round_number(chance, 2),
        "headline_lengths": evaluation.headline_lengths,
        "mean_within": round_percent(evaluation.mean_within),
        "mean_beyond": round_percent(evaluation.mean_beyond),
        "constant_within": None if evaluation.mean_within is None else round_percent(within),
        "constant_beyond": None if evaluation.mean_beyond is None else round_percent(beyond),
        "max_length": evaluation.max_length,
        "first_failure": evaluation.first_failure,
    }


def _is_abandoned(path: Path) -> bool:
    """Return whether no process trains in the folder."""
    try:
        return is_held(path) is False
    except OSError:
        return False


def _format_settings(config: RunConfig) -> dict[str, str]:
    values = config.settings.values_by_name()
    return {
        clip_text(name, LONGEST_NAME): clip_text(format_setting(value), LONGEST_NAME)
        for name, value in {**values, "train_length": config.train_length}.items()
        if name not in WITHOUT_EFFECT
    }


def _format_versions(config: RunConfig) -> dict[str, str]:
    versions = {**config.versions, **({} if config.commit is None else {"commit": config.commit})}
    return {clip_text(str(name), LONGEST_NAME): clip_text(str(value), LONGEST_NAME) for name, value in versions.items()}
