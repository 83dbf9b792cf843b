"""The one configuration of the experiment: settings, seed, test lengths and strings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sdssm.errors import SettingsError, format_value

if TYPE_CHECKING:
    from sdssm.runs.schema import RunConfig
    from sdssm.tasks.task import Task

#: The settings of every language, where they differ from the default of the model. They were chosen on the languages
#: of tuning.txt, at training lengths.
SETTINGS: Mapping[str, Any] = {}
#: The preset of every language: most of them hide states behind two labels.
PRESET = "states"
#: The largest state size. The rule of `state=auto` gives 256 to 512 to the 18 of 980 languages with the most states.
#: These few would take as long as all others.
LARGEST_STATE = 128
#: The lengths at which models are measured. The longest training strings have 40 symbols.
LENGTHS = (10, 20, 40, 100, 200, 500)
#: Strings for each length and way of drawing them: with one error of 1,024 the accuracy is above 99.9 %.
STRINGS = 1_024
#: Pairs of strings at edit distance 1 for each length.
PAIRS = 256
#: The seed of the strings on which models are measured.
STRING_SEED = 1
#: Seconds for the proof of one language on one core.
PROOF_SECONDS = 30.0
#: The number of the format of records: those of another format are ignored.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How every language is trained, measured and proved.

    `settings` replace those of the preset: `PRESET` for the SD-SSM, the default one for another `model`. `lengths`,
    `strings` and `pairs` say on what the models are measured.
    """

    settings: Mapping[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    model: str = "sd-ssm"
    seed: int = 0
    budget: float = 1.0  #: the share of the steps that is trained
    lengths: tuple[int, ...] = LENGTHS
    strings: int = STRINGS
    pairs: int = PAIRS
    proof_seconds: float = PROOF_SECONDS

    def __post_init__(self) -> None:
        for name, number in (("strings", self.strings), ("pairs", self.pairs), *(("length", n) for n in self.lengths)):
            if number < 1:
                raise SettingsError(f"{name} is {format_value(number)}; it must be at least 1")
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise SettingsError(f"lengths are {format_value(self.lengths)}; give different lengths in rising order")

    @property
    def preset(self) -> str:
        """The preset of every language."""
        from sdssm.models.catalogue import DEFAULT_MODEL, default_preset

        return PRESET if self.model == DEFAULT_MODEL else default_preset(self.model)

    @cached_property
    def fingerprint(self) -> str:
        """A short text that changes with everything that changes results, except for the language and the code."""
        from sdssm.models.catalogue import get_preset

        values = {
            "format": FORMAT,
            "settings": {**get_preset(self.preset, self.model, ""), "largest": LARGEST_STATE, **self.settings},
            "model": self.model,
            "seed": self.seed,
            "budget": self.budget,
            "lengths": self.lengths,
            "strings": [self.strings, self.pairs, STRING_SEED],
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def language_fingerprint(self, content: bytes) -> str:
        """Return the fingerprint of this configuration with the file of a language."""
        return f"{self.fingerprint}-{hashlib.sha256(content).hexdigest()[:12]}"

    def run_config(self, task: Task) -> RunConfig:
        """Return the config of the training of one language."""
        from sdssm.runs.schema import create_config, resolve_settings
        from sdssm.tasks.state_size import choose_state_size

        preset = self.preset
        sizes = {}
        if preset == PRESET and "state" not in self.settings:
            sizes["state"] = min(choose_state_size(task, "state").size, LARGEST_STATE)
        settings = resolve_settings(self.model, preset, task, {**sizes, **self.settings})
        if self.budget != 1:
            steps = max(1, round(settings.train.steps * self.budget))
            settings = settings.replace_values({"steps": steps})
        return create_config(task, self.seed, settings, preset)
