"""The settings of all mixers, by the name of the mixer.

They are apart from the mixers so that commands can list and check them without importing torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from sdssm.devices import TRITON_LARGEST_HEAD, TRITON_LARGEST_STATE
from sdssm.errors import SettingsError
from sdssm.settings import check_between, check_settings, setting

#: Larger powers of small entries underflow in float32, so that whole columns would be zero.
LARGEST_NORM = 16
LARGEST_STATE = 4_096
INITIAL_STATES = ("zero", "learned", "given")
#: The forms of the transition matrices of an SD-SSM, see `sdssm.layers.transition_forms`.
TRANSITIONS = ("signed", "nonnegative", "stochastic", "sum-one")


@dataclass(frozen=True, kw_only=True)
class MixerSettings:
    """Base class of the settings of a mixer, see `sdssm.settings`."""

    def without_replica_values(self) -> Self:
        """Return these settings without the values that may differ between replicas trained in one batch."""
        return self

    def ramps(self) -> Mapping[str, tuple[float, float | None]]:
        """Return first and last value of each buffer that may change during training; None: constant."""
        return {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Allow code that holds the settings of an unknown mixer to read any of its fields."""


@dataclass(frozen=True, kw_only=True)
class SelectiveDenseSettings(MixerSettings):
    """Settings of `SelectiveDense`. The defaults are the scale-free form, for strings of symbols."""

    state: int = setting(
        64,
        "N, entries of the state; auto, the default of a training: chosen for the task, at least 64",
        least=1,
        most=LARGEST_STATE,
    )
    dictionary: int = setting(16, "K, number of matrices that are mixed", least=1, most=4_096)
    column_norm: float | None = setting(
        1.2, "p of the l_p norm that columns are divided by; none: not normalised", least=1, most=LARGEST_NORM
    )
    initial_dictionary: str = setting(
        "random",
        "the matrices before training; identity: near the identity, and each symbol mainly selects one of them",
        choices=("random", "identity"),
    )
    initial_state: str = setting(
        "learned", "the state before the first symbol; given: passed with each call", choices=INITIAL_STATES
    )
    input_matrix: bool = setting(False, "B, adds B u_t to each state")
    rescale: bool = setting(True, "divide each state by its l2 norm")
    temperature: float = setting(1.0, "temperature of the softmax at the first step of training", above=0)
    temperature_end: float | None = setting(
        None, "temperature at the last step, linear in between; none: constant", above=0
    )
    skip: bool = setting(False, "D, adds D u_t to each output")
    transition: str = setting(
        "signed",
        "form of the matrices; stochastic: columns are distributions; sum-one: columns of any sign that sum to 1",
        choices=TRANSITIONS,
    )
    constraint: float = setting(
        1.0, "share of the form `transition` at the first step of training, the rest is signed", least=0, most=1
    )
    constraint_end: float | None = setting(
        None, "that share at the last step, linear in between; none: constant", least=0, most=1
    )
    column_temperature: float = setting(
        0.02, "temperature of the softmax down each column, non-negative and stochastic matrices", above=0
    )
    column_temperature_end: float | None = setting(
        None, "column_temperature at the last step, linear in between; none: constant", above=0
    )

    @property
    def is_constrained(self) -> bool:
        """Whether the matrices have another form than the published one."""
        return self.transition != "signed"

    @property
    def has_softmax_columns(self) -> bool:
        """Whether the columns are computed by a softmax."""
        return self.transition in ("nonnegative", "stochastic")

    @property
    def is_annealed(self) -> bool:
        """Whether the matrices are, or have been, between the signed form and the form `transition`."""
        return self.constraint != 1 or self.constraint_end is not None

    @property
    def is_tempered(self) -> bool:
        """Whether the softmax has a temperature other than 1."""
        return self.temperature != 1 or self.temperature_end is not None

    def without_replica_values(self) -> SelectiveDenseSettings:
        """Remove p, temperatures and constraint, which are buffers: each replica may have its own values."""
        norm = None if self.column_norm is None else 1.0
        values = replace(self, column_norm=norm, temperature=2.0 if self.is_tempered else 1.0, temperature_end=None)
        constraint = 0.5 if self.is_annealed else 1.0
        return replace(
            values, constraint=constraint, constraint_end=None, column_temperature=1.0, column_temperature_end=None
        )

    def ramps(self) -> Mapping[str, tuple[float, float | None]]:
        """Return first and last value of the temperature, and of constraint and column_temperature if they are used."""
        ramps = {"temperature": (self.temperature, self.temperature_end)}
        if self.is_annealed:
            ramps["constraint"] = (self.constraint, self.constraint_end)
        if self.has_softmax_columns:
            ramps["column_temperature"] = (self.column_temperature, self.column_temperature_end)
        return ramps

    def __post_init__(self) -> None:
        check_settings(self)
        if self.rescale and self.input_matrix:
            raise SettingsError(
                "rescale is on with an input matrix, but a rescaled recurrence must be homogeneous; "
                "set input_matrix=false"
            )
        if self.initial_state == "zero" and not self.input_matrix:
            raise SettingsError(
                "initial_state is 'zero' without an input matrix, so every state would be zero; "
                "set initial_state=learned or input_matrix=true"
            )
        self._check_transition()

    def _check_transition(self) -> None:
        form = self.transition
        if not self.is_constrained:
            if self.is_annealed:
                raise SettingsError(
                    "constraint is the share of the form `transition`, which is 'signed'; set transition=stochastic, "
                    "or leave constraint and constraint_end out"
                )
            return
        if self.input_matrix:
            raise SettingsError(
                f"transition is {form!r} with an input matrix, but B u_t would leave the states of that form; "
                "set input_matrix=false"
            )
        if self.initial_state != "learned":
            raise SettingsError(
                f"transition is {form!r} and initial_state {self.initial_state!r}, but only a learned state has the "
                "form that these matrices keep; set initial_state=learned"
            )
        if form == "nonnegative" and self.column_norm is None:
            raise SettingsError(
                "transition is 'nonnegative' and column_norm none, which would be stochastic; set transition=stochastic"
            )
        if form == "sum-one" and self.state == 1:
            raise SettingsError("transition is 'sum-one' with state=1, whose only matrix is 1; set state=2 or more")


@dataclass(frozen=True, kw_only=True)
class RnnSettings(MixerSettings):
    """Settings of `Rnn`."""

    # The limit is that of the GPU kernels.
    state: int = setting(64, "N, entries of the state", least=1, most=TRITON_LARGEST_STATE)
    initial_state: str = setting(
        "zero", "the state before the first symbol; given: passed with each call", choices=INITIAL_STATES
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class LstmSettings(RnnSettings):
    """Settings of `Lstm`."""


@dataclass(frozen=True, kw_only=True)
class AttentionSettings(MixerSettings):
    """Settings of `Attention`. The defaults are the published ones."""

    heads: int = setting(8, "heads, each of size D / heads", least=1, most=4_096)
    positions: int = setting(
        2_048, "positions to draw from; also the longest string that can be read", least=1, most=1 << 20
    )
    causal_mask: bool = setting(False, "attend to earlier symbols only; published: to all symbols")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class ModeSettings(MixerSettings):
    """Settings shared by S4, S4D and H3."""

    # Diagonalising a larger HiPPO matrix takes seconds.
    state: int = setting(
        64, "N of each channel, even: N / 2 complex modes, each with its conjugate", least=2, most=1_024
    )
    dt_min: float = setting(1e-3, "smallest initial time step of a channel", above=0)
    dt_max: float = setting(0.1, "largest initial time step of a channel", above=0)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.state % 2:
            raise SettingsError(f"state is {self.state}; modes come in conjugate pairs, so it must be even")
        if not self.dt_min <= self.dt_max:
            raise SettingsError(f"dt_min is {self.dt_min} and dt_max is {self.dt_max}; it must be 0 < dt_min <= dt_max")


@dataclass(frozen=True, kw_only=True)
class S4Settings(ModeSettings):
    """Settings of `S4`."""


@dataclass(frozen=True, kw_only=True)
class S4dSettings(ModeSettings):
    """Settings of `S4d`."""

    init: str = setting(
        "lin", "initial frequencies: evenly spaced (lin) or proportional to 1 / j (inv)", choices=("lin", "inv")
    )


@dataclass(frozen=True, kw_only=True)
class H3Settings(ModeSettings):
    """Settings of `H3`; `state` is N of both systems."""


@dataclass(frozen=True, kw_only=True)
class HyenaSettings(MixerSettings):
    """Settings of `Hyena`."""

    longest: int = setting(
        602, "the longest string that can be read; the filter has this many taps", least=2, most=1 << 20
    )
    filter_width: int = setting(64, "width of the network that computes the filter", least=1, most=4_096)
    bands: int = setting(1, "frequencies of the positional features: 2 bands + 1 features", least=1, most=256)
    frequency: float = setting(1.0, "initial frequency of all sines", above=0)
    learned_features: bool = setting(True, "train the positional features, as published")
    conv: int = setting(3, "taps of the short convolution", least=1, most=64)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class MambaSettings(MixerSettings):
    """Settings of `Mamba`. The defaults are those of the paper's tables."""

    # The kernels hold the state of a channel in registers, as the authors' kernels do.
    state: int = setting(128, "N, entries of the state of each channel", least=1, most=256)
    expand: int = setting(2, "number of channels as a multiple of the width", least=1, most=64)
    conv: int = setting(4, "taps of the causal convolution", least=2, most=64)
    rank: int | None = setting(None, "rank of the map to step sizes; none: width / 16, rounded up", least=1, most=4_096)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class RegularLrnnSettings(MixerSettings):
    """Settings of `RegularLrnn`. The defaults are those of the published code."""

    state: int = setting(64, "N, entries of the state", least=1, most=LARGEST_STATE)
    block_size: int = setting(8, "S, size of each block on the diagonal; it must divide the state", least=1, most=4_096)
    column_norm: float = setting(1.2, "p of the l_p norm of a column", least=1, most=LARGEST_NORM)
    normalisation: str = setting(
        "largest",
        "divide a block by its largest column norm, after centring (published code), or each column by its own (paper)",
        choices=("largest", "columns"),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        check_between("block_size", self.block_size, 1, self.state)
        if self.state % self.block_size:
            raise SettingsError(
                f"block_size is {self.block_size}, but state is {self.state}; the blocks must divide the state"
            )
        if self.block_size == 1 and self.normalisation == "largest":
            raise SettingsError(
                "block_size is 1 with normalisation 'largest', which centres each column, so every matrix would be "
                "zero; set normalisation=columns or a larger block_size"
            )


@dataclass(frozen=True, kw_only=True)
class ComplexDiagonalSettings(MixerSettings):
    """Settings of `ComplexDiagonal`. The defaults are those of the published code."""

    state: int = setting(64, "N, complex entries of the state", least=1, most=LARGEST_STATE)
    input_matrix: bool = setting(True, "B, adds B u_t to each state")
    radius: float = setting(1.0, "beta, the absolute value of every transition", above=0, most=1)
    generator: str = setting(
        "joint",
        "MLPs of the transitions: one for both parts, joint (published code), or two, separate (paper)",
        choices=("joint", "separate"),
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class DeltaNetSettings(MixerSettings):
    """Settings of `DeltaNet`."""

    heads: int = setting(4, "H, heads, each with its own matrix", least=1, most=1_024)
    head_size: int = setting(16, "rows and columns of the matrix of a head", least=1, most=TRITON_LARGEST_HEAD)
    conv: int | None = setting(4, "taps of the convolution before the scan; none: no convolution", least=2, most=64)
    negative_eigenvalues: bool = setting(True, "beta up to 2 instead of 1: eigenvalues down to -1")
    output_gate: bool = setting(False, "multiply the outputs of the heads by SiLU(W_g u_t)")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class GatedDeltaProductSettings(DeltaNetSettings):
    """Settings of `GatedDeltaProduct`."""

    householders: int = setting(2, "delta-rule updates for each symbol", least=1, most=64)
    forget_gate: bool = setting(True, "alpha, which decays the matrix before the updates")
    output_gate: bool = setting(True, "multiply the outputs of the heads by SiLU(W_g u_t)")


@dataclass(frozen=True, kw_only=True)
class PdSsmSettings(MixerSettings):
    """Settings of `PdSsm`. The defaults are those of the published code for state tracking."""

    state: int = setting(64, "N, complex entries of the state", least=1, most=LARGEST_STATE)
    dictionary: int = setting(8, "K, number of matrices that are mixed", least=1, most=4_096)
    expansion: int = setting(2, "the two MLPs of D have expansion * N hidden units", least=1, most=64)
    input_matrix: bool = setting(True, "B, adds B u_t to each state")
    initial_state: str = setting(
        "one-hot", "the state before the first symbol; one-hot: (1, 0, .., 0)", choices=("one-hot", "zero", "learned")
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.initial_state == "zero" and not self.input_matrix:
            raise SettingsError(
                "initial_state is 'zero' without an input matrix, so every state would be zero; "
                "set initial_state=one-hot or input_matrix=true"
            )


@dataclass(frozen=True, kw_only=True)
class SliceSettings(MixerSettings):
    """Settings of `Slice`. The defaults are those of the published code for formal languages."""

    state: int = setting(64, "N, entries of the state", least=1, most=LARGEST_STATE)
    block_size: int = setting(4, "S, size of a block; it must divide the state", least=1, most=4_096)
    dt: float = setting(0.025, "step size, a factor of the inputs", above=0)
    spread: float = setting(
        0.5, "standard deviation of the initial weights; divided by sqrt(S) for the matrices", above=0
    )
    input_matrix: bool = setting(False, "B, adds dt B [1, u_t] to each state")
    initial_state: str = setting(
        "input",
        "the first state; input: a linear map of the first symbol, which has no other effect",
        choices=("input", "learned"),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.state % self.block_size:
            raise SettingsError(
                f"state is {self.state} and block_size {self.block_size}; state must be a multiple of block_size"
            )


#: The settings of each model's mixer; the models are listed in this order.
MIXER_SETTINGS: Mapping[str, type[MixerSettings]] = {
    "sd-ssm": SelectiveDenseSettings,
    "rnn": RnnSettings,
    "lstm": LstmSettings,
    "transformer": AttentionSettings,
    "s4": S4Settings,
    "s4d": S4dSettings,
    "h3": H3Settings,
    "hyena": HyenaSettings,
    "mamba": MambaSettings,
    "regular-lrnn": RegularLrnnSettings,
    "complex-diagonal": ComplexDiagonalSettings,
    "delta-net": DeltaNetSettings,
    "delta-product": GatedDeltaProductSettings,
    "pd-ssm": PdSsmSettings,
    "slice": SliceSettings,
}


def is_catalogue_model(name: str, import_path: str | None) -> bool:
    """Return whether a name and an import path, as settings hold them, are those of one of our own models.

    >>> is_catalogue_model("lstm", None), is_catalogue_model("lstm", "my_package:Lstm")
    (True, False)
    """
    return import_path is None and name in MIXER_SETTINGS
