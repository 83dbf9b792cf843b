"""What tells one classifier from another, as data."""

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
#: Models that can start from a state that is given.
GIVEN = ("sd-ssm", "rnn", "lstm")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """An embedding, mixers and a readout. The defaults are the scale-free SD-SSM."""

    name: str = "sd-ssm"  #: which mixer, by its name in the catalogue
    mixer: MixerSettings = None  # type: ignore[assignment]  #: its settings; none: its defaults
    layers: int = 1  #: how many mixers, one after the other
    block: str | None = None  #: what stands around each mixer; none: bare for one layer, pre-norm for several
    feed_forward: int | None = None  #: width of a feed-forward layer after each mixer; none: no such layer
    activation: str = "gelu"  #: of the feed-forward layers: relu or gelu
    block_dropout: float = 0.0  #: on what mixers and feed-forward layers add
    embedding: int | None = None  #: width of a learned embedding; 0: as wide as there are symbols; none: one-hot
    embedding_init: str = "normal"  #: N(0, 1) (normal), N(0, 0.02^2) (small), or as a linear map starts (linear)
    embedding_scale: float = 1.0  #: a factor of the embedding
    width: int | None = None  #: width of the one-hot inputs; none: as many as there are symbols and the query
    query: bool = False  #: read every prefix through one extra learned step
    norm: str = "plain"  #: LayerNorm before the readout: affine, plain (no gain, no shift) or none
    readout: str = "cosine"  #: linear, mlp, or cosine with a bounded scale
    readout_bias: bool = True  #: of the linear and the mlp readout
    hidden: int = 64  #: width of the mlp readout
    dropout: float = 0.0  #: on the hidden entries of the mlp readout
    projection: bool = True  #: before the cosine, a learned map of the features
    scale: float = 10.0  #: of the cosine, at the first step of training
    scale_end: float | None = 30.0  #: and at the last; none: the same
    state_embedding: int | None = None  #: start state and classes are fixed random vectors of this width

    @property
    def blocks(self) -> str:
        """What stands around each mixer."""
        return self.block or ("bare" if self.layers == 1 else "pre-norm")

    def __post_init__(self) -> None:
        self._take_mixer()  # first: which settings are right depends on the name
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
                f"width is {self.width}, but inputs are embedded (embedding is {self.embedding}) and width is that of "
                "one-hot ones; leave width out, or set embedding=none"
            )
        if self.block is not None:
            check_one_of("block", self.block, BLOCKS)
        if self.feed_forward is not None and self.blocks not in ("pre-norm", "post-norm"):
            raise SettingsError(
                f"feed_forward needs a residual block, but block is {self.blocks!r}; set block=pre-norm"
            )
        if self.state_embedding is not None:
            self._check_state_embedding()

    def _take_mixer(self) -> None:
        """The mixer's settings as those of its class, whether given as such, as plain values or not at all."""
        if self.name not in MIXERS:
            raise UnknownNameError(f"there is no model {self.name!r}; {did_you_mean(str(self.name), MIXERS)}")
        kind, given = MIXERS[self.name].Settings, self.mixer
        if given is None or isinstance(given, Mapping):
            object.__setattr__(self, "mixer", build_settings(kind, given or {}))
        elif type(given) is not kind:
            raise SettingsError(
                f"mixer is {type(given).__name__}, but {self.name} has {kind.__name__}; give those, or leave mixer out"
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
                f"block_dropout is {self.block_dropout} but block is {self.blocks!r} and only residual blocks drop; "
                "set block=pre-norm, or block_dropout=0"
            )

    def _check_state_embedding(self) -> None:
        start = getattr(self.mixer, "initial_state", None)
        if self.name not in GIVEN:
            raise SettingsError(
                f"state_embedding starts from a vector of the automaton's state, which {self.name} cannot; those that "
                f"can: {', '.join(GIVEN)}"
            )
        if start != "given":
            raise SettingsError(
                f"state_embedding starts from a vector of the automaton's state, but initial_state is "
                f"{start!r}; set initial_state=given"
            )
        if self.readout != "linear":
            raise SettingsError(f"state_embedding reads linearly, but readout is {self.readout!r}; set readout=linear")
        if self.layers > 1 or self.blocks != "bare":
            raise SettingsError(f"state_embedding goes with one bare layer, but layers is {self.layers}")

    def shape(self) -> ModelSettings:
        """These settings without what may differ between models trained side by side."""
        return replace(self, mixer=self.mixer.shape(), scale=1.0, scale_end=None)
