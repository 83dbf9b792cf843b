"""Optional dependencies: which extra of the package installs which module."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from sdssm.errors import MissingExtraError

#: Importable module -> the extra of `pyproject.toml` that installs it.
EXTRAS = {
    "rich": "rich",
    "triton": "triton",
    "numba": "numba",
    "matplotlib": "plots",
    "ray": "ray",
    "optuna": "optuna",
    "tensorboard": "tensorboard",
    "networkx": "networkx",
    "automata": "automata-lib",
    "aalpy": "aalpy",
    "pandas": "pandas",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "huggingface_hub": "hub",
}


def import_extra(module: str, purpose: str) -> ModuleType:
    """Import a module, which may have a dotted name, or raise an error that names the extra to install.

    `purpose` is what needs the module, for the error message.
    """
    try:
        return import_module(module)
    except ImportError as error:
        extra = EXTRAS[module.partition(".")[0]]
        raise MissingExtraError(f"{purpose} needs {module}; install sdssm[{extra}]") from error
