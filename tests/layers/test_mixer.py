"""The base class of the mixers, and the helpers that all of them use."""

from __future__ import annotations

import pytest
import torch

from sdssm.layers import MIXERS, Mixer, MixerSettings
from sdssm.layers.convolution import Convolution, LtiSystem
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
