"""`sdssm settings`: list the settings of models and trainings, with their meaning, default and range."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import print_json, print_table, print_text
from sdssm.errors import UnknownNameError, did_you_mean, format_value
from sdssm.formatting import format_setting

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.runs.schema import Settings
    from sdssm.settings import SettingDescription

#: Columns of a table of settings.
HEADERS = ("name", "default", "values", "meaning")


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "settings",
        summary="list settings with meaning, default and range",
        description="List all settings of training, model and layer: what each means, its default, and which values it "
        "takes. With MODEL, only those that this model has, with its own defaults. sdssm train TASK --set NAME=VALUE "
        "changes a setting; --preset NAME changes several.",
        examples=[
            "sdssm settings",
            "sdssm settings lstm",
            "sdssm settings my_package.models:Gru",
            "sdssm settings lr",
            "sdssm train a5 --set state=32 lr=1e-4",
        ],
    )
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="only the settings of this model, or import path, or this setting"
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_list_settings)


def _list_settings(options: argparse.Namespace) -> None:
    from sdssm.models.catalogue import DEFAULT_MODEL, MODELS, default_preset
    from sdssm.models.registry import find_entry, list_models
    from sdssm.runs.schema import resolve_settings

    others = [name for name in list_models() if name not in MODELS]
    if options.model is not None and options.model not in MODELS:
        if options.model not in others and not re.search(r"[:.]", options.model):
            _show_setting(options)
            return
        entry = find_entry(options.model)
        if entry.kind == "module":
            _show_module(resolve_settings(entry.name, default_preset(entry.name), ""), options.json)
            return
    chosen = find_entry(options.model or DEFAULT_MODEL).name
    settings = {
        name: resolve_settings(name, default_preset(name), "")
        for name in ((chosen,) if options.model is not None else MODELS)
    }
    parts = {"training": describe_part(settings[chosen], "train"), "model": describe_part(settings[chosen], "model")}
    layers = {name: describe_part(values, "mixer") for name, values in settings.items()}
    if options.json:
        print_json({**{part: _to_json(rows) for part, rows in parts.items()}, "layers": _by_model(layers)})
        return
    _print_part("Training", parts["training"])
    _print_part(f"Model: embedding, blocks and readout (defaults of {chosen})", parts["model"])
    for names, rows in _merge_equal(layers):
        _print_part(f"Layer of {', '.join(names)}", rows)
    print("sdssm train TASK --set NAME=VALUE changes a setting; sdssm models NAME shows the presets of a model.")
    if options.model is None and others:
        print_text(f"Models of others, whose settings sdssm settings MODEL lists: {', '.join(others)}")


def _show_module(settings: Settings, as_json: bool) -> None:
    """List the options of someone else's module, which are parameters of its class or function."""
    from sdssm.models.presets import MODULE_DEFAULTS

    own = describe_part(settings, "options")
    # Those of class centres, which only our classifier has, are left out.
    training = [item for item in describe_part(settings, "train") if item.name not in MODULE_DEFAULTS]
    if as_json:
        print_json({"training": _to_json(training), "options": _to_json(own)})
        return
    name = settings.model.name
    if own:
        _print_part(f"Options of {name}", own)
    else:
        print_text(f"{name} has no options: its class or function has no parameters with a default.")
        print()
    _print_part("Training", training)
    print_text(f"sdssm train TASK --model {name} --set NAME=VALUE changes a setting.")


def _show_setting(options: argparse.Namespace) -> None:
    """Describe the setting of this name, with the default of each model that has it."""
    from sdssm.models.catalogue import MODELS, default_preset
    from sdssm.models.registry import list_models
    from sdssm.runs.schema import resolve_settings

    wanted, models = options.model.replace("-", "_"), dict[tuple[str, str], list[str]]()
    described: dict[tuple[str, str], SettingDescription] = {}
    known = set(list_models())
    for model in MODELS:
        values = resolve_settings(model, default_preset(model), "")
        for part in ("train", "model", "mixer"):
            for description in describe_part(values, part):
                known.add(description.name)
                if description.name == wanted:
                    key = (format_setting(description.default), description.meaning)
                    described[key] = description
                    models.setdefault(key, []).append(model)
    if not described:
        hint = did_you_mean(options.model, sorted(known), otherwise="sdssm settings lists all settings")
        raise UnknownNameError(f"there is no model and no setting {format_value(options.model)}; {hint}")
    if options.json:
        print_json([{**description._asdict(), "models": models[key]} for key, description in described.items()])
    else:
        rows = [[*setting_row(description), ", ".join(models[key])] for key, description in described.items()]
        print_table([*HEADERS, "models"], rows)


def describe_part(settings: Settings, part: str) -> list[SettingDescription]:
    """Describe the settings of a part, with these values as defaults: mixer, model, options or train."""
    from sdssm.runs.schema import NOT_SETTINGS
    from sdssm.settings import describe_settings

    owner: Any = settings.parts()[part]
    # Options are parameters of someone else's class or function, which do not say what they mean.
    unknown = f"parameter of {settings.model.name}"
    return [
        description._replace(default=getattr(owner, description.name), meaning=description.meaning or unknown)
        for description in describe_settings(type(owner))
        if part == "options" or description.name not in NOT_SETTINGS
    ]


def setting_row(description: SettingDescription) -> list[str]:
    """Return the cells of a setting below `HEADERS`."""
    return [description.name, format_setting(description.default), description.values, description.meaning]


def _print_part(title: str, descriptions: list[SettingDescription]) -> None:
    print(title)
    print_table(HEADERS, [setting_row(description) for description in descriptions])
    print()


def _merge_equal(layers: dict[str, list[SettingDescription]]) -> list[tuple[list[str], list[SettingDescription]]]:
    """Return the settings of layers, once for the models that have the same."""
    merged: list[tuple[list[str], list[SettingDescription]]] = []
    for name, descriptions in layers.items():
        for names, others in merged:
            if others == descriptions:
                names.append(name)
                break
        else:
            merged.append(([name], descriptions))
    return merged


def _by_model(layers: dict[str, list[SettingDescription]]) -> dict[str, Any]:
    return {name: _to_json(descriptions) for name, descriptions in layers.items()}


def _to_json(descriptions: list[SettingDescription]) -> list[dict[str, Any]]:
    return [description._asdict() for description in descriptions]
