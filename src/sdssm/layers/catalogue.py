"""All mixers by name."""

from __future__ import annotations

from collections.abc import Mapping

from sdssm.layers.attention import Attention
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
from sdssm.layers.slice import Slice

#: In the order of `MIXER_SETTINGS` in `layers/settings.py`.
MIXERS: Mapping[str, type[Mixer]] = {
    mixer.name: mixer
    for mixer in (
        *(SelectiveDense, Rnn, Lstm, Attention, S4, S4d, H3, Hyena, Mamba, RegularLrnn, ComplexDiagonal),
        *(DeltaNet, GatedDeltaProduct, PdSsm, Slice),
    )
}
