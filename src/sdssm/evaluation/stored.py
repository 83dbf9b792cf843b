"""The evaluation files in a run folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from sdssm.errors import RunError, RunWarning
from sdssm.evaluation.records import RunEvaluation
from sdssm.files import describe_file_error, format_path
from sdssm.runs import RunFolder
from sdssm.runs.disk import encode_json

#: The files in a run folder with its evaluation, at every length and at listed lengths.
EVALUATION_FILE, LENGTHS_FILE = "evaluation.json", "evaluation-lengths.json"


def store_evaluation(run: RunFolder, result: RunEvaluation, *, overwrite: bool) -> str | None:
    """Write the result into the run folder, and return a note if the stored one is kept instead.

    A stored evaluation with longer strings, or with more strings or lengths up to the same length, is kept unless
    `overwrite`. If the file cannot be written that is a warning: the caller has the result anyway.
    """
    name = EVALUATION_FILE if result.lengths is None else LENGTHS_FILE
    if not overwrite and (kept := _describe_larger(run, name, result)):
        return kept
    write_result(run, name, result.to_json(), stacklevel=6)
    return None


def write_result(run: RunFolder, name: str, values: Mapping[str, Any], *, stacklevel: int) -> None:
    """Write a result into the run folder, unless training has continued since; values["status"] is that of the run.

    If the file cannot be written that is a warning: the caller has the result anyway.
    """
    write_file(run, name, encode_json(values), values["status"], stacklevel=stacklevel + 1)


def write_file(run: RunFolder, name: str, data: bytes, status: str | None, *, stacklevel: int) -> None:
    """Write the file of a result, as `write_result` does; `status` is that of the run before its weights were read."""
    try:
        if run.status == status:
            run.write_result(name, data)
    except RunError as error:
        cause = error.__cause__  # without the advice on how to resume a training
        reason = describe_file_error(cause) if isinstance(cause, OSError) else str(error)
        path = format_path(run.path / name)
        warnings.warn(f"{path} cannot be written: {reason}; this result is not kept", RunWarning, stacklevel=stacklevel)


def read_result(run: RunFolder, name: str, status: str | None, digest: str | None) -> dict[str, Any] | None:
    """Return a stored result for this status of the run and this task; None if there is none, or if it is damaged.

    A damaged result is a warning.
    """
    stored = read_stored(run, name)
    if not isinstance(stored, dict) or (stored.get("status"), stored.get("digest")) != (status, digest):
        return None
    return stored


def read_stored(run: RunFolder, name: str) -> Any | None:
    """Return the contents of a result file; None if there is none, or with a warning if it is damaged."""
    try:
        return run.read_json(name)
    except RunError as error:
        warnings.warn(f"{error}; it counts as missing", RunWarning, stacklevel=2)
        return None


def _describe_larger(run: RunFolder, name: str, result: RunEvaluation) -> str | None:
    """Return a note if the folder holds an evaluation of the same weights that covers more than the result."""
    stored = read_result(run, name, result.status, result.digest)
    extent = None if stored is None else _extent(stored)
    if extent is None or extent <= (result.max_length, result.strings, len(result.accuracy)):
        return None
    length, strings, lengths = extent
    covered = f"{strings:,} strings for {lengths:,} lengths up to {length:,}"
    return f"{name} is kept, because it has {covered}; overwrite=True or --overwrite replaces it"


def _extent(stored: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return the greatest length, the number of strings and the number of lengths; None if they are damaged."""
    length, strings, accuracy = stored.get("max_length"), stored.get("strings"), stored.get("accuracy")
    if not isinstance(length, int) or not isinstance(strings, int) or not isinstance(accuracy, list):
        return None
    return length, strings, len(accuracy)
