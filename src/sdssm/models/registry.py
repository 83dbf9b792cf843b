"""Which models there are: those of the catalogue, registered ones, installed plug-ins, and import paths.

A name is looked up each time it is used, so a model can be registered at any time before. A plug-in is a package with
an entry point in the group `sdssm.models`; it is imported when its name is first used. This module imports no torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, overload

from sdssm.errors import ModelError, RunWarning, UnknownNameError, did_you_mean, format_value, most_similar
from sdssm.layers.settings import MIXER_SETTINGS
from sdssm.models.import_paths import (
    import_object,
    is_file_path,
    is_import_path,
    resolve_import_path,
    split_import_path,
)
from sdssm.models.model_entry import ModelEntry
from sdssm.models.source_names import suggest_path_of_file
from sdssm.models.targets import (
    check_defaults,
    check_name,
    check_not_built,
    check_target,
    default_name,
    find_import_path,
    is_in_catalogue,
    is_mixer,
    is_redefined,
)

#: The group of entry points that plug-ins use.
ENTRY_POINTS = "sdssm.models"
#: The name and the module of a model with prototypes, which `sdssm.snap` builds.
SNAPPED_NAME, SNAPPED_PATH = "snapped-sd-ssm", "sdssm.models.snapped_recurrence:SnappedRecurrence"

Target = TypeVar("Target", bound=Callable[..., Any])


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
    """Remove a registered model, so that its name is free for another one."""
    if name not in _registered:
        raise UnknownNameError(f"no model {name!r} was registered; {did_you_mean(name, _registered)}")
    del _registered[name]


def add_entry(
    target: Any,
    name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    *,
    import_path: str | None = None,
    is_asked_for: bool = True,
) -> ModelEntry:
    """Register a class or function and return its entry; see `register`.

    `import_path` is the path that it was imported by, if that is known.
    """
    check_not_built(target)
    if not callable(target) or isinstance(target, str):
        what = format_value(target) if import_path is None else f"{import_path} is {format_value(target)}; it"
        raise ModelError(f"{what} cannot be registered; pass a class or a function (n_symbols, n_classes) -> module")
    chosen = default_name(target) if name is None else name
    check_name(chosen)
    path = import_path or find_import_path(target)
    if chosen in MIXER_SETTINGS:
        raise ModelError(
            f"the name {chosen!r} is already taken by a model of the catalogue; register yours under another name, "
            f"as in register({chosen + '-2'!r})"
        )
    if _is_taken(chosen, target, path):
        known = _registered[chosen]
        raise ModelError(
            f"the name {chosen!r} is already taken by {known.import_path or format_value(known.target)}; register "
            f"{path or 'this one'} under another name, or call sdssm.models.forget({chosen!r}) first"
        )
    check_target(target, chosen)
    check_defaults(target, chosen, defaults or {})
    entry = ModelEntry(
        name=chosen, target=target, import_path=path, defaults=dict(defaults or {}), is_asked_for=is_asked_for
    )
    _registered[chosen] = entry
    return entry


def _is_taken(name: str, target: Any, path: str | None) -> bool:
    """Return whether a name is that of another model. A class that a notebook defines again replaces the old one."""
    known = _registered.get(name)
    if known is None or known.target is target or (path is not None and known.import_path == path):
        return False
    return not is_redefined(known.target, target)


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
    if model == SNAPPED_NAME:
        return _snapped_entry()
    if model in _registered and not _is_other_file(model, _registered[model]):
        return _ask_for(_registered[model])
    if is_import_path(model):
        return _ask_for(import_entry(model, in_current_folder=True))
    path = plugin_paths().get(model)
    if path is not None:
        return import_entry(path, name=model, in_current_folder=False)
    names = list_models()
    suggestion = suggest_path_of_file(model)
    if suggestion is not None:
        raise UnknownNameError(f"there is no model {model!r}; {suggestion}")
    if ":" in model:
        form = "package.module:Name or folder/file.py:Name"
        raise UnknownNameError(f"there is no model {model!r}, and it is not an import path; write {form}")
    module, _, name = model.rpartition(".")
    if is_import_path(f"{module}:{name}") and most_similar(model, names) is None:
        raise UnknownNameError(f"there is no model {model!r}; did you mean the import path {module}:{name}?")
    otherwise = f"known: {', '.join(names)}; a model of your own is named by its import path, package.module:Name"
    raise UnknownNameError(f"there is no model {model!r}; {did_you_mean(model, names, otherwise)}")


def registered_entry(name: str, import_path: str | None) -> ModelEntry | None:
    """Return the entry that was registered under this import path, or else under this name; None if there is none.

    A model that the user named or registered is found by its name alone: its file may have been moved since, or be
    that of another machine. One that only a folder named is not: two folders may use one name.
    """
    if import_path == SNAPPED_PATH:  # code of this package, which needs no trust
        return _snapped_entry()
    path, entry = resolve_import_path(import_path), _registered.get(name)
    if entry is not None and (path is None or entry.import_path == path):
        return entry
    same_path = next((other for other in _registered.values() if path is not None and other.import_path == path), None)
    if same_path is not None:
        return same_path
    return entry if entry is not None and entry.is_asked_for else None


def _snapped_entry() -> ModelEntry:
    """Return the entry of the models that `snap` builds; it is not listed, since it cannot be trained."""
    from sdssm.models.snapped_recurrence import SnappedRecurrence  # it imports torch

    return ModelEntry(name=SNAPPED_NAME, target=SnappedRecurrence, import_path=SNAPPED_PATH)


def add_name(entry: ModelEntry, name: str) -> None:
    """Register a model under another name as well."""
    _registered[name] = replace(entry, name=name)


def _ask_for(entry: ModelEntry) -> ModelEntry:
    """Note that the user named a model, which only a folder may have named before."""
    if not entry.is_asked_for:
        entry = _registered[entry.name] = replace(entry, is_asked_for=True)
    return entry


def _is_other_file(path: str, entry: ModelEntry) -> bool:
    """Return whether a path names a file that exists and is not that of the entry, which has the path as its name."""
    if not is_file_path(path) or not Path(split_import_path(path)[0]).is_file():
        return False
    return resolve_import_path(path) != entry.import_path


def _entry_of_object(target: Any) -> ModelEntry:
    """Return the entry of a class or function, which is registered if it is not yet."""
    for entry in _registered.values():
        if entry.target is target:
            return _ask_for(entry)
    check_not_built(target)
    if not callable(target):
        raise ModelError(
            f"model is {format_value(target)}; pass a name of sdssm.list_models(), an import path, or a class or "
            "function (n_symbols, n_classes) -> module"
        )
    if is_in_catalogue(target):
        return ModelEntry(name=target.name)
    path = find_import_path(target)
    is_long = path is None or is_mixer(target) or is_file_path(path)
    return add_entry(target, default_name(target) if is_long else path)


def import_entry(
    path: str, *, name: str | None = None, in_current_folder: bool, is_asked_for: bool = True
) -> ModelEntry:
    """Import a model and return its entry, under the name that its module registers it, or else `name` or the path."""
    target, full_path = import_object(path, in_current_folder=in_current_folder)
    if is_in_catalogue(target):
        return ModelEntry(name=target.name)
    for entry in _registered.values():
        if entry.target is target and name in (None, entry.name):
            return entry
    if name is None or (not is_asked_for and _is_taken(name, target, full_path)):
        name = default_name(target) if is_mixer(target) else _short_name(target, full_path)
    return add_entry(target, name, import_path=full_path, is_asked_for=is_asked_for)


def _short_name(target: Any, path: str) -> str:
    """Return an import path with as few folders of its file as make it different from other names and files."""
    if not is_file_path(path):
        return path
    source, own_name = split_import_path(path)
    parts = Path(source).parts
    for count in range(1, len(parts)):
        name = f"{'/'.join(parts[-count:])}:{own_name}"
        entry = ModelEntry(name=name, target=target, import_path=path)
        if not _is_taken(name, target, path) and not _is_other_file(name, entry):
            return name
    return path
