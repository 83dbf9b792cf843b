"""What was measured and proved about a model: its evaluation and its certificate, from the files of its folder."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.checksums import FILE_CHECKSUM, ChecksumError
from sdssm.errors import RunWarning
from sdssm.files import describe_file_error, format_path, read_regular_file
from sdssm.means import mean_of_known
from sdssm.models.model_folder import CERTIFICATE_FILE, EVALUATION_FILE, EVIDENCE_FILE, is_model_folder
from sdssm.tasks import Task, chance_accuracy
from sdssm.tasks.label_shares import best_constants

if TYPE_CHECKING:
    from sdssm.models.token_model import TokenModel

#: What is kept of an evaluation, whose file has the accuracy at every length. Accuracies are in percent.
EVALUATION_KEYS = (
    "task",
    "mean",
    "mean_within",
    "mean_beyond",
    "best_constant_mean",
    "balanced",
    "covering",
    "headline",
    "headline_name",
    "headline_chance",
    "chance",
    "first_below_99",
    "train_length",
    "max_length",
    "strings",
    "string_seed",
    "read",
    "seed",
    "status",
    "device",
)
#: What is kept of a certificate. A horizon of null stands for every length.
CERTIFICATE_KEYS = ("task", "horizon", "float_horizon", "exact", "reason")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evaluation and the certificate of a model as JSON values; None if there is none.

    `digest` is the fingerprint of the weights that they belong to.
    """

    evaluation: Mapping[str, Any] | None = None
    certificate: Mapping[str, Any] | None = None
    digest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return both as JSON values."""
        return {"evaluation": self.evaluation, "certificate": self.certificate}


def read_evidence(folder: Path, model: TokenModel) -> Evidence | None:
    """Return what a folder holds about its model; None if there is nothing."""
    evaluation = _select(_read(folder / EVALUATION_FILE), EVALUATION_KEYS)
    if evaluation is not None and evaluation.get("chance") is None:  # files of older versions have none
        evaluation["chance"] = chance_accuracy(model.n_classes)
    if evaluation is not None and evaluation.get("best_constant_mean") is None and model.task is not None:
        evaluation["best_constant_mean"] = _mean_constant(model, model.task, evaluation.get("max_length"))
    certificate = _read(folder / CERTIFICATE_FILE)
    if certificate is None:
        snapped = _read(folder / EVIDENCE_FILE)
        certificate = None if snapped is None else snapped.get("certificate")
    certificate = _select(certificate, CERTIFICATE_KEYS)
    if evaluation is None and certificate is None:
        return None
    return Evidence(evaluation=evaluation, certificate=certificate, digest=digest_weights(model))


def _mean_constant(model: TokenModel, task: Task, max_length: Any) -> float | None:
    """Return what the best constant answer scores over all lengths, for an evaluation that does not contain it."""
    if not isinstance(max_length, int):
        return None
    random_start = model.settings.state_embedding is not None
    return mean_of_known(best_constants(task, range(1, max_length + 1), random_start=random_start))


def find_evidence(model: TokenModel) -> Evidence:
    """Return what is known about a model, if its weights have not changed since; else nothing."""
    evidence = model.evidence
    if evidence is None or evidence.digest != digest_weights(model):
        return Evidence()
    return evidence


def digest_weights(model: TokenModel) -> str:
    """Return a fingerprint of the weights of a model."""
    return hashlib.sha256(model.to_safetensors()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is none, or if it is damaged, which is a warning."""
    if not path.exists():
        return None
    try:
        values, _ = FILE_CHECKSUM.verify(read_regular_file(path, follow_links=is_model_folder(path.parent)))
    except (OSError, ChecksumError) as error:
        reason = describe_file_error(error) if isinstance(error, OSError) else str(error)
        warnings.warn(f"{format_path(path)} is damaged: {reason}; ignored", RunWarning, stacklevel=2)
        return None
    return values if isinstance(values, dict) else None


def _select(values: Any, keys: tuple[str, ...]) -> dict[str, Any] | None:
    return {key: values[key] for key in keys if key in values} if isinstance(values, dict) else None
