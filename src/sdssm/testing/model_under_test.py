"""What `check_model` is given: a factory, a name, an import path or a module, and how to build models from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, SettingsError, first_line, format_value
from sdssm.models import TokenModel, WrappedModule, default_preset
from sdssm.models.building import untrained_model
from sdssm.models.modes import evaluation_mode
from sdssm.models.module_settings import ModuleSettings, call_factory, options_class
from sdssm.models.registry import find_entry, registered_entry
from sdssm.models.settings import ModelSettings
from sdssm.models.targets import find_import_path, is_mixer
from sdssm.models.wrapped_module import PROBE
from sdssm.runs.schema import Settings, resolve_settings

#: Numbers of symbols and of classes that the models of a factory are built for.
SIZES = ((2, 2), (3, 5))


@dataclass(frozen=True)
class ModelUnderTest:
    """A model to check: its name, its sizes (n_symbols, n_classes), and how it is built from sizes and a seed."""

    name: str
    sizes: tuple[tuple[int, int], ...]
    builder: Callable[[int, int, int], TokenModel]
    is_factory: bool = True

    @cached_property
    def _built(self) -> dict[tuple[int, int, int], TokenModel]:
        return {}

    def build(self, n_symbols: int, n_classes: int, seed: int) -> TokenModel:
        """Return the model for these sizes; laws do not change it, so each is built once."""
        key = (n_symbols, n_classes, seed)
        if key not in self._built:
            self._built[key] = self.builder(*key)
        return self._built[key]


def find_model_under_test(
    model: Any, sizes: Sequence[tuple[int, int]] | None, settings: Mapping[str, Any] | None
) -> ModelUnderTest:
    """Return what is to be checked. `model` and the other arguments are those of `check_model`."""
    if isinstance(model, nn.Module):
        if settings:
            names = ", ".join(settings)
            raise SettingsError(f"the module is built already, so {names} cannot be set; pass its class or a factory")
        return _built_model(model, sizes)
    chosen = SIZES if sizes is None else tuple((int(n_symbols), int(n_classes)) for n_symbols, n_classes in sizes)
    if not chosen:
        raise ModelError("sizes is empty; pass at least one pair (n_symbols, n_classes), or leave it out")
    if not isinstance(model, str) and not callable(model):
        raise ModelError(
            f"the model is {format_value(model)}; pass a factory (n_symbols, n_classes) -> module, a module, a mixer, "
            "an import path, or a name of sdssm.list_models()"
        )
    if isinstance(model, str) or is_mixer(model):
        entry = find_entry(model)  # registers a mixer class that is not of the catalogue
        if entry.kind == "mixer":
            known = resolve_settings(entry.name, default_preset(entry.name), "", settings).model
            return ModelUnderTest(entry.name, chosen, lambda *args: untrained_model(known, *args))
        return _factory_model(entry.target, entry.name, entry.import_path, chosen, settings)
    name, path = getattr(model, "__name__", type(model).__name__), find_import_path(model)
    entry_of_name = registered_entry(name, path)
    if entry_of_name is not None and entry_of_name.target is not model:
        name += " (unregistered)"  # loading a folder must not find the other one
    return _factory_model(model, name, path, chosen, settings)


def _factory_model(
    factory: Callable[..., Any],
    name: str,
    path: str | None,
    sizes: tuple[tuple[int, int], ...],
    settings: Mapping[str, Any] | None,
) -> ModelUnderTest:
    start = ModuleSettings(name=name, import_path=path, options=options_class(factory)())
    known = Settings(model=start).replace_values(settings or {}).model
    assert not isinstance(known, ModelSettings)

    def build(n_symbols: int, n_classes: int, seed: int) -> TokenModel:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = call_factory(factory, n_symbols, n_classes, known.options)
            except Exception as error:
                raise ModelError(
                    f"{name} cannot be built for {n_symbols} symbols and {n_classes} classes: "
                    f"{type(error).__name__}: {first_line(error)}"
                ) from error
        if not isinstance(module, nn.Module):
            raise ModelError(f"{name} returned {format_value(module)}; it must return an nn.Module")
        return module if isinstance(module, TokenModel) else wrap_unchecked(module, known, n_symbols, n_classes)

    return ModelUnderTest(name, sizes, build)


def _built_model(model: nn.Module, sizes: Sequence[tuple[int, int]] | None) -> ModelUnderTest:
    name = model.name if isinstance(model, TokenModel) else type(model).__name__
    if isinstance(model, TokenModel):
        own = (model.n_symbols, model.n_classes)
        if sizes is not None and tuple(map(tuple, sizes)) != (own,):
            raise ModelError(f"sizes is {format_value(sizes)}, but {name} has {own}; leave sizes out")
        return ModelUnderTest(name, (own,), lambda *_: model, is_factory=False)
    if sizes is None or len(sizes) != 1:
        raise ModelError(
            f"{name} is a module, so its sizes are not known; pass sizes=[(n_symbols, n_classes)], or a factory"
        )
    n_symbols, n_classes = sizes[0]
    wrapped = wrap_unchecked(model, ModuleSettings(name=name), n_symbols, n_classes)
    return ModelUnderTest(name, ((n_symbols, n_classes),), lambda *_: wrapped, is_factory=False)


def wrap_unchecked(module: nn.Module, settings: ModuleSettings, n_symbols: int, n_classes: int) -> WrappedModule:
    """Return someone else's module as a model, without an error for a rule that it breaks: laws find that."""
    model = WrappedModule(module, settings, n_symbols, n_classes, "prefixes")
    length = PROBE[1] if model.longest is None else max(min(PROBE[1], model.longest), 1)
    tokens = torch.zeros(PROBE[0], length, dtype=torch.long, device=model.device)
    with suppress(Exception), evaluation_mode(module), torch.no_grad(), torch.random.fork_rng(devices=[]):
        logits = module(tokens)  # each law reports an error
        if isinstance(logits, Tensor) and logits.dim() == 2:
            model.reads = "strings"
    return model
