"""Evaluation: the accuracy of a model at every length.

evaluate          evaluate runs, run folders, or a model
Evaluation        the result: a RunEvaluation for each run, and an Aggregate over the seeds of each training
spectral_radii    the spectral radius of the matrix of each symbol
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.evaluation.evaluation import evaluate
    from sdssm.evaluation.records import Aggregate, Evaluation, RunEvaluation
    from sdssm.evaluation.request import EvaluationError
    from sdssm.evaluation.spectrum import spectral_radii
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Aggregate": "sdssm.evaluation.records",
            "Evaluation": "sdssm.evaluation.records",
            "EvaluationError": "sdssm.evaluation.request",
            "RunEvaluation": "sdssm.evaluation.records",
            "evaluate": "sdssm.evaluation.evaluation",
            "spectral_radii": "sdssm.evaluation.spectrum",
        },
    )

__all__ = ["Aggregate", "Evaluation", "EvaluationError", "RunEvaluation", "evaluate", "spectral_radii"]
