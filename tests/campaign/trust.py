"""Trust: a folder that names code is never a reason to import it, and nothing in a folder is unpickled.

The code is a module in the current folder that writes a file when it is imported.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.campaign.attack import Attack, Trial
from tests.campaign.hostile_folders import COMMANDS, remove_checksums
from tests.campaign.sandbox import find_fault, run_isolated
from tests.campaign.templates import FINISHED, RESULTS, make_templates

CANARY = "imported.txt"
MODULE = f"""import pathlib
pathlib.Path({CANARY!r}).write_text("imported")
from torch import nn
import torch

class Net(nn.Module):
    def __init__(self, n_symbols, n_classes):
        super().__init__()
        self.out = nn.Embedding(n_symbols, n_classes)
    def forward(self, tokens):
        return self.out(tokens)
"""
#: How a folder may name the module.
NAMES = ("canary:Net", "canary", "canary.Net", "./canary.py:Net", "canary:Net()", "canary.py", "file:canary.py:Net")


class Bomb:
    """An object that creates the canary when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {CANARY}",)


def change_config(random: Random, path: Path) -> str:
    """Write the import path into one of the fields of a config that could name a model or a task."""
    data, name = json.loads(path.read_text()), random.choice(NAMES)
    data.setdefault("model", {})
    place = random.choice(
        ("model name", "import path", "both", "mixer", "task", "machines", "preset", "versions", "new")
    )
    if place in ("model name", "both"):
        data["model"]["name"] = name
    if place in ("import path", "both"):
        data["model"]["import_path"] = name
        data["model"].pop("mixer", None)
    if place == "mixer":
        data["model"]["mixer"] = {"name": name, "import_path": name}
    if place == "task":
        data["task"] = name
    if place == "machines":
        data["machines"] = [name, name]
    if place == "preset":
        data["preset"] = name
    if place == "versions":
        data["versions"] = {"sdssm": "0.1.0", "plugin": name, name: "1"}
    if place == "new":
        data |= {"plugins": [name], "imports": [name], "model": {"import_path": name, "name": name, "options": {}}}
    path.write_text(json.dumps(data))
    return f"config.json names {name} as {place}"


def write_pickle(random: Random, run: Path) -> str:
    """Replace a file by a pickle, plain or as torch and numpy write it."""
    name = random.choice(
        ("model.safetensors", "checkpoints/step-000000020.safetensors", "evaluation-states.safetensors", "config.json")
    )
    buffer = io.BytesIO()
    if random.random() < 0.5:
        import torch

        torch.save({"weight": Bomb()}, buffer)
    else:
        pickle.dump(Bomb(), buffer)
    (run / name).write_bytes(buffer.getvalue())
    return f"{name} is a pickle"


def attack_trust(random: Random, folder: Path) -> Iterator[Trial]:
    """Let a folder name code, run commands without --trust, and look whether the code was imported."""
    make_templates().copy(folder, "runs/parity", RESULTS, "tiny.toml")
    (folder / "canary.py").write_text(MODULE)
    (folder / "sitecustomize.py").write_text(MODULE)
    run = folder / FINISHED
    remove_checksums(run)
    kind = random.choice(("config.json", "config.json", "pickle", "results"))
    if kind == "pickle":
        detail = write_pickle(random, run)
    elif kind == "results":
        path = folder / RESULTS / random.choice(("results.json", "spec.json"))
        path.write_text(path.read_text().replace("sd-ssm", random.choice(NAMES)))
        detail = f"{path.name} names code"
    else:
        detail = change_config(random, run / "config.json")
    for arguments in random.sample(COMMANDS, 3):
        # The current folder is on the path of `python -m sdssm`, so that the import would succeed.
        outcome = run_isolated(lambda words=arguments: _call_with_path(words, folder), folder=folder)  # type: ignore[misc]
        fault = find_fault(outcome)
        if (folder / CANARY).exists():
            fault = "the code was imported or run"
        yield Trial(kind=kind, problem=None if fault is None else f"{' '.join(arguments[:2])}, {detail}: {fault}")
        if fault is not None:
            return
    if random.random() < 0.05:
        yield check_control(folder)


def _call_with_path(arguments: tuple[str, ...], folder: Path) -> int:
    import sys

    from tests.campaign.sandbox import call_main

    sys.path.insert(0, str(folder))
    return call_main(arguments)


def check_control(folder: Path) -> Trial:
    """Check that the canary works: a user who names the module on the command line does import it."""
    (folder / CANARY).unlink(missing_ok=True)
    arguments = ("train", "parity", "--model", "canary:Net", "--dry-run", "--steps", "5")
    run_isolated(lambda: _call_with_path(arguments, folder), folder=folder)
    is_imported = (folder / CANARY).exists()
    return Trial(kind="control: --model imports", problem=None if is_imported else "the canary does not work")


ATTACKS = (
    Attack(
        name="trust",
        subject="import paths and pickles in folders: no code is imported or run without --trust",
        attempt=attack_trust,
        share=1.0,
        patience=120.0,
    ),
)
