"""Options that name a model, or allow its code to be imported: --model and --trust."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sdssm.errors import ModelError, SettingsError
from sdssm.files import format_path

#: Help of the options.
IMPORT_PATH_HELP = "a name of sdssm models, or the import path of your own, package.module:Name or folder/file.py:Name"
TRUST_HELP = "import whatever code a folder names for a model that is not part of sdssm; only if you trust the folder"


def add_model_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --model; `what` says what the model is for."""
    parser.add_argument("--model", help=f"{what}; {IMPORT_PATH_HELP}")


def add_trust_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that reads folders of models: --model names code to import, --trust allows all."""
    what = "the model that the folder holds, if it is not part of sdssm: its code is imported, and no other"
    parser.add_argument("--model", metavar="NAME", help=f"{what}; {IMPORT_PATH_HELP}")
    add_trust_option(parser)


def add_trust_option(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add --trust; `when` says with which other option it is used."""
    parser.add_argument("--trust", action="store_true", help=f"{when}{TRUST_HELP}")


def import_models(folders: Sequence[Path], options: argparse.Namespace) -> None:
    """Import the code of the models in these folders and below, before anything else is done with them.

    Code that neither --model names nor --trust allows is an error that names it, and so is a --model that is not that
    of the folders; next to its runs there may be others of the catalogue. Folders that cannot be read are left out: the
    command itself reports them.
    """
    from sdssm.layers.settings import is_catalogue_model
    from sdssm.models.building import import_recorded_model
    from sdssm.models.model_folder import read_model_config
    from sdssm.models.recorded_models import use_recorded_name
    from sdssm.models.registry import find_entry
    from sdssm.models.settings import recorded_name

    entry = None if options.model is None else find_entry(options.model)
    is_used, others = False, dict[Path, str]()
    for folder in model_folders(folders):
        try:
            config = read_model_config(folder)
            name, path = recorded_name(config["model"])
        except ModelError:
            continue
        if entry is None or use_recorded_name(entry, name, path):
            is_used = True
        elif is_catalogue_model(name, path):
            others[folder] = name
        else:
            raise SettingsError(
                f"{format_path(folder)} holds the model {path or name}, but --model names {options.model}; "
                f"{'leave --model out' if path is None else f'write --model {path}'}"
            )
        import_recorded_model(config, format_path(folder), trust=options.trust)
    for folder, name in others.items() if not is_used else ():
        raise SettingsError(
            f"{format_path(folder)} holds the model {name}, but --model names {options.model}; leave --model out"
        )


def model_folders(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders of runs and saved models in these folders and below."""
    from sdssm.models.settings import CONFIG_FILE

    for top in folders:
        for folder, subfolders, files in os.walk(top):
            if CONFIG_FILE in files:
                subfolders.clear()  # a run contains no other runs
                yield Path(folder)
