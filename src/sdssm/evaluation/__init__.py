"""Evaluation: the accuracy of a model at every length.

evaluate          of runs, their folders, or a model
Evaluation        what it finds: a RunEvaluation for each run, and an Aggregate over seeds
spectral_radii    of each symbol's matrix
"""

from sdssm.evaluation.asked import EvaluationError
from sdssm.evaluation.evaluation import evaluate
from sdssm.evaluation.records import Aggregate, Evaluation, RunEvaluation
from sdssm.evaluation.spectrum import spectral_radii

__all__ = ["Aggregate", "Evaluation", "EvaluationError", "RunEvaluation", "evaluate", "spectral_radii"]
