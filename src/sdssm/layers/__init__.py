"""Sequence mixers: layers (..., L, D) -> (..., L, F), most of them recurrent."""

from collections.abc import Mapping

from sdssm.layers.attention import Attention, AttentionSettings
from sdssm.layers.complex_diagonal import ComplexDiagonal, ComplexDiagonalSettings
from sdssm.layers.delta import DeltaNet, DeltaNetSettings, GatedDeltaProduct, GatedDeltaProductSettings
from sdssm.layers.h3 import H3, H3Settings
from sdssm.layers.hyena import Hyena, HyenaSettings
from sdssm.layers.mamba import Mamba, MambaSettings
from sdssm.layers.mixer import Mixer, MixerSettings
from sdssm.layers.pd_ssm import PdSsm, PdSsmSettings
from sdssm.layers.recurrent import Lstm, LstmSettings, Rnn, RnnSettings
from sdssm.layers.regular_lrnn import RegularLrnn, RegularLrnnSettings
from sdssm.layers.s4 import S4, S4Settings
from sdssm.layers.s4d import S4d, S4dSettings
from sdssm.layers.selective_dense import SelectiveDense, SelectiveDenseSettings
from sdssm.layers.slice import Slice, SliceSettings

#: All mixers by name.
MIXERS: Mapping[str, type[Mixer]] = {
    mixer.name: mixer
    for mixer in (
        *(SelectiveDense, Rnn, Lstm, Attention, S4, S4d, H3, Hyena, Mamba, RegularLrnn, ComplexDiagonal),
        *(DeltaNet, GatedDeltaProduct, PdSsm, Slice),
    )
}

__all__ = [
    "H3",
    "MIXERS",
    "S4",
    "Attention",
    "AttentionSettings",
    "ComplexDiagonal",
    "ComplexDiagonalSettings",
    "DeltaNet",
    "DeltaNetSettings",
    "GatedDeltaProduct",
    "GatedDeltaProductSettings",
    "H3Settings",
    "Hyena",
    "HyenaSettings",
    "Lstm",
    "LstmSettings",
    "Mamba",
    "MambaSettings",
    "Mixer",
    "MixerSettings",
    "PdSsm",
    "PdSsmSettings",
    "RegularLrnn",
    "RegularLrnnSettings",
    "Rnn",
    "RnnSettings",
    "S4Settings",
    "S4d",
    "S4dSettings",
    "SelectiveDense",
    "SelectiveDenseSettings",
    "Slice",
    "SliceSettings",
]
