"""The certificate in a run folder, which a model card shows."""

from __future__ import annotations

import math
from typing import Any

from sdssm.evaluation.stored import read_result, write_result
from sdssm.exact.certification.certificate import Certificate
from sdssm.models.model_folder import CERTIFICATE_FILE
from sdssm.runs import RunFolder


def store_certificate(run: RunFolder, certificate: Certificate, status: str, *, overwrite: bool) -> str | None:
    """Write the certificate into the run folder, and return a note if the stored one is kept instead.

    A stored certificate of the same weights that proves a greater length is kept unless `overwrite`. `status` is that
    of the run before its weights were read: those of a run that trains will change, so nothing is stored for it.
    Resuming a run removes its certificate. If the file cannot be written that is a warning.
    """
    if status == "running":
        return None
    values = {**certificate.to_json(), "status": status, "digest": run.config.digest}
    if not overwrite:
        stored = read_result(run, CERTIFICATE_FILE, status, run.config.digest)
        lengths = None if stored is None else _proved_lengths(stored)
        if lengths is not None and lengths > _proved_lengths(values):
            return (
                f"{CERTIFICATE_FILE} is kept, because it proves {_describe(lengths[0])} in exact arithmetic and "
                f"{_describe(lengths[1])} in float32; --overwrite replaces it"
            )
    write_result(run, CERTIFICATE_FILE, values, stacklevel=4)
    return None


def _proved_lengths(values: dict[str, Any]) -> tuple[float, float]:
    """Return the lengths that are proved in exact arithmetic and in float32; infinity for every length."""
    lengths = (values.get("horizon", 0), values.get("float_horizon", 0))
    exact, rounded = (math.inf if n is None else n if isinstance(n, int) else 0 for n in lengths)
    return exact, rounded


def _describe(length: float) -> str:
    return "every length" if length == math.inf else f"length {length:,}"
