"""`sdssm models`: what can learn it."""

from __future__ import annotations

import argparse
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sdssm.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    every = commands.add_parser(
        "models",
        help="what can learn it",
        description="The models: how many parameters they have, what is proved of them, their settings and presets.",
        allow_abbrev=False,
    )
    add = every.add_argument
    add("name", nargs="?", help="one of them: all of its settings")
    add("--task", default="a5", help="the task that parameters are counted for (default a5)")
    add("--json", action="store_true", help="print JSON")
    every.set_defaults(run=_models)


def _models(options: argparse.Namespace) -> None:
    from sdssm.models import MODELS, default_preset, preset

    if options.name is not None:
        preset(default_preset(options.name), options.name, options.task)  # an unknown name is told here
        _show(_facts(options.name, options.task), options.json)
        return
    found = [_facts(name, options.task) for name in MODELS]
    if options.json:
        print_json(found)
        return
    rows = [[one["model"], f"{one['parameters']:,}", f"{one['transition_parameters']:,}", _reads(one)] for one in found]
    print_table(["model", "parameters", "transitions", "reads"], rows, right=("parameters", "transitions"))
    print(f"\nParameters with the default settings on {options.task}; those of the transitions say how a state")
    print("becomes the next, where that depends on the input. Settings with their defaults, and what is proved:\n")
    for one in found:
        print(f"{one['model']}: {_settings(one)}")
        print(fill(one["emulates"], 110, initial_indent="    ", subsequent_indent="    "))
    print("\nsdssm models NAME shows all settings and presets of one, sdssm train TASK --model NAME trains it.")


def _facts(name: str, task_name: str) -> dict[str, Any]:
    """All that can be said of a model."""
    import torch

    from sdssm.layers import MIXERS
    from sdssm.models import PRESETS, Classifier, default_preset
    from sdssm.runs.schema import resolve
    from sdssm.settings import settings_to_dict
    from sdssm.tasks import get_task

    of, mixer = get_task(task_name), MIXERS[name]
    settings = resolve(name, default_preset(name), of.name).model
    model = Classifier(settings, of.n_symbols, of.n_classes, generator=torch.Generator().manual_seed(0))
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "transition_parameters": sum(one.transition_parameters() for one in model.mixers),
        "causal": model.causal,
        "recurrent": model.recurrent,
        "longest": model.longest,
        "emulates": mixer.emulates,
        "what": (mixer.__doc__ or "").splitlines()[0],
        "settings": {key: value for key, value in settings_to_dict(settings).items() if key not in ("name", "mixer")},
        "mixer_settings": settings_to_dict(settings.mixer),
        "presets": [preset for preset, models in PRESETS.items() if name in models],
    }


def _reads(facts: dict[str, Any]) -> str:
    how = "step by step" if facts["recurrent"] else "whole strings" if facts["causal"] else "whole strings, both ways"
    return how if facts["longest"] is None else f"{how}, to {facts['longest']:,}"


def _settings(facts: dict[str, Any]) -> str:
    return " ".join(f"{name}={_word(value)}" for name, value in facts["mixer_settings"].items())


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    spoken = {
        "what it is": facts["what"],
        "what is proved": facts["emulates"],
        "reads": _reads(facts),
        "parameters": f"{facts['parameters']:,}, {facts['transition_parameters']:,} of them for the transitions",
        "presets": ", ".join(facts["presets"]),
    }
    print_facts(facts["model"], spoken)
    print("\nSettings, with their defaults for this model")
    rows = [[name, _word(value)] for part in ("mixer_settings", "settings") for name, value in facts[part].items()]
    print_table(["name", "value"], rows)


def _word(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
