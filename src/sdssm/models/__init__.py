"""Models: the classifier, its settings, the presets, and loading from a folder."""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.models.catalogue import DEFAULT_MODEL, DEFAULT_PRESET, MODELS, default_preset, get_preset
    from sdssm.models.classifier import Classifier
    from sdssm.models.presets import PRESETS
    from sdssm.models.registry import forget, list_models, register
    from sdssm.models.saved import load_model
    from sdssm.models.settings import ModelSettings
    from sdssm.models.stack import State
    from sdssm.models.token_model import TokenModel
    from sdssm.models.wrapped_module import WrappedModule, wrap_module
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Classifier": "sdssm.models.classifier",
            "DEFAULT_MODEL": "sdssm.models.catalogue",
            "DEFAULT_PRESET": "sdssm.models.catalogue",
            "MODELS": "sdssm.models.catalogue",
            "ModelSettings": "sdssm.models.settings",
            "PRESETS": "sdssm.models.presets",
            "State": "sdssm.models.stack",
            "TokenModel": "sdssm.models.token_model",
            "WrappedModule": "sdssm.models.wrapped_module",
            "default_preset": "sdssm.models.catalogue",
            "forget": "sdssm.models.registry",
            "get_preset": "sdssm.models.catalogue",
            "list_models": "sdssm.models.registry",
            "load_model": "sdssm.models.saved",
            "register": "sdssm.models.registry",
            "wrap_module": "sdssm.models.wrapped_module",
        },
    )

__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_PRESET",
    "MODELS",
    "PRESETS",
    "Classifier",
    "ModelSettings",
    "State",
    "TokenModel",
    "WrappedModule",
    "default_preset",
    "forget",
    "get_preset",
    "list_models",
    "load_model",
    "register",
    "wrap_module",
]
