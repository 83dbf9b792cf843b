"""Which parameters of a class or function are settings, and what is said about the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sdssm.errors import ModelError, SettingsError
from sdssm.models import registry
from sdssm.models.building import untrained_model
from sdssm.models.module_settings import options_class
from sdssm.runs.schema import resolve_settings
from sdssm.settings import setting_types


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


class Table(nn.Module):
    """A table of logits, with options of all kinds."""

    def __init__(
        self,
        n_symbols: int,
        n_classes: int,
        sizes: Any = (4, 8),
        mixed: Any = (1, 0.5),
        act: Any = torch.tanh,
        norm: Any = None,
    ) -> None:
        super().__init__()
        self.table, self.sizes, self.act = nn.Embedding(n_symbols, n_classes), sizes, act

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.act(self.table(tokens))
        return result


def test_a_list_may_have_any_length() -> None:
    settings: Any = resolve_settings(Table, "default", "parity", {"sizes": [4, 8, 16], "mixed": [0.25]})
    model: Any = untrained_model(settings.model, 2, 2, seed=0)
    assert model.module.sizes == (4, 8, 16)
    assert settings.model.options.mixed == (0.25,)
    for value in (4, "4,8", ["a"]):
        with pytest.raises(SettingsError, match=r"it must be a list of numbers, such as \[1, 2, 3\]"):
            resolve_settings(Table, "default", "parity", {"sizes": value})


@pytest.mark.parametrize(("name", "default"), [("norm", "None"), ("act", "<built-in method tanh")])
def test_a_parameter_that_is_no_setting_is_explained(name: str, default: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is a parameter of Table, but its default {default}"):
        resolve_settings(Table, "default", "parity", {name: 3})
    with pytest.raises(SettingsError, match="did you mean 'sizes'"):
        resolve_settings(Table, "default", "parity", {"size": 3})


def test_a_size_is_not_put_into_a_parameter_with_a_default() -> None:
    def build(vocab_size: int, hidden_size: int = 32, num_labels: int = 2) -> nn.Module:
        return nn.Embedding(vocab_size, num_labels)

    with pytest.raises(ModelError, match=r"\(vocab_size, hidden_size, num_labels\); the first two must be .* defaults"):
        options_class(build)

    def by_name(width: int = 8, *, n_classes: int = 2, n_symbols: int = 2) -> nn.Module:
        return nn.Embedding(n_symbols, n_classes)

    assert list(setting_types(options_class(by_name))) == ["width"]


def test_a_module_that_chooses_a_gpu_is_told_who_moves_it() -> None:
    def cuda(*_: Any, **__: Any) -> Any:
        raise AssertionError("Torch not compiled with CUDA enabled")

    class Gpu(Table):
        def __init__(self, n_symbols: int, n_classes: int) -> None:
            super().__init__(n_symbols, n_classes)
            cuda()

    class GpuForward(Table):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = cuda(tokens)
            return result

    for kind in (Gpu, GpuForward):
        with pytest.raises(ModelError, match="build it on the CPU, .* sdssm moves it to the device"):
            untrained_model(resolve_settings(kind, "default", "parity").model, 2, 2, seed=0)
