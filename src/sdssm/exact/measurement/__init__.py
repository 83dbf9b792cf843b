"""Measure the longest length at which a model still classifies test strings correctly."""

from sdssm.exact.measurement.length_readings import HorizonReading
from sdssm.exact.measurement.measured_horizon import Horizon, horizon
from sdssm.exact.measurement.word_matrices import WordMatrices

__all__ = ["Horizon", "HorizonReading", "WordMatrices", "horizon"]
