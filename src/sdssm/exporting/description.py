"""What an exported file says about its model: settings, task, names of symbols and labels, accuracy, certificate."""

from __future__ import annotations

import json
from typing import Any

from sdssm import __version__
from sdssm.automata import Machine, to_json
from sdssm.models import TokenModel
from sdssm.models.evidence import find_evidence
from sdssm.models.import_paths import without_folder
from sdssm.models.model_card import label_names
from sdssm.settings import settings_to_dict
from sdssm.tasks import Task

#: The number of this form of the description; a reader can refuse a larger one.
VERSION = 1


def describe_model(model: TokenModel, task: Task | None) -> dict[str, Any]:
    """Return what is known about a model as JSON values.

    >>> import sdssm
    >>> description = describe_model(sdssm.compile("regex:(ab)*"), sdssm.task("regex:(ab)*"))
    >>> description["symbols"], description["task"]["chance"]
    (['a', 'b'], 50.0)
    """
    evidence, settings = find_evidence(model), settings_to_dict(model.settings)
    return {
        "version": VERSION,
        "written_by": f"sdssm {__version__}",
        "name": model.name,
        "settings": {**settings, "import_path": without_folder(settings.get("import_path"))},
        "n_symbols": model.n_symbols,
        "n_classes": model.n_classes,
        "longest": model.longest,
        "is_recurrent": model.is_recurrent,
        "symbols": list(map(str, range(model.n_symbols)) if task is None else task.machine.symbol_names),
        "labels": list(map(str, range(model.n_classes)) if task is None else label_names(task)),
        "task": None if task is None else _describe_task(task),
        **evidence.to_json(),
    }


def _describe_task(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "chance": task.chance_accuracy,
        "train_length": task.train_length,
        "test_length": task.test_length,
        "machine": _machine_values(task.machine),
        "valid": None if task.valid is None else _machine_values(task.valid),
    }


def _machine_values(machine: Machine) -> dict[str, Any]:
    """Return the table (Q, V), the start state, the output of each state and, if it has them, its names."""
    values: dict[str, Any] = json.loads(to_json(machine))
    return values
