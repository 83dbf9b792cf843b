"""`sdssm models`: list the models that can be trained, their settings and presets."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

from sdssm.cli.model_options import IMPORT_PATH_HELP
from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import print_facts, print_json, print_table
from sdssm.cli.settings import HEADERS, describe_part, setting_row
from sdssm.errors import RunWarning, SdssmError
from sdssm.formatting import UNKNOWN, format_setting
from sdssm.text_tables import terminal_width, wrap_text

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.tasks import Task

#: Text is wrapped at this width, or at that of a narrower terminal.
WIDEST = 110
#: The origin of a model that is part of this package; of others it is the import path.
CATALOGUE = "sdssm"
NO_DOCSTRING = "not described: its class or function has no docstring"
NOTHING_PROVED = "nothing is known about which automata it emulates"


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "models",
        summary="list models, their settings and presets",
        description="List the models that can be trained: how many parameters each has, what is proved about it, and "
        "its settings. Models of installed plug-ins are listed too. With MODEL, show all settings and presets of one "
        "model.",
        examples=["sdssm models", "sdssm models mamba", "sdssm models my_package.models:Gru"],
    )
    add = parser.add_argument
    add("name", metavar="MODEL", nargs="?", help=f"show this model only, with all its settings: {IMPORT_PATH_HELP}")
    add("--task", default="a5", help="task for which parameters are counted (default: %(default)s)")
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_models)


def _models(options: argparse.Namespace) -> None:
    from sdssm.models.registry import find_entry, list_models
    from sdssm.tasks.library import get_task

    task = get_task(options.task)
    if options.name is not None:
        find_entry(options.name)  # an unknown name is refused before torch is imported
        _show_model(_facts(options.name, task), task, options.json)
        return
    listed = [_facts_or_warning(name, task) for name in list_models()]
    models = [facts for facts in listed if facts is not None]
    if options.json:
        print_json(models)
        return
    rows = [
        [
            facts["model"],
            f"{facts['parameters']:,}",
            UNKNOWN if facts["transition_parameters"] is None else f"{facts['transition_parameters']:,}",
            _reading(facts),
            facts["origin"],
        ]
        for facts in models
    ]
    headers = ["model", "parameters", "transitions", "reads", "origin"]
    if all(facts["origin"] == CATALOGUE for facts in models):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    print_table(headers, rows, right=("parameters", "transitions"))
    print(
        f"\nParameters are counted with the default settings on {options.task}.\n"
        "Transitions: parameters that compute the next state from the input.\n"
        "Settings with their defaults, and what is proved:\n"
    )
    for facts in models:
        print("\n    ".join(_wrap(f"{facts['model']}: {_format_settings(facts) or 'no settings'}")))
        print("    " + "\n    ".join(_wrap(facts["emulates"] or NOTHING_PROVED)))
    print("\nsdssm models MODEL shows all settings and presets of one, sdssm settings MODEL those of its training.")
    print("A model of your own is named by its import path, as in sdssm models my_package.models:Gru.")


def _wrap(text: str) -> list[str]:
    """Break a text into lines that leave room for an indent of 4."""
    return wrap_text(text, min(WIDEST, terminal_width() or WIDEST) - 4)


def _facts_or_warning(name: str, task: Task) -> dict[str, Any] | None:
    """Return facts about a model; a plug-in that cannot be imported or built must not hide the other models."""
    from sdssm.models.catalogue import MODELS

    try:
        return _facts(name, task)
    except SdssmError as error:
        if name in MODELS:
            raise
        warnings.warn(f"{error}; the model {name} is not listed", RunWarning, stacklevel=2)
        return None


def _facts(name: str, task: Task) -> dict[str, Any]:
    """Return facts about a model with its default settings on a task."""
    from sdssm.models import Classifier
    from sdssm.models.building import untrained_model
    from sdssm.models.catalogue import default_preset, list_presets
    from sdssm.models.registry import find_entry
    from sdssm.runs.schema import NOT_SETTINGS, resolve_settings
    from sdssm.settings import settings_to_dict

    entry = find_entry(name)
    settings = resolve_settings(entry.name, default_preset(entry.name), task.name).model
    model = untrained_model(settings, task.n_symbols, task.n_classes, seed=0)
    is_mixer = isinstance(model, Classifier)
    parts = settings.parts()
    own = parts["mixer"] if "mixer" in parts else parts["options"]
    doc = (entry.mixer.__doc__ or "").strip() if entry.is_in_catalogue else entry.description
    return {
        "model": entry.name,
        "origin": CATALOGUE if entry.is_in_catalogue else entry.import_path or "this session",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "transition_parameters": sum(layer.transition_parameters() for layer in model.mixers) if is_mixer else None,
        "causal": model.is_causal,
        "recurrent": model.is_recurrent,
        "prefixes_at_once": model.can_read_prefixes_at_once,
        "longest": model.longest,
        "emulates": entry.mixer.emulates if is_mixer else "",
        "what": doc.splitlines()[0] if doc else "",
        "settings": {key: value for key, value in settings_to_dict(settings).items() if key not in NOT_SETTINGS},
        "mixer_settings": settings_to_dict(own),
        "presets": list_presets(entry.name),
    }


def _reading(facts: dict[str, Any]) -> str:
    """Describe how the model reads a string."""
    if facts["recurrent"]:
        words = "step by step"
    elif facts["prefixes_at_once"]:
        words = "whole strings, all prefixes at once"
    else:
        words = (
            "whole strings" if facts["causal"] or facts["origin"] != CATALOGUE else "whole strings, in both directions"
        )
    return words if facts["longest"] is None else f"{words}, up to length {facts['longest']:,}"


def _format_settings(facts: dict[str, Any]) -> str:
    return " ".join(f"{name}={format_setting(value)}" for name, value in facts["mixer_settings"].items())


def _show_model(facts: dict[str, Any], task: Task, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    lines = {
        "what it is": facts["what"] or NO_DOCSTRING,
        "what is proved": facts["emulates"] or NOTHING_PROVED,
        "reads": _reading(facts),
        "parameters": f"{facts['parameters']:,}",
        "presets": ", ".join(facts["presets"]),
    }
    if facts["transition_parameters"] is not None:
        lines["parameters"] += f", of which {facts['transition_parameters']:,} for the transitions"
    lines["parameters"] += f" (on {task.name}: {task.n_symbols:,} symbols, {task.n_classes:,} classes)"
    if facts["origin"] != CATALOGUE:
        lines["origin"] = facts["origin"]
    print_facts(facts["model"], lines)
    from sdssm.models.catalogue import default_preset
    from sdssm.runs.schema import resolve_settings

    settings = resolve_settings(facts["model"], default_preset(facts["model"]), "")
    parts = [part for part in settings.parts() if part != "train"]
    if any(describe_part(settings, part) for part in parts):
        print(
            f"\nSettings, with their defaults for this model; sdssm settings {facts['model']} also has the training's"
        )
    else:
        print(f"\nIt has no settings of its own; sdssm settings {facts['model']} lists those of the training.")
        return
    rows = [setting_row(description) for part in parts for description in describe_part(settings, part)]
    print_table(HEADERS, rows)
