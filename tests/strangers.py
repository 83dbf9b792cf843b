"""A package of models that someone else wrote, in a folder, not installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdssm.models import registry

#: The name of the package, and the import path of the model that works.
PACKAGE = "strangers_package"
SUM = f"{PACKAGE}.nets:Sum"
NETS = """
import torch
from torch import nn

class Sum(nn.Module):
    def __init__(self, n_symbols, n_classes, state=4, *, gain: float = 1.0):
        super().__init__()
        self.gain = gain
        self.embedding = nn.Embedding(n_symbols, state)
        self.out = nn.Linear(state, n_classes)
    def forward(self, tokens):
        return self.out(torch.sin(self.gain * self.embedding(tokens).cumsum(1)))

class Wide(Sum):
    def forward(self, tokens):
        return super().forward(tokens)[..., :-1]

class Ahead(Sum):
    def forward(self, tokens):
        return self.out(self.embedding(tokens).flip(1).cumsum(1))

class Nan(Sum):
    def forward(self, tokens):
        return super().forward(tokens) * float("nan")

class OneSize(nn.Module):
    def __init__(self, n_symbols):
        super().__init__()

value = 3
"""


def write_package(folder: Path) -> None:
    """Write the package into a folder."""
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(NETS)
    (package / "broken.py").write_text("import a_module_that_is_missing\n")
    (package / "misspelt.py").write_text(
        f"import sdssm\nfrom {PACKAGE}.nets import Sum\nsdssm.register(Sum, name='odd', defaults={{'lrr': 1}})\n"
    )
    (package / "ends.py").write_text("raise SystemExit(0)\n")
    (package / "taken.py").write_text(
        f"import sdssm\nfrom {PACKAGE}.nets import Sum\nsdssm.register(Sum, name='lstm')\n"
    )


def is_imported() -> bool:
    return any(name.partition(".")[0] == PACKAGE for name in sys.modules)


def forget_models() -> None:
    """Forget the package and its models, as in a new process."""
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    registry._registered.clear()


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, and the package in another folder of sys.path."""
    monkeypatch.setattr(registry, "_registered", {})
    write_package(tmp_path / "code")
    monkeypatch.syspath_prepend(tmp_path / "code")
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    forget_models()
