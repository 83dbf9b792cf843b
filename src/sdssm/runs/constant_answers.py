"""What the best constant answer scores on the training strings of runs."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.errors import SdssmError
from sdssm.runs.schema import RunConfig, resolve_sampling
from sdssm.tasks import chance_accuracy
from sdssm.tasks.label_shares import best_constant_in_training


def training_constants(configs: Sequence[RunConfig]) -> list[float]:
    """Return the accuracy of the best constant answer on the training strings of each run, in percent.

    The accuracy of a training is to be compared with it: if one label is rare, a model that has learned nothing is
    nearly always right. If the task of a run no longer exists, it is the chance level.
    """
    known: dict[tuple[str, int, str, bool], float] = {}
    levels = []
    for config in configs:
        key = config.digest, config.train_length, config.train.sampling, config.has_random_start
        if key not in known:
            known[key] = _training_constant(config)
        levels.append(known[key])
    return levels


def _training_constant(config: RunConfig) -> float:
    chance = chance_accuracy(config.n_classes)
    try:
        task = config.load_task()
        sampling = resolve_sampling(config.settings, task, config.train_length)
        constant = best_constant_in_training(task, config.train_length, sampling, random_start=config.has_random_start)
    except SdssmError:
        return chance
    return chance if constant is None else constant
