"""Which models there are: those of the catalogue, registered ones, installed plug-ins, and import paths.

A name is looked up each time it is used, so a model can be registered at any time before. A plug-in is a package with
an entry point in the group `sdssm.models`; it is imported when its name is first used. This module imports no torch.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from sdssm.errors import ModelError, RunWarning, UnknownNameError, did_you_mean, format_value, most_similar
from sdssm.layers.settings import MIXER_SETTINGS
from sdssm.models.import_paths import import_object, is_import_path
from sdssm.models.module_settings import options_class
from sdssm.models.targets import (
    check_mixer,
    check_not_built,
    default_name,
    find_import_path,
    is_in_catalogue,
    is_mixer,
)

#: The group of entry points that plug-ins use.
ENTRY_POINTS = "sdssm.models"

Target = TypeVar("Target", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelEntry:
    """A model that can be named: a sequence mixer inside our classifier, or someone else's whole module.

    `target` is the class of the mixer, or the class or factory `(n_symbols, n_classes) -> module`; None for a model of
    the catalogue, which is imported with torch only when it is built. `import_path` is how another process finds the
    target: None in the catalogue, and for code that cannot be imported, such as a function inside a function.
    `defaults` are the settings that it is trained with by default, by name.
    """

    name: str
    target: Any = None
    import_path: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_in_catalogue(self) -> bool:
        """Whether it is one of our own models."""
        return self.target is None

    @property
    def kind(self) -> Literal["mixer", "module"]:
        """Whether it is a mixer inside our classifier, or a whole module."""
        return "mixer" if self.is_in_catalogue or is_mixer(self.target) else "module"

    @property
    def mixer(self) -> Any:
        """The class of the mixer."""
        from sdssm.layers.catalogue import MIXERS

        return MIXERS[self.name] if self.is_in_catalogue else self.target

    @property
    def description(self) -> str:
        """The first line of the docstring; empty if there is none."""
        text = inspect.getdoc(self.mixer if self.kind == "mixer" else self.target) or ""
        # A class without a docstring inherits that of its base class, which does not describe it.
        inherited = inspect.isclass(self.target) and not self.target.__dict__.get("__doc__")
        return "" if inherited else text.split("\n\n")[0].replace("\n", " ").strip()


#: The models that were registered in this process, by name.
_registered: dict[str, ModelEntry] = {}


@overload
def register(model: Target, *, name: str | None = None, defaults: Mapping[str, Any] | None = None) -> Target: ...
@overload
def register(
    model: str | None = None, *, name: str | None = None, defaults: Mapping[str, Any] | None = None
) -> Callable[[Target], Target]: ...
def register(model: Any = None, *, name: str | None = None, defaults: Mapping[str, Any] | None = None) -> Any:
    """Make a model of your own known by a name, for `train(model=...)`, `--model` and all other places.

    Args:
        model: a subclass of `sdssm.layers.Mixer`, or a class or function `(n_symbols, n_classes) -> nn.Module` whose
            module maps tokens (B, L) to logits (B, L, C) for every prefix, or (B, C) for the whole string. Without it,
            or with a name in its place, `register` is a decorator.
        name: the name; by default that of the mixer, or of the class or function.
        defaults: settings to train it with, such as {"lr": 3e-4}.

    Further parameters of the class or function that have a default, such as `width=64`, are settings of the model:
    `train(settings={"width": 128})` or `--set width=128`.

    >>> import torch
    >>> @register("last-symbol", defaults={"steps": 2_000})
    ... class LastSymbol(torch.nn.Module):
    ...     def __init__(self, n_symbols, n_classes):
    ...         super().__init__()
    ...         self.table = torch.nn.Embedding(n_symbols, n_classes)
    ...     def forward(self, tokens):
    ...         return self.table(tokens)
    >>> "last-symbol" in list_models()
    True
    >>> forget("last-symbol")
    """
    if model is None or isinstance(model, str):
        if model is not None and name is not None:
            raise ModelError(f"two names were given, {model!r} and {name!r}; leave one of them out")
        chosen = name if model is None else model

        def decorate(target: Target) -> Target:
            add_entry(target, chosen, defaults)
            return target

        return decorate
    add_entry(model, name, defaults)
    return model


def forget(name: str) -> None:
    """Remove a registered model, so that its name is free again."""
    if name not in _registered:
        raise UnknownNameError(f"no model {name!r} was registered; {did_you_mean(name, _registered)}")
    del _registered[name]


def add_entry(target: Any, name: str | None = None, defaults: Mapping[str, Any] | None = None) -> ModelEntry:
    """Register a class or function and return its entry; see `register`."""
    check_not_built(target)
    if not callable(target) or isinstance(target, str):
        raise ModelError(
            f"{format_value(target)} cannot be registered; pass a class or a function (n_symbols, n_classes) -> module"
        )
    chosen = default_name(target) if name is None else name
    if not isinstance(chosen, str) or not chosen.strip() or chosen != chosen.strip():
        raise ModelError(f"the name of a model is {format_value(chosen)}; it must be a word")
    path = find_import_path(target)
    known = _registered.get(chosen)
    if chosen in MIXER_SETTINGS:
        raise ModelError(
            f"the name {chosen!r} is already taken by a model of the catalogue; register yours under another name, "
            f"as in register({chosen + '-2'!r})"
        )
    if known is not None and known.target is not target and (path is None or known.import_path != path):
        raise ModelError(
            f"the name {chosen!r} is already taken by {known.import_path or format_value(known.target)}; register "
            f"{path or 'this one'} under another name"
        )
    if is_mixer(target):
        check_mixer(target, chosen)
    else:
        options_class(target)  # refuses a signature that cannot be called with two sizes
    entry = ModelEntry(name=chosen, target=target, import_path=path, defaults=dict(defaults or {}))
    _registered[chosen] = entry
    return entry


def registered_entries() -> list[ModelEntry]:
    """Return the models that were registered in this process: those of others that it has named or used."""
    return list(_registered.values())


def list_models() -> list[str]:
    """Return the names of all models, as `train(model=...)` takes them: the catalogue, registered ones, plug-ins.

    >>> list_models()[:3]
    ['sd-ssm', 'rnn', 'lstm']
    """
    return list(dict.fromkeys([*MIXER_SETTINGS, *_registered, *plugin_paths()]))


def plugin_paths() -> dict[str, str]:
    """Return the import path of every installed plug-in by name; nothing is imported."""
    paths: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in MIXER_SETTINGS or paths.get(point.name, point.value) != point.value:
            warnings.warn(
                f"the plug-in {point.value} is called {point.name!r}, a name already taken; use it as --model "
                f"{point.value}",
                RunWarning,
                stacklevel=1,  # one place for all callers, so that Python shows it once
            )
            continue
        paths[point.name] = point.value
    return paths


def find_entry(model: Any) -> ModelEntry:
    """Return the entry of a model by its name, its import path, or the class or function itself.

    An import path is "package.module:Name" or "folder/file.py:Name". Importing it registers it, under that path unless
    the module itself registers it under a name.

    >>> find_entry("lstm").kind
    'mixer'
    >>> find_entry("lstn")
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: there is no model 'lstn'; did you mean 'lstm'? ...
    """
    if not isinstance(model, str):
        return _entry_of_object(model)
    if model in MIXER_SETTINGS:
        return ModelEntry(name=model)
    if model in _registered:
        return _registered[model]
    if is_import_path(model):
        return _entry_of_path(model, name=None)
    path = plugin_paths().get(model)
    if path is not None:
        return _entry_of_path(path, name=model)
    names = list_models()
    if ":" in model:
        form = "package.module:Name or folder/file.py:Name"
        raise UnknownNameError(f"there is no model {model!r}, and it is not an import path; write {form}")
    module, _, name = model.rpartition(".")
    if is_import_path(f"{module}:{name}") and most_similar(model, names) is None:
        raise UnknownNameError(f"there is no model {model!r}; did you mean the import path {module}:{name}?")
    otherwise = f"known: {', '.join(names)}; a model of your own is named by its import path, package.module:Name"
    raise UnknownNameError(f"there is no model {model!r}; {did_you_mean(model, names, otherwise)}")


def find_recorded_entry(name: str, import_path: str | None, *, trust: bool, source: str) -> ModelEntry:
    """Return the entry of a model that a folder names; its code is imported only with `trust`.

    An installed plug-in needs no `trust`: who installed it asked for it. `source` is the folder, for the error message.
    """
    if import_path is None and name in MIXER_SETTINGS:
        return ModelEntry(name=name)
    entry = registered_entry(name, import_path)
    if entry is not None:
        return entry
    if import_path is None:
        raise ModelError(
            f"{source} holds the model {name!r}, whose code cannot be imported (it was defined inside a function or a "
            f"session); define it again and register it as {name!r}"
        )
    if not trust and plugin_paths().get(name) != import_path:
        problem = f"{source} holds a model that is not part of sdssm, and loading it would import {import_path}"
        raise ModelError(
            f"{problem}; if you trust it, pass trust=True",
            shell=f"{problem}; if you trust it, add --model {import_path}, or --trust for every folder",
        )
    return _entry_of_path(import_path, name=None if name == import_path else name)


def registered_entry(name: str, import_path: str | None) -> ModelEntry | None:
    """Return the entry that was registered under this name or this import path; None if there is none."""
    entry = _registered.get(name)
    if entry is not None and (import_path is None or entry.import_path == import_path):
        return entry
    paths = (other for other in _registered.values() if import_path is not None and other.import_path == import_path)
    return next(paths, None)


def _entry_of_object(target: Any) -> ModelEntry:
    """Return the entry of a class or function, which is registered if it is not yet."""
    for entry in _registered.values():
        if entry.target is target:
            return entry
    check_not_built(target)
    if not callable(target):
        raise ModelError(
            f"model is {format_value(target)}; pass a name of sdssm.list_models(), an import path, or a class or "
            "function (n_symbols, n_classes) -> module"
        )
    if is_in_catalogue(target):
        return ModelEntry(name=target.name)
    path = find_import_path(target)
    is_long = path is None or is_mixer(target) or path.rpartition(":")[0].endswith(".py")
    return add_entry(target, default_name(target) if is_long else path)


def _entry_of_path(path: str, name: str | None) -> ModelEntry:
    """Import a model and return its entry, under the name that its module registers it, or else `name` or the path."""
    target, full_path = import_object(path)
    if is_in_catalogue(target):
        return ModelEntry(name=target.name)
    for entry in _registered.values():
        if entry.target is target and name in (None, entry.name):
            return entry
    if name is None:  # of a file without its folder, which may be long
        source, _, own_name = path.rpartition(":")
        short = f"{Path(source).name}:{own_name}" if source.endswith(".py") else path
        name = default_name(target) if is_mixer(target) else short
    entry = add_entry(target, name)
    if entry.import_path != full_path:  # such as a name that a package imports from another module
        entry = ModelEntry(name=name, target=target, import_path=full_path, defaults=entry.defaults)
        _registered[name] = entry
    return entry
