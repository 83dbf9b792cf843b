"""The settings of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sdssm.errors import SettingsError, UnknownNameError, did_you_mean
from sdssm.layers import MIXERS, MixerSettings
from sdssm.settings import build_settings, check_between, check_one_of, check_settings

READOUTS = ("linear", "mlp", "cosine")
NORMS = ("affine", "plain", "none")
BLOCKS = ("bare", "pre-norm", "post-norm", "last-bare", "mlp")
EMBEDDINGS = ("normal", "small", "linear")
ACTIVATIONS = ("relu", "gelu")
#: Models that accept an initial state with each call.
WITH_GIVEN_STATE = ("sd-ssm", "rnn", "lstm")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of `Classifier`: embedding, mixers and readout. The defaults are the scale-free SD-SSM."""

    name: str = "sd-ssm"  #: the model, by its name in the catalogue
    mixer: MixerSettings = None  # type: ignore[assignment]  #: settings of its mixer; none: the defaults
    layers: int = 1  #: number of layers
    block: str | None = None  #: the block around each mixer; none: bare for one layer, pre-norm for several
    feed_forward: int | None = None  #: hidden width of a feed-forward layer after each mixer; none: no such layer
    activation: str = "gelu"  #: activation of the feed-forward layers: relu or gelu
    block_dropout: float = 0.0  #: dropout rate of the outputs of mixers and feed-forward layers
    embedding: int | None = None  #: width of a learned embedding; 0: the number of symbols; none: one-hot inputs
    embedding_init: str = "normal"  #: N(0, 1) (normal), N(0, 0.02^2) (small), or as a linear map (linear)
    embedding_scale: float = 1.0  #: factor of the embedding
    width: int | None = None  #: width of one-hot inputs; none: the number of symbols, with the query
    query: bool = False  #: read a learned query symbol after every prefix, and predict from its output
    norm: str = "plain"  #: LayerNorm before the readout: affine, plain (no weight, no bias) or none
    readout: str = "cosine"  #: linear, mlp or cosine
    readout_bias: bool = True  #: whether the linear or mlp readout has a bias
    hidden: int = 64  #: hidden width of the mlp readout
    dropout: float = 0.0  #: dropout rate of the hidden units of the mlp readout
    projection: bool = True  #: learned linear map of the features before the cosine
    scale: float = 10.0  #: scale of the cosine at the first training step
    scale_end: float | None = 30.0  #: scale at the last training step; none: constant
    state_embedding: int | None = None  #: width of fixed random vectors for the start state and the classes

    @property
    def blocks(self) -> str:
        """The block around each mixer, with the default filled in."""
        return self.block or ("bare" if self.layers == 1 else "pre-norm")

    def __post_init__(self) -> None:
        self._build_mixer_settings()  # first, because the valid settings depend on the name
        check_settings(self)
        check_between("layers", self.layers, 1, 64)
        for name in ("hidden", "width", "state_embedding", "feed_forward"):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), 1, 65_536)
        if self.embedding is not None:
            check_between("embedding", self.embedding, 0, 65_536)
        check_one_of("readout", self.readout, READOUTS)
        check_one_of("norm", self.norm, NORMS)
        check_one_of("embedding_init", self.embedding_init, EMBEDDINGS)
        check_one_of("activation", self.activation, ACTIVATIONS)
        self._check_dropout()
        for name in ("scale", "scale_end", "embedding_scale"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingsError(f"{name} is {value}; it must be above 0")
        if self.embedding is not None and self.width is not None:
            raise SettingsError(
                f"width is {self.width}, but it is the width of one-hot inputs and embedding is {self.embedding}; "
                "leave width out, or set embedding=none"
            )
        if self.block is not None:
            check_one_of("block", self.block, BLOCKS)
        if self.feed_forward is not None and self.blocks not in ("pre-norm", "post-norm"):
            raise SettingsError(
                f"feed_forward needs a residual block, but block is {self.blocks!r}; set block=pre-norm"
            )
        if self.state_embedding is not None:
            self._check_state_embedding()

    def _build_mixer_settings(self) -> None:
        """Convert the mixer's settings to their class, from an instance, plain values or None."""
        if self.name not in MIXERS:
            raise UnknownNameError(f"there is no model {self.name!r}; {did_you_mean(str(self.name), MIXERS)}")
        kind, mixer = MIXERS[self.name].Settings, self.mixer
        if mixer is None or isinstance(mixer, Mapping):
            object.__setattr__(self, "mixer", build_settings(kind, mixer or {}))
        elif type(mixer) is not kind:
            raise SettingsError(
                f"mixer is {type(mixer).__name__}, but {self.name} has {kind.__name__}; pass that, or leave mixer out"
            )

    def _check_dropout(self) -> None:
        for name in ("dropout", "block_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise SettingsError(f"{name} is {value}; it must be at least 0 and below 1")
        if self.dropout and self.readout != "mlp":
            raise SettingsError(
                f"dropout is {self.dropout} but readout is {self.readout!r}; only the mlp readout has dropout"
            )
        if self.block_dropout and self.blocks not in ("pre-norm", "post-norm"):
            raise SettingsError(
                f"block_dropout is {self.block_dropout} but block is {self.blocks!r}, and only residual blocks have "
                "dropout; set block=pre-norm, or block_dropout=0"
            )

    def _check_state_embedding(self) -> None:
        start = getattr(self.mixer, "initial_state", None)
        if self.name not in WITH_GIVEN_STATE:
            raise SettingsError(
                f"state_embedding starts from a vector of the automaton's state, which {self.name} does not support; "
                f"use one of: {', '.join(WITH_GIVEN_STATE)}"
            )
        if start != "given":
            raise SettingsError(
                f"state_embedding starts from a vector of the automaton's state, but initial_state is "
                f"{start!r}; set initial_state=given"
            )
        if self.readout != "linear":
            raise SettingsError(
                f"state_embedding needs a linear readout, but readout is {self.readout!r}; set readout=linear"
            )
        if self.layers > 1 or self.blocks != "bare":
            raise SettingsError(
                f"state_embedding needs one bare layer, but layers is {self.layers} and block is {self.blocks!r}; "
                "set layers=1 block=bare"
            )

    def without_replica_values(self) -> ModelSettings:
        """Return these settings without the values that may differ between replicas trained in one batch."""
        return replace(self, mixer=self.mixer.without_replica_values(), scale=1.0, scale_end=None)
