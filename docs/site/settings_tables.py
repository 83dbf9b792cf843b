"""The reference of the settings as Markdown, generated from the classes that define them."""

from __future__ import annotations

from sdssm.cli.settings import describe_part, setting_row
from sdssm.models.catalogue import DEFAULT_MODEL, MODELS, default_preset
from sdssm.runs.schema import resolve_settings
from sdssm.settings import SettingDescription

HEADER = "| setting | default | values | meaning |\n|---|---|---|---|\n"


def settings_page() -> str:
    """Return the settings of training and model with the defaults of SD-SSM, and those of the layer of each model."""
    settings = {name: resolve_settings(name, default_preset(name), "") for name in MODELS}
    default = settings[DEFAULT_MODEL]
    sections = [("Training", describe_part(default, "train")), ("Model", describe_part(default, "model"))]
    layers: list[tuple[list[str], list[SettingDescription]]] = []
    for name, values in settings.items():
        described = describe_part(values, "mixer")
        same = next((names for names, rows in layers if rows == described), None)
        if same is None:
            layers.append(([name], described))
        else:
            same.append(name)
    sections += [(f"Layer of {', '.join(f'`{name}`' for name in names)}", rows) for names, rows in layers]
    return "\n".join(f"### {title}\n\n{HEADER}{_format_rows(rows)}" for title, rows in sections if rows)


def _format_rows(rows: list[SettingDescription]) -> str:
    cells = ([f"`{row.name}`", *setting_row(row)[1:]] for row in rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)
