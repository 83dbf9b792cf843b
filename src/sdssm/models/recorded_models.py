"""The model that a folder records, by a name and an import path: a folder alone never makes the program import code.

This module imports no torch.
"""

from __future__ import annotations

from sdssm.errors import ModelError
from sdssm.layers.settings import is_catalogue_model
from sdssm.models.model_entry import ModelEntry
from sdssm.models.registry import add_name, import_entry, plugin_paths, registered_entry


def find_recorded_entry(name: str, import_path: str | None, *, trust: bool, source: str) -> ModelEntry:
    """Return the entry of a model that a folder names; its code is imported only with `trust`.

    An installed plug-in needs no `trust`: installing it counts as asking for it. `source` is the folder, for the error
    message.
    """
    if is_catalogue_model(name, import_path):
        return ModelEntry(name=name)
    entry = registered_entry(name, import_path)
    if entry is not None:
        return entry
    if import_path is None:
        raise ModelError(
            f"{source} holds the model {name!r}, whose code is not recorded: it was defined in a session or inside a "
            f"function, or saved from a module that was built already; register a class or function that builds it as "
            f"{name!r}"
        )
    plugins = plugin_paths()
    if not trust and plugins.get(name) != import_path:
        problem = f"{source} holds a model that is not part of sdssm, and loading it would import {import_path}"
        raise ModelError(
            f"{problem}; if you trust it, pass trust=True, or import {_own_name(import_path)} yourself and call "
            f"sdssm.register({_own_name(import_path)}) first",
            shell=f"{problem}; if you trust it, add --model {import_path}, or --trust for every folder",
        )
    # A plug-in is imported from where it is installed: a package of the same name in the current folder is not it.
    return import_entry(
        import_path,
        name=None if name == import_path else name,
        in_current_folder=import_path not in plugins.values(),
        is_asked_for=plugins.get(name) == import_path,
    )


def use_recorded_name(entry: ModelEntry, name: str, import_path: str | None) -> bool:
    """Let a model that the user named stand for one that a folder records; return whether it can.

    It can if the class or function has the same name: its file may have been moved or renamed.
    """
    if is_catalogue_model(name, import_path):
        return entry.is_in_catalogue and entry.name == name
    known = registered_entry(name, import_path)
    if known is not None:
        return known.target is entry.target
    if entry.is_in_catalogue or _own_name(import_path or name) != _own_name(entry.import_path or entry.name):
        return False
    add_name(entry, name)
    return True


def _own_name(text: str) -> str:
    """Return the name of the class or function in an import path."""
    return text.rpartition(":")[2]
