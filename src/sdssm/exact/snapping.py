"""`snap`: from a trained model to an exact one with the same interface, by way of its automaton."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.automata import Machine
from sdssm.automata.formats import write_text
from sdssm.exact.certification.certifier import Certificate, certify
from sdssm.exact.compilation.compiler import compile as compiled
from sdssm.exact.extraction.extractor import Extraction, ModelSource, extract
from sdssm.models import Classifier

#: The file beside a snapped model that says where it comes from.
EVIDENCE = "extraction.json"


@dataclass(frozen=True, kw_only=True)
class SnappedModel:
    """An exact model, the machine it emulates with the evidence for it, and the proof that it does for every length."""

    model: Classifier
    extraction: Extraction
    certificate: Certificate  #: of the snapped model: it says nothing of the one that was trained

    def to_json(self) -> dict[str, Any]:
        """The evidence; the weights are not in it."""
        return {"extraction": self.extraction.to_json(), "certificate": self.certificate.to_json()}

    def save(self, folder: str | Path) -> None:
        """Write the model, which `sdssm.load` reads back, and beside it the evidence."""
        self.model.save(folder)
        write_text(Path(folder) / EVIDENCE, json.dumps(self.to_json(), indent=1) + "\n")


def snap(
    model: ModelSource, valid: Machine | None = None, *, method: str = "states", max_states: int = 1024, seed: int = 0
) -> SnappedModel:
    """The exact model of the machine that a model, or that of a run, implements; see `extract` for the options.

    It reads the same symbols and tells the same classes, and needs no query. Whether the machine is the right one is
    what the extraction's evidence is about: a model that was trained badly is snapped to a wrong machine, exactly.

    >>> from sdssm.exact import compile
    >>> snapped = snap(compile("d4"))
    >>> snapped.extraction.machine, snapped.model.n_classes, snapped.certificate.horizon is None
    (Machine(8 states, 2 symbols, 8 outputs), 8, True)
    """
    found = extract(model, valid, method=method, max_states=max_states, seed=seed)
    exact = compiled(found.machine, n_classes=found.n_classes)
    if isinstance(model, Classifier):
        exact = exact.to(model.readout.weight)
    return SnappedModel(model=exact, extraction=found, certificate=certify(exact, found.machine, found.valid))
