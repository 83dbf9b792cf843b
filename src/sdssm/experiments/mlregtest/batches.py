"""Which languages train side by side: those of one shape, as many at a time as a device works on well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.languages import Language
from sdssm.formatting import count_of
from sdssm.runs.schema import RunConfig
from sdssm.training.engine import group_key

#: Languages that train side by side, by device.
AT_ONCE = {"cpu": 8, "cuda": 128}


@dataclass(frozen=True, eq=False)
class LanguageBatch:
    """Languages whose models have one shape and train side by side, with the config of each."""

    languages: tuple[Language, ...]
    configs: tuple[RunConfig, ...]

    def __len__(self) -> int:
        return len(self.languages)

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return self.configs[0].train.steps

    @property
    def key(self) -> Any:
        """What decides how long a step takes: the shape of the models."""
        return group_key(self.configs[0], self.languages[0].task)

    def halves(self) -> list[LanguageBatch]:
        """Return two batches with half of the languages each."""
        middle = len(self) // 2
        parts = (slice(None, middle), slice(middle, None))
        return [LanguageBatch(self.languages[part], self.configs[part]) for part in parts]

    def describe(self) -> str:
        """Return the batch in words, such as "113 languages of 64 symbols"."""
        symbols = self.languages[0].alphabet
        state = model_state(self.configs[0])
        size = "" if state is None else f", state {state}"
        return f"{count_of(len(self), 'language')} of {symbols} symbols{size}"


def model_state(config: RunConfig) -> int | None:
    """Return the size of the state of a model; None if it has none."""
    value = config.settings.values_by_name().get("state")
    return value if isinstance(value, int) else None


def make_batches(languages: Sequence[Language], configuration: Configuration, at_once: int) -> list[LanguageBatch]:
    """Return batches of at most `at_once` languages; those of one shape have about equal sizes.

    The shapes with the most symbols come first: they take the longest, and estimates of the time are then not too low.
    """
    shapes: dict[Any, list[tuple[Language, RunConfig]]] = {}
    for language in languages:
        config = configuration.run_config(language.task)
        shapes.setdefault(group_key(config, language.task), []).append((language, config))
    batches = []
    for members in sorted(shapes.values(), key=lambda group: -group[0][0].alphabet):
        count = -(-len(members) // at_once)
        for k in range(count):
            part = members[len(members) * k // count : len(members) * (k + 1) // count]
            batches.append(LanguageBatch(tuple(language for language, _ in part), tuple(config for _, config in part)))
    return batches
