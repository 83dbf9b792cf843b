"""`sdssm models`: list the models that can be trained, their settings and presets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import print_facts, print_json, print_table
from sdssm.cli.settings import HEADERS, describe_part, setting_row
from sdssm.formatting import format_setting
from sdssm.text_tables import terminal_width, wrap_text

if TYPE_CHECKING:
    from sdssm.cli.options import Commands

#: Text is wrapped at this width, or at that of a narrower terminal.
WIDEST = 110


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "models",
        summary="list models, their settings and presets",
        description="List the models that can be trained: how many parameters each has, what is proved about it, and "
        "its settings. With MODEL, show all settings and presets of one model.",
        examples=["sdssm models", "sdssm models mamba"],
    )
    add = parser.add_argument
    add("name", metavar="MODEL", nargs="?", help="show this model only, with all its settings")
    add("--task", default="a5", help="task for which parameters are counted (default: %(default)s)")
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_models)


def _models(options: argparse.Namespace) -> None:
    from sdssm.models.catalogue import MODELS, default_preset, get_preset

    if options.name is not None:
        get_preset(default_preset(options.name), options.name, options.task)  # raises an error for an unknown name
        _show_model(_facts(options.name, options.task), options.json)
        return
    models = [_facts(name, options.task) for name in MODELS]
    if options.json:
        print_json(models)
        return
    rows = [
        [facts["model"], f"{facts['parameters']:,}", f"{facts['transition_parameters']:,}", _reading(facts)]
        for facts in models
    ]
    print_table(["model", "parameters", "transitions", "reads"], rows, right=("parameters", "transitions"))
    print(
        f"\nParameters are counted with the default settings on {options.task}.\n"
        "Transitions: parameters that compute the next state from the input.\n"
        "Settings with their defaults, and what is proved:\n"
    )
    for facts in models:
        print("\n    ".join(_wrap(f"{facts['model']}: {_format_settings(facts)}")))
        print("    " + "\n    ".join(_wrap(facts["emulates"])))
    print("\nsdssm models MODEL shows all settings and presets of one, sdssm settings MODEL those of its training.")


def _wrap(text: str) -> list[str]:
    """Break a text into lines that leave room for an indent of 4."""
    return wrap_text(text, min(WIDEST, terminal_width() or WIDEST) - 4)


def _facts(name: str, task_name: str) -> dict[str, Any]:
    """Return facts about a model with its default settings on a task."""
    import torch

    from sdssm.layers import MIXERS
    from sdssm.models import PRESETS, Classifier, default_preset
    from sdssm.runs.schema import resolve_settings
    from sdssm.settings import settings_to_dict
    from sdssm.tasks import get_task

    task, mixer = get_task(task_name), MIXERS[name]
    settings = resolve_settings(name, default_preset(name), task.name).model
    model = Classifier(settings, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(0))
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "transition_parameters": sum(layer.transition_parameters() for layer in model.mixers),
        "causal": model.is_causal,
        "recurrent": model.is_recurrent,
        "longest": model.longest,
        "emulates": mixer.emulates,
        "what": (mixer.__doc__ or name).strip().splitlines()[0],
        "settings": {key: value for key, value in settings_to_dict(settings).items() if key not in ("name", "mixer")},
        "mixer_settings": settings_to_dict(settings.mixer),
        "presets": [preset for preset, models in PRESETS.items() if name in models],
    }


def _reading(facts: dict[str, Any]) -> str:
    """Describe how the model reads a string."""
    if facts["recurrent"]:
        words = "step by step"
    else:
        words = "whole strings" if facts["causal"] else "whole strings, in both directions"
    return words if facts["longest"] is None else f"{words}, up to length {facts['longest']:,}"


def _format_settings(facts: dict[str, Any]) -> str:
    return " ".join(f"{name}={format_setting(value)}" for name, value in facts["mixer_settings"].items())


def _show_model(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    lines = {
        "what it is": facts["what"],
        "what is proved": facts["emulates"],
        "reads": _reading(facts),
        "parameters": f"{facts['parameters']:,}, of which {facts['transition_parameters']:,} for the transitions",
        "presets": ", ".join(facts["presets"]),
    }
    print_facts(facts["model"], lines)
    print("\nSettings, with their defaults for this model; sdssm settings lists those of the training")
    from sdssm.models.catalogue import default_preset
    from sdssm.runs.schema import resolve_settings

    settings = resolve_settings(facts["model"], default_preset(facts["model"]), "")
    rows = [setting_row(description) for part in ("mixer", "model") for description in describe_part(settings, part)]
    print_table(HEADERS, rows)
