"""The base class of the mixers, and the helpers that all of them use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.layers import MIXERS, Mixer, MixerSettings
from sdssm.layers.convolution import Convolution, LtiSystem
from sdssm.layers.mixer import last_position
from sdssm.layers.recurrent import RecurrentNetwork


def test_an_incomplete_mixer_cannot_be_constructed() -> None:
    class Incomplete(Mixer):
        """A mixer without any of the required methods."""

    with pytest.raises(TypeError, match=r"abstract class Incomplete with abstract methods mix, outputs, parts"):
        Incomplete(3, MixerSettings())  # type: ignore[abstract]  # which is what is tested


@pytest.mark.parametrize("base", [Mixer, Convolution, LtiSystem, RecurrentNetwork])
def test_base_classes_cannot_be_constructed(base: type) -> None:
    with pytest.raises(TypeError, match=f"abstract class {base.__name__}"):
        base(3, generator=torch.Generator())


@pytest.mark.parametrize("name", MIXERS)
def test_every_mixer_of_the_catalogue_is_complete(name: str) -> None:
    assert not MIXERS[name].__abstractmethods__
    assert isinstance(MIXERS[name](16, generator=torch.Generator().manual_seed(0)), Mixer)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize(("length", "ragged"), [(2, False), (2, True), (9, True)])  # 2: shorter than a convolution
def test_output_at_the_end_is_the_last_of_all_outputs(name: str, length: int, ragged: bool) -> None:
    """Its gradients, too, are those of the last output."""
    generator = torch.Generator().manual_seed(0)
    layer = MIXERS[name](16, generator=generator).double()  # type: ignore[call-arg]
    table = torch.randn(3, 16, generator=generator, dtype=torch.float64)
    tokens = torch.randint(3, (4, length), generator=generator)
    lengths = torch.tensor([1, length, 2, length - 1]) if ragged else None
    shape = layer.noise_shape(length)
    noise = None if shape is None else torch.rand(shape, generator=generator, dtype=torch.float64)
    options: dict[str, Any] = {"lengths": lengths, "noise": noise}

    weights = torch.randn(4, 1, layer.outputs, generator=generator, dtype=torch.float64)
    parameters = list(layer.parameters())

    def with_gradient(output: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return output, torch.autograd.grad((output * weights).sum(), parameters, materialize_grads=True)

    expected = with_gradient(last_position(layer.mix(layer.parts(table[tokens]), **options)[0], lengths))
    torch.testing.assert_close(with_gradient(layer.mix_end(layer.parts(table[tokens]), **options)), expected)
    symbols = layer.symbol_parts(table)
    torch.testing.assert_close(with_gradient(layer.mix_symbols_end(symbols, tokens, **options)), expected)


@pytest.mark.parametrize("name", ["mamba", "delta-net", "delta-product", "pd-ssm"])
def test_output_at_the_end_continues_from_a_state(name: str) -> None:
    layer = MIXERS[name](16, generator=torch.Generator().manual_seed(0))  # type: ignore[call-arg]
    u = torch.randn(4, 9, 16, generator=torch.Generator().manual_seed(1))
    outputs, _ = layer.mix(layer.parts(u))
    _, state = layer.mix(layer.parts(u[:, :5]))
    torch.testing.assert_close(layer.mix_end(layer.parts(u[:, 5:]), state), outputs[:, -1:])
