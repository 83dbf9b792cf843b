"""What tells trainings of one task and model apart, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: What tells trainings apart, but for their seeds, as an evaluation writes it; what is missing is null.
TELLING = ("task", "model", "digest", "preset", "train_length", "max_length", "settings")
#: How some of it is said, where it differs.
WORDS = {"train_length": "trained to {}", "max_length": "read to {}", "digest": "task {}"}


def training(run: Mapping[str, Any]) -> str:
    """The same text for runs that nothing but the seed tells apart."""
    return json.dumps([run.get(name) for name in TELLING], sort_keys=True)


def told_apart(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each run, the words that tell its training from the others of its task and model; none where it is the only.

    >>> a5 = {"task": "a5", "model": "sd-ssm", "preset": "scale-free"}
    >>> told_apart([a5, {**a5, "settings": {"lr": 0.01}}, {**a5, "preset": "paper"}, {**a5, "task": "d4"}])
    ['scale-free', 'scale-free, lr 0.01', 'paper', '']
    """
    kin: dict[tuple[Any, Any], dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        kin.setdefault((run["task"], run["model"]), {})[training(run)] = run
    return [_words(run, list(kin[run["task"], run["model"]].values())) for run in runs]


def _words(run: Mapping[str, Any], kin: Sequence[Mapping[str, Any]]) -> str:
    if len(kin) == 1:
        return ""
    words = [run["preset"]] if run.get("preset") else []
    words += [said.format(run.get(name)) for name, said in WORDS.items() if len({one.get(name) for one in kin}) > 1]
    for name, value in (run.get("settings") or {}).items():
        if any(name not in other or other[name] != value for other in (one.get("settings") or {} for one in kin)):
            words.append(f"{name} {_said(value)}")
    return ", ".join(words)


def _said(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
