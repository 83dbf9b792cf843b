"""Sequence mixers: layers (..., L, D) -> (..., L, F), most of them recurrent."""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.layers.attention import Attention
    from sdssm.layers.catalogue import MIXERS
    from sdssm.layers.complex_diagonal import ComplexDiagonal
    from sdssm.layers.delta import DeltaNet, GatedDeltaProduct
    from sdssm.layers.h3 import H3
    from sdssm.layers.hyena import Hyena
    from sdssm.layers.mamba import Mamba
    from sdssm.layers.mixer import Mixer
    from sdssm.layers.pd_ssm import PdSsm
    from sdssm.layers.recurrent import Lstm, Rnn
    from sdssm.layers.regular_lrnn import RegularLrnn
    from sdssm.layers.s4 import S4
    from sdssm.layers.s4d import S4d
    from sdssm.layers.selective_dense import SelectiveDense
    from sdssm.layers.settings import (
        AttentionSettings,
        ComplexDiagonalSettings,
        DeltaNetSettings,
        GatedDeltaProductSettings,
        H3Settings,
        HyenaSettings,
        LstmSettings,
        MambaSettings,
        MixerSettings,
        PdSsmSettings,
        RegularLrnnSettings,
        RnnSettings,
        S4dSettings,
        S4Settings,
        SelectiveDenseSettings,
        SliceSettings,
    )
    from sdssm.layers.slice import Slice
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Attention": "sdssm.layers.attention",
            "AttentionSettings": "sdssm.layers.settings",
            "ComplexDiagonal": "sdssm.layers.complex_diagonal",
            "ComplexDiagonalSettings": "sdssm.layers.settings",
            "DeltaNet": "sdssm.layers.delta",
            "DeltaNetSettings": "sdssm.layers.settings",
            "GatedDeltaProduct": "sdssm.layers.delta",
            "GatedDeltaProductSettings": "sdssm.layers.settings",
            "H3": "sdssm.layers.h3",
            "H3Settings": "sdssm.layers.settings",
            "Hyena": "sdssm.layers.hyena",
            "HyenaSettings": "sdssm.layers.settings",
            "Lstm": "sdssm.layers.recurrent",
            "LstmSettings": "sdssm.layers.settings",
            "MIXERS": "sdssm.layers.catalogue",
            "Mamba": "sdssm.layers.mamba",
            "MambaSettings": "sdssm.layers.settings",
            "Mixer": "sdssm.layers.mixer",
            "MixerSettings": "sdssm.layers.settings",
            "PdSsm": "sdssm.layers.pd_ssm",
            "PdSsmSettings": "sdssm.layers.settings",
            "RegularLrnn": "sdssm.layers.regular_lrnn",
            "RegularLrnnSettings": "sdssm.layers.settings",
            "Rnn": "sdssm.layers.recurrent",
            "RnnSettings": "sdssm.layers.settings",
            "S4": "sdssm.layers.s4",
            "S4Settings": "sdssm.layers.settings",
            "S4d": "sdssm.layers.s4d",
            "S4dSettings": "sdssm.layers.settings",
            "SelectiveDense": "sdssm.layers.selective_dense",
            "SelectiveDenseSettings": "sdssm.layers.settings",
            "Slice": "sdssm.layers.slice",
            "SliceSettings": "sdssm.layers.settings",
        },
    )

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
