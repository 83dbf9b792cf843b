"""Models: the classifier, its settings, the presets, and loading from a folder."""

from sdssm.models.catalogue import DEFAULT_MODEL, DEFAULT_PRESET, MODELS, default_preset, get_preset, list_models
from sdssm.models.classifier import Classifier
from sdssm.models.presets import PRESETS
from sdssm.models.saved import load_model
from sdssm.models.settings import ModelSettings
from sdssm.models.stack import State

__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_PRESET",
    "MODELS",
    "PRESETS",
    "Classifier",
    "ModelSettings",
    "State",
    "default_preset",
    "get_preset",
    "list_models",
    "load_model",
]
