"""Models of others in the processes that train and evaluate them: how a worker finds their code.

A worker receives the import path of each model that the experiment names, and where its package is here. It imports
nothing else: what a run folder names is not enough.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from platform import node
from typing import Any

from sdssm.errors import ModelError
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.recorded_models import find_recorded_entry
from sdssm.models.registry import add_entry, find_entry, registered_entries
from sdssm.models.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class SentModel:
    """The name of a model, the path by which a worker imports it, and the settings it is trained with by default."""

    name: str
    import_path: str
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    folder: str | None = None  #: folder that contains its package here, which other machines may share


def send_models(settings: Iterable[ModelSettings | ModuleSettings]) -> tuple[SentModel, ...]:
    """Return the models of others among those with these settings, for `import_sent_models` in another process."""
    sent: dict[str, SentModel] = {}
    for model in settings:
        entry = find_recorded_entry(model.name, model.import_path, trust=False, source="the experiment")
        if entry.is_in_catalogue:
            continue
        if entry.import_path is None:
            raise ModelError(
                f"the model {entry.name!r} was defined inside a function or a session, so other processes cannot "
                "import it; define it in a file, or train and evaluate in this process"
            )
        location = package_location(entry.import_path)
        sent[entry.name] = SentModel(
            name=entry.name,
            import_path=entry.import_path,
            defaults=entry.defaults,
            folder=None if location is None else str(location.parent),
        )
    return tuple(sent.values())


def import_sent_models(models: Iterable[SentModel]) -> None:
    """Import models in a worker process, so that it can train and evaluate them."""
    for model in models:
        if model.folder is not None and model.folder not in sys.path and Path(model.folder).is_dir():
            sys.path.append(model.folder)
        try:
            entry = find_recorded_entry(model.name, model.import_path, trust=True, source="the experiment")
            entry = find_entry(entry.name)  # the experiment asks for it
        except ModelError as error:
            raise ModelError(
                f"a worker on node {node()} cannot import {model.import_path}: {str(error).partition(';')[0]}; install "
                f"its package on all nodes, or put it into a folder that they share; sys.path of the worker: "
                f"{os.pathsep.join(sys.path)}"
            ) from error
        if dict(entry.defaults) != dict(model.defaults):  # it was registered by a program, not by its own module
            add_entry(entry.target, entry.name, model.defaults)


def packages_to_send() -> list[str]:
    """Return the packages and modules of registered models that are not installed, for Ray to copy to its workers."""
    paths = [entry.import_path for entry in registered_entries() if entry.import_path is not None]
    locations = map(package_location, paths)
    return list(dict.fromkeys(str(location) for location in locations if location and not _is_installed(location)))


def package_location(import_path: str) -> Path | None:
    """Return the folder of the package of a model, or the file of its module; None if it has none.

    >>> package_location("json.decoder:JSONDecoder").name
    'json'
    """
    source = import_path.rpartition(":")[0]
    if source.endswith(".py"):
        return None  # it is found by its own path
    package = sys.modules.get(source.partition(".")[0])
    folders = list(getattr(package, "__path__", ()))
    if folders:
        return Path(folders[0]).resolve()
    file = getattr(package, "__file__", None)
    return None if file is None else Path(file).resolve()


def _is_installed(location: Path) -> bool:
    """Return whether a package belongs to Python or was installed; workers have their own."""
    paths = sysconfig.get_paths()
    return any(location.is_relative_to(Path(paths[name]).resolve()) for name in ("stdlib", "purelib", "platlib"))
