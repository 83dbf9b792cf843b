"""Convert between automata and weights, and prove or measure up to which length a model is correct.

- `compile` builds a model that emulates a given machine, without training (`compilation`).
- `extract` finds the machine that a trained model implements, with the evidence for it (`extraction`).
- `certify` proves a length up to which every valid string is classified correctly (`certification`).
- `horizon` measures the longest length at which a model is still correct (`measurement`).
- `snap` replaces a trained model by an exact one: `extract`, then `compile` (`snapping`).
- `store_result` writes what `certify`, `extract` or `horizon` found into the folder of a run (`stored`).
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.exact.certification import Certificate, Misclassified, certify
    from sdssm.exact.compilation import compile  # noqa: A004  # qualified by the package name it is unambiguous
    from sdssm.exact.errors import ExactError, WrongMachineWarning
    from sdssm.exact.extraction import Extraction, extract
    from sdssm.exact.measurement import Horizon, horizon
    from sdssm.exact.snapping import SnappedModel, snap
    from sdssm.exact.stored import store_result
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Certificate": "sdssm.exact.certification",
            "ExactError": "sdssm.exact.errors",
            "Extraction": "sdssm.exact.extraction",
            "Horizon": "sdssm.exact.measurement",
            "Misclassified": "sdssm.exact.certification",
            "SnappedModel": "sdssm.exact.snapping",
            "WrongMachineWarning": "sdssm.exact.errors",
            "certify": "sdssm.exact.certification",
            "compile": "sdssm.exact.compilation",
            "extract": "sdssm.exact.extraction",
            "horizon": "sdssm.exact.measurement",
            "snap": "sdssm.exact.snapping",
            "store_result": "sdssm.exact.stored",
        },
    )

__all__ = [
    "Certificate",
    "ExactError",
    "Extraction",
    "Horizon",
    "Misclassified",
    "SnappedModel",
    "WrongMachineWarning",
    "certify",
    "compile",
    "extract",
    "horizon",
    "snap",
    "store_result",
]
