"""Evaluation: the accuracy of a model at every length.

evaluate          evaluate runs, run folders, or a model
Evaluation        the result: a RunEvaluation for each run, and an Aggregate over the seeds of each training
spectral_radii    the spectral radius of the matrix of each symbol
"""

from sdssm.evaluation.evaluation import evaluate
from sdssm.evaluation.records import Aggregate, Evaluation, RunEvaluation
from sdssm.evaluation.request import EvaluationError
from sdssm.evaluation.spectrum import spectral_radii

__all__ = ["Aggregate", "Evaluation", "EvaluationError", "RunEvaluation", "evaluate", "spectral_radii"]
