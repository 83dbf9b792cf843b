"""Build the model that settings describe, untrained or with weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from sdssm.errors import ModelError, format_value
from sdssm.limits import MOST_CLASSES, MOST_TRANSITIONS
from sdssm.models.classifier import Classifier
from sdssm.models.module_probe import check_reading
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.names import load_tensors
from sdssm.models.recorded_models import find_recorded_entry
from sdssm.models.settings import CONFIG_FILE, ModelSettings, build_model_settings, recorded_name
from sdssm.models.size_limit import NumberLimit, TooManyNumbersError, memory_limit, weights_limit
from sdssm.models.token_model import TokenModel
from sdssm.models.wrapped_module import WrappedModule, build_module
from sdssm.settings import check_between, convert_value

#: The greatest sizes of a task in a config.
SIZES = {"n_symbols": MOST_TRANSITIONS, "n_classes": MOST_CLASSES}


class _MismatchError(ModelError):
    """Settings and weights that do not belong together."""


def untrained_model(
    settings: ModelSettings | ModuleSettings,
    n_symbols: int,
    n_classes: int,
    seed: int,
    limit: NumberLimit | None = None,
) -> TokenModel:
    """Return an untrained model, a function of its settings and the seed alone.

    `limit` is how many numbers it may have; None: as many as the memory of this machine holds, for modules of others
    without a limit. Larger models raise an error before they are allocated.

    >>> untrained_model(ModelSettings(name="lstm"), 2, 3, seed=0).name
    'lstm'
    """
    entry = find_recorded_entry(settings.name, settings.import_path, trust=False, source="the config")
    if isinstance(settings, ModuleSettings):
        with limit or nullcontext():
            return build_module(entry, settings, n_symbols, n_classes, seed)
    with limit or memory_limit():
        return Classifier(settings, n_symbols, n_classes, generator=torch.Generator().manual_seed(seed))


def import_recorded_model(config: Mapping[str, Any], source: str, *, trust: bool) -> None:
    """Import the code of the model that a config names, which is done only with `trust`.

    A model of the catalogue, or one that is registered already, needs no import. `source` is the folder of the config.
    """
    name, path = recorded_name(config["model"])
    if "options" in config["model"] or path is not None:
        find_recorded_entry(name, path, trust=trust, source=source)


def build_model(config: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> TokenModel:
    """Build the model that a config describes, and load these weights."""
    model = prepare_model(config, {name: tuple(tensor.shape) for name, tensor in weights.items()}, source)
    return fill_model(model, weights, source)


def prepare_model(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], source: str) -> TokenModel:
    """Build the model that a config describes, for weights of these shapes.

    A config that describes other weights is an error, however large the model is that it describes: nothing much larger
    than the weights is allocated.
    """
    with _mismatches(source):
        settings = build_model_settings(config["model"])
        sizes = [_check_size(name, config[name], most) for name, most in SIZES.items()]
        limit = weights_limit(shapes.values(), is_module=isinstance(settings, ModuleSettings))
        model = untrained_model(settings, sizes[0], sizes[1], seed=0, limit=limit)
        expected = {model.file_name(name): tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        if isinstance(settings, ModuleSettings):
            _check_module(settings.import_path or settings.name, expected, shapes, source)
        for name, shape in expected.items():
            if shapes.get(name) != shape:
                stored = f"has shape {shapes[name]}" if name in shapes else "is missing"
                raise _MismatchError(f"{format_value(name)} {stored}, but the settings need {shape}")
        unknown = next((name for name in shapes if name not in expected), None)
        if unknown is not None:
            raise _MismatchError(f"the settings have no parameter {format_value(unknown)}")
    return model


def _check_module(
    model: str, expected: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]], source: str
) -> None:
    """Raise an error if a module of others has other parameters or buffers than its weights; `model` names its code."""
    different = next((name for name in (*expected, *shapes) if expected.get(name) != shapes.get(name)), None)
    if different is None:
        return
    now, stored, parameter = expected.get(different), shapes.get(different), format_value(different)
    if now is None:
        text = f"has no parameter {parameter}, which the weights have"
    elif stored is None:
        text = f"has a parameter {parameter}, which the weights do not have"
    else:
        text = f"has a parameter {parameter} of shape {now}, and the weights have one of shape {stored}"
    raise ModelError(
        f"cannot read {source}: {model}, as it is now, {text}; was its code changed since the training? Restore the "
        "code, or train again"
    )


def fill_model(model: TokenModel, weights: Mapping[str, Tensor], source: str) -> TokenModel:
    """Load weights into a model that was prepared for them."""
    with _mismatches(source):
        if isinstance(model, Classifier):
            model = model.to(weights["readout.weight"].dtype)
        load_tensors(model, weights)
    if isinstance(model, WrappedModule):
        check_reading(model)  # a weight of zero in the untrained module may have hidden what it reads
    return model.eval()


@contextmanager
def _mismatches(source: str) -> Iterator[None]:
    """Turn errors in the block into one that says that config and weights do not belong together."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError, _MismatchError, TooManyNumbersError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[-1].strip()
        raise ModelError(f"{source} does not hold the model that its {CONFIG_FILE} describes: {reason}") from None


def _check_size(name: str, value: Any, most: int) -> int:
    """Return the number of symbols or classes in a config."""
    size: int = convert_value(name, value, int)
    check_between(name, size, 1, most)
    return size
