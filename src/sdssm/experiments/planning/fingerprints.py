"""Fingerprints: which planned runs are the same training, and the folder name that they share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from sdssm.models.settings import unchanged_settings
from sdssm.runs.comparison import WITHOUT_EFFECT
from sdssm.runs.events import to_json_value
from sdssm.runs.schema import UNRECORDED, RunConfig, Settings
from sdssm.settings import settings_to_dict

#: Settings that say how often something is written, or what is refused, and do not change the training.
IGNORED_SETTINGS = (*WITHOUT_EFFECT, "allow_unidentified")
#: Hexadecimal digits of a fingerprint.
DIGITS = 12


def fingerprint(config: RunConfig, ignore: Sequence[str] = ()) -> str:
    """Return a hash of the training that a config describes, without its seed.

    It covers the task and the settings that differ from the defaults, so that a setting added in a later version
    does not change it. `ignore` names further training settings to leave out.

    >>> from sdssm.runs.schema import create_config, resolve_settings
    >>> from sdssm.tasks import get_task
    >>> first, second = (resolve_settings("sd-ssm", "paper", "a5", {"log_every": every}) for every in (None, 10))
    >>> a5 = get_task("a5")
    >>> fingerprint(create_config(a5, 0, first, "paper")) == fingerprint(create_config(a5, 1, second, "readme"))
    True
    """
    settings = settings_to_dict(config.settings)
    defaults = settings_to_dict(Settings(model=unchanged_settings(config.model)))
    defaults["train"].update(UNRECORDED)
    values = {
        group: {
            name: value
            for name, value in settings[group].items()
            if value != defaults[group].get(name) and name not in skipped
        }
        for group, skipped in (("model", ("mixer", "options")), ("train", (*IGNORED_SETTINGS, "train_length", *ignore)))
    }
    for part in ("mixer", "options"):  # the settings that the model itself holds in a part of their own
        own, unchanged = settings["model"].get(part), defaults["model"].get(part, {})
        if own is not None:
            values[part] = {name: value for name, value in own.items() if value != unchanged.get(name)}
    identity = [config.digest, config.train_length, config.model.name, to_json_value(values)]
    if config.model.import_path is not None:  # the models of two files may have one name
        identity.append(config.model.import_path)
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:DIGITS]


def is_same_training(planned: RunConfig, existing: RunConfig) -> bool:
    """Return whether an existing run is the planned training.

    The name of the preset, how often the run was saved or logged, and whether its training length was the task's
    default or given explicitly do not matter.
    """
    ignored = {name: getattr(existing.train, name) for name in (*IGNORED_SETTINGS, "train_length")}
    settings = replace(planned.settings, train=replace(planned.settings.train, **ignored))
    return replace(planned, preset=existing.preset, settings=settings).matches(existing)
