"""What `certify`, `extract` and `horizon` found, in a run folder: reports and model cards read it there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sdssm.evaluation.stored import read_result, write_result
from sdssm.exact.certification import Certificate
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction import Extraction
from sdssm.exact.measurement import Horizon
from sdssm.files import format_path
from sdssm.models.model_folder import CERTIFICATE_FILE
from sdssm.runs import RunFolder
from sdssm.runs.own_files import EXTRACTION_FILE, HORIZON_FILE

ExactResult = Certificate | Extraction | Horizon


def store_result(
    run: RunFolder, result: ExactResult, *, overwrite: bool = False, status: str | None = None
) -> str | None:
    """Write a result into the folder of its run, and return a note if it was not written.

    The file is certificate.json, extraction.json or horizon.json. A stored result of the same weights that says more (a
    certificate that proves a greater length, an extraction or a measurement that was not stopped, or of longer strings
    or more of them) is kept unless `overwrite`. The weights of a run that trains will change, so nothing is stored for
    it; resuming a run removes its results. If the file cannot be written that is a warning.

    Args:
        run: the run whose model was read.
        result: what `certify`, `extract` or `horizon` returned for this run and its own task; another task is an error.
        overwrite: replace a stored result even if it says more.
        status: that of the run before its weights were read; by default the present one.
    """
    if result.digest != run.config.digest:
        raise ExactError(
            f"this result is for {result.task or 'an unknown task'}, but {format_path(run.path)} was trained on "
            f"{run.config.task}; only results for its own task are stored with a run"
        )
    kind, status = _KINDS[type(result)], status or run.status
    if status == "running":
        return f"{kind.file} is not written, because the run has not ended"
    values = {**result.to_json(), "status": status}
    if not overwrite:
        stored = read_result(run, kind.file, status, run.config.digest)
        if stored is not None and kind.rank(stored) > kind.rank(values):
            reason = kind.describe(*kind.rank(stored))
            return f"{kind.file} is kept, because {reason}; overwrite=True or --overwrite replaces it"
    write_result(run, kind.file, values, stacklevel=4)
    return None


class _Kind(NamedTuple):
    """How results of one kind are stored: the file, how much the values of a file say, and that in words."""

    file: str
    rank: Callable[[Mapping[str, Any]], tuple[float, ...]]
    describe: Callable[..., str]


def _rank_certificate(values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the lengths that are proved in exact arithmetic and in float32; infinity for every length."""
    lengths = (values.get("horizon", 0), values.get("float_horizon", 0))
    exact, rounded = (math.inf if n is None else _number(n) for n in lengths)
    return exact, rounded


def _describe_certificate(exact: float, rounded: float) -> str:
    return f"it proves {_describe_length(exact)} in exact arithmetic and {_describe_length(rounded)} in float32"


def _rank_extraction(values: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return whether the search ended by itself, the longest length of the comparison, and its strings there."""
    compared = values.get("fidelity")
    records = [record for record in compared if isinstance(record, dict)] if isinstance(compared, list) else []
    longest = max(((_number(record.get("length")), _number(record.get("strings"))) for record in records), default=None)
    return float(values.get("stopped") is False), *(longest or (0, 0))


def _describe_extraction(complete: float, length: float, strings: float) -> str:
    ended = " and not stopped by a time limit" if complete else ""
    return f"it was compared on {strings:,.0f} strings of length {length:,.0f}{ended}"


def _rank_horizon(values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the length up to which it was measured, and the number of strings."""
    lengths = values.get("lengths")
    if values.get("stopped") is False:
        length = _number(values.get("max_length"))
    else:
        length = max(map(_number, lengths), default=0) if isinstance(lengths, list) else 0
    return length, _number(values.get("strings"))


def _describe_horizon(length: float, strings: float) -> str:
    return f"it was measured up to length {length:,.0f}, on {strings:,.0f} strings"


def _number(value: Any) -> float:
    """Return a number of a file; 0 for anything else."""
    return value if isinstance(value, int | float) else 0


def _describe_length(length: float) -> str:
    return "every length" if length == math.inf else f"length {length:,}"


_KINDS: dict[type, _Kind] = {
    Certificate: _Kind(CERTIFICATE_FILE, _rank_certificate, _describe_certificate),
    Extraction: _Kind(EXTRACTION_FILE, _rank_extraction, _describe_extraction),
    Horizon: _Kind(HORIZON_FILE, _rank_horizon, _describe_horizon),
}
