"""The settings of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any, Self

from sdssm.errors import ModelError, SettingsError, UnknownNameError, did_you_mean, format_value
from sdssm.layers.settings import MIXER_SETTINGS, MixerSettings, is_catalogue_model
from sdssm.models.module_settings import ModuleSettings, check_recorded_options, options_class, recorded_options
from sdssm.models.registry import find_entry, registered_entry
from sdssm.settings import build_settings, check_settings, setting

#: The files of a saved model: its settings and its weights.
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
BLOCKS = ("bare", "pre-norm", "post-norm", "last-bare", "mlp")
LARGEST_WIDTH = 65_536
#: Models that accept an initial state with each call.
WITH_GIVEN_STATE = ("sd-ssm", "rnn", "lstm")
#: What the settings must be with centres for the states of an automaton: nothing stands between a state and its centre,
#: and a symbol does nothing but multiply the state by its matrix.
READ_BY_CENTRES: Mapping[str, Any] = {
    "name": "sd-ssm",
    "layers": 1,
    "block": "bare",
    "readout": "cosine",
    "norm": "none",
    "projection": False,
    "query": False,
    "input_matrix": False,
    "skip": False,
}


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of `Classifier`: embedding, mixers and readout. The defaults are the scale-free SD-SSM."""

    name: str = "sd-ssm"  #: the model, by its name in the catalogue or as it was registered
    import_path: str | None = None  #: of a mixer that is not in the catalogue, see `sdssm.register`
    mixer: MixerSettings = None  # type: ignore[assignment]  #: settings of its mixer; none: the defaults
    layers: int = setting(1, "number of mixers, one after the other", least=1, most=64)
    block: str | None = setting(
        None, "the block around each mixer; none: bare for one layer, pre-norm for several", choices=BLOCKS
    )
    feed_forward: int | None = setting(
        None,
        "width of a feed-forward layer after each mixer, in a pre-norm or post-norm block; none: no such layer",
        least=1,
        most=LARGEST_WIDTH,
    )
    activation: str = setting("gelu", "activation of the feed-forward layers", choices=("relu", "gelu"))
    block_dropout: float = setting(
        0.0, "dropout rate of the outputs of mixers and feed-forward layers, in training", least=0, below=1
    )
    embedding: int | None = setting(
        None,
        "width of a learned embedding; 0: that of the one-hot inputs; none: one-hot",
        least=0,
        most=LARGEST_WIDTH,
    )
    embedding_init: str = setting(
        "normal",
        "initial embedding; normal: N(0, 1); small: N(0, 0.02^2); linear: as torch.nn.Linear of the one-hot inputs",
        choices=("normal", "small", "linear"),
    )
    embedding_scale: float = setting(1.0, "factor of the embedding", above=0)
    width: int | None = setting(
        None,
        "width of the one-hot inputs, which are the rows of an embedding; none: the number of symbols, plus the query",
        least=1,
        most=LARGEST_WIDTH,
    )
    query: bool = setting(False, "read every prefix after one extra learned step")
    norm: str = setting(
        "plain", "LayerNorm before the readout; plain: no gain, no shift", choices=("affine", "plain", "none")
    )
    readout: str = setting("cosine", "the layer that computes the logits", choices=("linear", "mlp", "cosine"))
    readout_bias: bool = setting(True, "whether the linear and the mlp readout have a bias")
    hidden: int = setting(64, "width of the mlp readout", least=1, most=LARGEST_WIDTH)
    dropout: float = setting(0.0, "dropout rate of the hidden layer of the mlp readout, in training", least=0, below=1)
    centres: int | None = setting(
        None,
        "centres of the cosine readout, each of a state of the automaton, if targets is state; none: chosen for the "
        "task; otherwise a centre for each label",
        least=1,
        most=LARGEST_WIDTH,
    )
    projection: bool = setting(True, "P, a learned linear map before the cosine; files hold P - I")
    scale: float = setting(10.0, "scale of the cosine at the first step of training", above=0)
    scale_end: float | None = setting(30.0, "scale at the last step, linear in between; none: constant", above=0)
    state_embedding: int | None = setting(
        None,
        "width of fixed random vectors that represent the automaton's states (length efficiency)",
        least=1,
        most=LARGEST_WIDTH,
    )

    @property
    def blocks(self) -> str:
        """The block around each mixer, with the default filled in."""
        return self.block or ("bare" if self.layers == 1 else "pre-norm")

    def __post_init__(self) -> None:
        self._build_mixer_settings()  # first, because the valid settings depend on the name
        check_settings(self)
        self._check_dropout()
        if self.feed_forward is not None and self.blocks not in ("pre-norm", "post-norm"):
            raise SettingsError(
                f"feed_forward needs a residual block, but block is {self.blocks!r}; set block=pre-norm"
            )
        if self.state_embedding is not None:
            self._check_state_embedding()
        if self.centres is not None:
            self._check_centres()

    def _build_mixer_settings(self) -> None:
        """Convert the mixer's settings to their class, from an instance, plain values or None."""
        kind, mixer = self._mixer_settings_class(), self.mixer
        if mixer is None or isinstance(mixer, Mapping):
            object.__setattr__(self, "mixer", build_settings(kind, mixer or {}))
        elif type(mixer) is not kind:
            raise SettingsError(
                f"mixer is {type(mixer).__name__}, but {self.name} has {kind.__name__}; pass that, or leave mixer out"
            )

    def _mixer_settings_class(self) -> type[MixerSettings]:
        """Return the class of the mixer's settings, and set the import path of a mixer that was registered."""
        if is_catalogue_model(self.name, self.import_path):
            return MIXER_SETTINGS[self.name]
        entry = registered_entry(self.name, self.import_path)
        if entry is None and self.import_path is not None:  # read from a file; its code was not imported
            if isinstance(self.mixer, MixerSettings):
                return type(self.mixer)
            return _recorded_mixer_settings(self.mixer or {})
        entry = find_entry(self.name) if entry is None else entry
        if entry.kind != "mixer":
            raise SettingsError(
                f"{self.name} is a whole module, not a mixer inside a Classifier; use ModuleSettings, or train(model=)"
            )
        object.__setattr__(self, "import_path", entry.import_path)
        settings: type[MixerSettings] = entry.mixer.Settings
        return settings

    def _check_dropout(self) -> None:
        if self.dropout and self.readout != "mlp":
            raise SettingsError(
                f"dropout is {self.dropout} but readout is {self.readout!r}; only the mlp readout has dropout"
            )
        if self.block_dropout and self.blocks not in ("pre-norm", "post-norm"):
            raise SettingsError(
                f"block_dropout is {self.block_dropout} but block is {self.blocks!r}, and only residual blocks have "
                "dropout; set block=pre-norm, or block_dropout=0"
            )

    def _check_centres(self) -> None:
        """Check that the states of the mixer are compared with the centres as they are."""
        for name, value in READ_BY_CENTRES.items():
            actual = self.blocks if name == "block" else getattr(self, name, getattr(self.mixer, name, None))
            if actual != value:
                word = "model" if name == "name" else name
                raise SettingsError(
                    f"{word} is {actual!r}, but with centres for the states of an automaton the state of one SD-SSM "
                    f"layer is read by its cosine alone; set {word}={value}, as preset=states does, or train on labels "
                    "with preset=scale-free"
                )
        start = getattr(self.mixer, "initial_state", None)
        if start != "learned":
            raise SettingsError(
                f"initial_state is {start!r}, but with centres for the states of an automaton a string starts at the "
                "centre of the start state; set initial_state=learned"
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

    @property
    def needs_given_state(self) -> bool:
        """Whether the initial state is passed with each call."""
        return getattr(self.mixer, "initial_state", None) == "given"

    @property
    def has_cosine_readout(self) -> bool:
        """Whether the readout compares the features with the centres of the classes."""
        return self.readout == "cosine"

    def parts(self) -> dict[str, Any]:
        """Return the objects that hold the settings, by the name of the part."""
        return {"mixer": self.mixer, "model": self}

    def with_parts(self, values: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the settings with some values of each part replaced."""
        mixer = replace(self.mixer, **values.get("mixer", {}))
        return replace(self, mixer=mixer, **values.get("model", {}))

    def ramps(self) -> Mapping[str, tuple[float, float | None]]:
        """Return first and last value of each buffer that may change during training, by its name in the model."""
        scale = {"readout.scale": (self.scale, self.scale_end)} if self.has_cosine_readout else {}
        mixers = {
            f"layers.{layer}.mixer.{name}": values
            for layer in range(self.layers)
            for name, values in self.mixer.ramps().items()
        }
        return {**scale, **mixers}

    def without_replica_values(self) -> ModelSettings:
        """Return these settings without the values that may differ between replicas trained in one batch."""
        return replace(self, mixer=self.mixer.without_replica_values(), scale=1.0, scale_end=None)


def default_settings(name: str) -> ModelSettings | ModuleSettings:
    """Return the settings of a model with their defaults.

    >>> default_settings("lstm").mixer.state
    64
    """
    entry = find_entry(name)
    if entry.kind == "mixer":
        return ModelSettings(name=entry.name)
    return ModuleSettings(name=entry.name, import_path=entry.import_path, options=options_class(entry.target)())


def unchanged_settings(settings: ModelSettings | ModuleSettings) -> ModelSettings | ModuleSettings:
    """Return the settings of the same model with their defaults, to tell which ones were changed.

    Of a model that was not imported the defaults are unknown: those of its code count as unchanged.
    """
    entry = registered_entry(settings.name, settings.import_path)
    if entry is not None or is_catalogue_model(settings.name, settings.import_path):
        defaults = default_settings(settings.name if entry is None else entry.name)
        # A folder may record another name or path than those by which the model is registered now.
        return replace(defaults, name=settings.name, import_path=settings.import_path)
    if isinstance(settings, ModuleSettings):
        return settings
    return ModelSettings(name=settings.name, import_path=settings.import_path, mixer=settings.mixer)


def build_model_settings(values: Mapping[str, Any]) -> ModelSettings | ModuleSettings:
    """Return the settings that a file holds. Those of a model that was not imported are kept as they are."""
    if "options" not in values:
        _check_recorded_name(values)
        return build_settings(ModelSettings, values)
    name, path = recorded_name(values)
    recorded = check_recorded_options(values["options"])
    entry = registered_entry(name, path)
    if entry is None or entry.kind != "module":
        options = recorded_options(recorded)
    else:
        options = build_settings(options_class(entry.target), recorded)
    return ModuleSettings(name=name, import_path=path, options=options)


def recorded_name(values: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the name and the import path of the model whose settings a file holds."""
    name, path = values.get("name", "sd-ssm"), values.get("import_path")
    if not isinstance(name, str) or not isinstance(path, str | None):
        what, value = ("name", name) if not isinstance(name, str) else ("import path", path)
        raise ModelError(f"the {what} of the model is {format_value(value)}; it must be a text")
    return name, path


def _check_recorded_name(values: Mapping[str, Any]) -> None:
    """Raise an error if a file names a model of others without its import path: looking it up might import code."""
    name, path = recorded_name(values)
    if path is None and name not in MIXER_SETTINGS and registered_entry(name, None) is None:
        raise UnknownNameError(f"there is no model {name!r}; {did_you_mean(name, MIXER_SETTINGS)}")


def _recorded_mixer_settings(values: Mapping[str, Any]) -> type[MixerSettings]:
    """Return a class for settings as a file holds them, of a mixer that was not imported."""
    options = [(name, Any, field(default=None)) for name in values]
    return make_dataclass("RecordedMixerSettings", options, bases=(MixerSettings,), frozen=True, kw_only=True)
