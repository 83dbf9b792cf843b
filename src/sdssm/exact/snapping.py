"""`snap`: replace a trained model by an exact model of the machine that it implements."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.automata import Machine
from sdssm.automata.formats import write_text
from sdssm.exact.certification import Certificate, certify
from sdssm.exact.compilation import compile as compile_machine
from sdssm.exact.extraction import Extraction, extract
from sdssm.exact.sources import ModelSource
from sdssm.models import Classifier

#: The file next to a snapped model that holds the extraction and the certificate.
EVIDENCE = "extraction.json"


@dataclass(frozen=True, kw_only=True)
class SnappedModel:
    """An exact model, the extraction of its machine, and the proof that the model emulates the machine."""

    model: Classifier
    extraction: Extraction
    certificate: Certificate  #: of the snapped model; it says nothing about the trained model

    def to_json(self) -> dict[str, Any]:
        """Return the extraction and the certificate as plain values, without the weights."""
        return {"extraction": self.extraction.to_json(), "certificate": self.certificate.to_json()}

    def save(self, folder: str | Path) -> None:
        """Save the model, for `sdssm.load`, with the extraction and the certificate next to it."""
        self.model.save(folder)
        write_text(Path(folder) / EVIDENCE, json.dumps(self.to_json(), indent=1) + "\n")


def snap(
    model: ModelSource, valid: Machine | None = None, *, method: str = "states", max_states: int = 1024, seed: int = 0
) -> SnappedModel:
    """Extract the machine that a model implements, and compile it to an exact model.

    The options are those of `extract`.

    The exact model has the same symbols and classes, and needs no query. Whether the machine is the right one depends
    on the extraction: a badly trained model is snapped exactly to a wrong machine.

    >>> from sdssm.exact import compile
    >>> snapped = snap(compile("d4"))
    >>> snapped.extraction.machine, snapped.model.n_classes, snapped.certificate.horizon is None
    (Machine(8 states, 2 symbols, 8 outputs), 8, True)
    """
    extraction = extract(model, valid, method=method, max_states=max_states, seed=seed)
    exact = compile_machine(extraction.machine, n_classes=extraction.n_classes)
    if isinstance(model, Classifier):
        exact = exact.to(model.readout.weight)
    certificate = certify(exact, extraction.machine, extraction.valid)
    return SnappedModel(model=exact, extraction=extraction, certificate=certificate)
