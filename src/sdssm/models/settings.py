"""What tells one classifier from another, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from sdssm.errors import SettingsError
from sdssm.layers import SelectiveDenseSettings
from sdssm.settings import between, check, one_of

READOUTS = ("linear", "mlp", "cosine")
NORMS = ("affine", "plain", "none")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """An embedding, mixers and a readout. The defaults are the scale-free SD-SSM."""

    name: str = "sd-ssm"  #: which mixer, by its name in the catalogue
    mixer: SelectiveDenseSettings = field(default_factory=SelectiveDenseSettings)
    layers: int = 1  #: one bare mixer, or several in pre-norm residual blocks
    embedding: int | None = None  #: width of a learned embedding; none: one-hot
    width: int | None = None  #: width of the one-hot inputs; none: as many as there are symbols and the query
    query: bool = False  #: read every prefix through one extra learned step
    norm: str = "plain"  #: LayerNorm before the readout: affine, plain (no gain, no shift) or none
    readout: str = "cosine"  #: linear, mlp, or cosine with a bounded scale
    hidden: int = 64  #: width of the mlp readout
    dropout: float = 0.0  #: on the hidden entries of the mlp readout
    projection: bool = True  #: before the cosine, a learned map of the features
    scale: float = 10.0  #: of the cosine, at the first step of training
    scale_end: float | None = 30.0  #: and at the last; none: the same
    state_embedding: int | None = None  #: start state and classes are fixed random vectors of this width

    def __post_init__(self) -> None:
        check(self)
        between("layers", self.layers, 1, 64)
        for name in ("hidden", "embedding", "width", "state_embedding"):
            if getattr(self, name) is not None:
                between(name, getattr(self, name), 1, 65_536)
        one_of("readout", self.readout, READOUTS)
        one_of("norm", self.norm, NORMS)
        if not 0 <= self.dropout < 1:
            raise SettingsError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.dropout and self.readout != "mlp":
            raise SettingsError(
                f"dropout is {self.dropout} but readout is {self.readout!r}; only the mlp readout has dropout"
            )
        for name in ("scale", "scale_end"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingsError(f"{name} is {value}; it must be above 0")
        if self.embedding is not None and self.width is not None:
            raise SettingsError("embedding and width were both given; width is that of one-hot inputs, leave one out")
        if self.state_embedding is not None:
            self._check_state_embedding()

    def _check_state_embedding(self) -> None:
        if self.mixer.initial_state != "given":
            raise SettingsError(
                f"state_embedding starts from a vector of the automaton's state, but initial_state is "
                f"{self.mixer.initial_state!r}; set initial_state=given"
            )
        if self.readout != "linear":
            raise SettingsError(f"state_embedding reads linearly, but readout is {self.readout!r}; set readout=linear")
        if self.layers > 1:
            raise SettingsError(f"state_embedding goes with one layer, but layers is {self.layers}")
