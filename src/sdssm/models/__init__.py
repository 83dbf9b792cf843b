"""Models: one classifier class, its settings, the presets, and models in a folder."""

from sdssm.models.catalogue import DEFAULT_PRESET, MODELS, PRESETS, preset
from sdssm.models.classifier import Classifier, State
from sdssm.models.saved import load_model
from sdssm.models.settings import ModelSettings

__all__ = [
    "DEFAULT_PRESET",
    "MODELS",
    "PRESETS",
    "Classifier",
    "ModelSettings",
    "State",
    "load_model",
    "preset",
]
