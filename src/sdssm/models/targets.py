"""What a model is made from: a mixer class, or a class or function that builds a module; and how it is named.

This module imports no torch.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdssm.errors import ModelError, SettingsError, did_you_mean, format_value
from sdssm.models.import_paths import is_import_path
from sdssm.models.module_settings import options_class
from sdssm.models.train_settings import TrainSettings, check_setting_names
from sdssm.settings import convert_value, setting_types

_NAME = re.compile(r"\w[\w.+-]*")


def is_mixer(target: Any) -> bool:
    """Return whether a class is a sequence mixer."""
    if not inspect.isclass(target):
        return False
    from sdssm.layers.mixer import Mixer

    return issubclass(target, Mixer)


def is_in_catalogue(target: Any) -> bool:
    """Return whether a class is the mixer of one of our own models."""
    if not is_mixer(target):
        return False
    from sdssm.layers.catalogue import MIXERS

    return MIXERS.get(getattr(target, "name", "")) is target


def check_target(target: Any, name: str) -> None:
    """Raise an error unless a class or function can be registered under this name."""
    if is_mixer(target):
        check_mixer(target, name)
        return
    _check_builds_modules(target)
    options_class(target)  # refuses a signature that cannot be called with two sizes


def check_defaults(target: Any, name: str, defaults: Mapping[str, Any]) -> None:
    """Raise an error unless the settings that a model is trained with by default are settings, with valid values."""
    if not defaults:
        return
    from sdssm.models.settings import ModelSettings  # imports this module

    parts = [target.Settings, ModelSettings] if is_mixer(target) else [options_class(target)]
    known = {key: kind for part in (TrainSettings, *parts) for key, kind in setting_types(part).items()}
    try:
        for key, value in defaults.items():
            if key not in known:
                raise SettingsError(f"there is no setting {key!r}; {did_you_mean(str(key), known)}")
            convert_value(key, value, known[key])
    except SettingsError as error:
        raise ModelError(f"the defaults of the model {name!r}: {error}") from None


def _check_builds_modules(target: Any) -> None:
    """Raise an error for a class that is no nn.Module, and for functions of Python itself.

    A folder names what is called to build its model, with trust; it must not be able to start a program with it.
    """
    if inspect.isclass(target):
        from torch import nn

        if not issubclass(target, nn.Module):
            raise ModelError(
                f"the class {target.__module__}.{target.__qualname__} is not an nn.Module; pass a subclass of it, or a "
                "function (n_symbols, n_classes) -> module"
            )
        return
    function = target
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    if module.partition(".")[0] in {*sys.stdlib_module_names, "builtins"} and module != "__main__":
        raise ModelError(
            f"{format_value(target)} is part of Python and builds no model; pass a class or a function (n_symbols, "
            "n_classes) -> module"
        )


def is_redefined(known: Any, target: Any) -> bool:
    """Return whether a class or function was defined again, as when a cell of a notebook is run again.

    >>> def build(n_symbols, n_classes): ...
    >>> first = build
    >>> def build(n_symbols, n_classes): ...
    >>> is_redefined(first, build), is_redefined(first, sorted)
    (True, False)
    """
    names = [(getattr(item, "__module__", None), getattr(item, "__qualname__", None)) for item in (known, target)]
    return names[0] == names[1] and None not in names[0]


def check_mixer(mixer: Any, name: str) -> None:
    """Raise an error unless a mixer class can be registered under this name."""
    from sdssm.layers.settings import MixerSettings
    from sdssm.models.settings import ModelSettings  # imports this module

    if mixer.__abstractmethods__:
        missing = ", ".join(sorted(mixer.__abstractmethods__))
        raise ModelError(f"the mixer {mixer.__name__} does not define {missing}; see docs/how-to/add-a-mixer.md")
    settings = getattr(mixer, "Settings", None)
    if not (inspect.isclass(settings) and issubclass(settings, MixerSettings)):
        raise ModelError(
            f"Settings of the mixer {mixer.__name__} is {format_value(settings)}; make it a subclass of MixerSettings"
        )
    check_setting_names(f"the mixer {mixer.__name__}", setting_types(settings), setting_types(ModelSettings))
    if mixer.__dict__.get("name", name) != name:  # a subclass does not inherit the name
        raise ModelError(
            f"the mixer {mixer.__name__} is called {mixer.name!r} but is registered as {name!r}; use one name"
        )
    mixer.name = name


def default_name(target: Any) -> str:
    """Return the name of a class or function that is registered without one."""
    own = target.__dict__.get("name") if is_mixer(target) else None
    if isinstance(own, str):
        return own
    name = getattr(target, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ModelError(f"{format_value(target)} has no name; give one, as in register(model, name='mine')")
    return name


def check_name(name: Any) -> None:
    """Raise an error unless a model can be called so: on a command line and in the name of a folder.

    >>> check_name("My GRU!")
    Traceback (most recent call last):
    sdssm.errors.ModelError: the name of a model is 'My GRU!'; use letters, digits, dashes and dots, as in my-gru
    """
    if not isinstance(name, str) or not (_NAME.fullmatch(name) or is_import_path(name)):
        raise ModelError(
            f"the name of a model is {format_value(name)}; use letters, digits, dashes and dots, as in my-gru"
        )


def find_import_path(target: Any) -> str | None:
    """Return the path by which another process imports a class or function; None if it cannot be imported."""
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    if module != "__main__":
        file = getattr(sys.modules.get(module), "__sdssm_file__", None)  # it was imported as a file
        return f"{file or module}:{name}"
    file = getattr(sys.modules["__main__"], "__file__", None)
    return None if file is None else f"{Path(file).resolve()}:{name}"


def check_not_built(target: Any) -> None:
    """Raise an error for a module in place of its class: it is callable, but builds none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.nn.Module):
        own = type(target).__name__
        raise ModelError(
            f"the model is a module that is built already, a {own}, but each seed needs new weights; pass "
            f"{f'its class, as in model={own}, or ' if _takes_sizes(type(target)) else ''}a function, as in "
            f"def build(n_symbols, n_classes): return {own}(...) and model=build"
        )


def _takes_sizes(kind: type) -> bool:
    """Return whether a class can be called with a number of symbols and of classes."""
    try:
        options_class(kind)
    except ModelError:
        return False
    return True
