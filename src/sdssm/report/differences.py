"""Differences between trainings of one task and model, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.formatting import format_setting

#: The keys of an evaluation that distinguish trainings, apart from the seed; a missing key counts as null. They are the
#: `TRAINING_FIELDS` of `sdssm.evaluation.records`, which tables and plots of JSON do not import; a test compares both.
TRAINING_KEYS = ("task", "model", "digest", "preset", "train_length", "max_length", "settings")
#: How some of them are described if they differ.
WORDS = {"train_length": "trained to {}", "max_length": "read to {}", "digest": "task {}"}


def training_key(run: Mapping[str, Any]) -> str:
    """Return a text that is the same for runs that differ only in their seed."""
    return json.dumps([run.get(name) for name in TRAINING_KEYS], sort_keys=True)


def describe_differences(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe how the training of each run differs from others of its task and model.

    The text is empty if there is no other.

    >>> a5 = {"task": "a5", "model": "sd-ssm", "preset": "scale-free"}
    >>> describe_differences([a5, {**a5, "settings": {"lr": 0.01}}, {**a5, "preset": "paper"}, {**a5, "task": "d4"}])
    ['scale-free', 'scale-free, lr 0.01', 'paper', '']
    """
    groups: dict[tuple[Any, Any], dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["task"], run["model"]), {})[training_key(run)] = run
    return [_describe(run, list(groups[run["task"], run["model"]].values())) for run in runs]


def _describe(run: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> str:
    if len(group) == 1:
        return ""
    words = [run["preset"]] if run.get("preset") else []
    words += [
        template.format(run.get(name))
        for name, template in WORDS.items()
        if len({other.get(name) for other in group}) > 1
    ]
    all_settings = [other.get("settings") or {} for other in group]
    for name, value in (run.get("settings") or {}).items():
        if any(name not in settings or settings[name] != value for settings in all_settings):
            words.append(f"{name} {format_setting(value)}")
    return ", ".join(words)
