"""What the best constant answer scores on the training strings of runs."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.errors import SdssmError
from sdssm.runs.schema import RunConfig
from sdssm.tasks import chance_accuracy
from sdssm.tasks.coverage import choose_sampling
from sdssm.tasks.label_shares import best_constant_in_training


def training_constants(configs: Sequence[RunConfig]) -> list[float]:
    """Return the accuracy of the best constant answer on the training strings of each run, in percent.

    The accuracy of a training is to be compared with it: if one label is rare, a model that has learned nothing is
    nearly always right. If the task of a run no longer exists, it is the chance level.
    """
    known: dict[tuple[str, int, str], float] = {}
    levels = []
    for config in configs:
        sampling = config.train.sampling
        key = config.digest, config.train_length, sampling
        if key not in known:
            known[key] = _training_constant(config, sampling)
        levels.append(known[key])
    return levels


def _training_constant(config: RunConfig, sampling: str) -> float:
    chance = chance_accuracy(config.n_classes)
    try:
        task = config.load_task()
    except SdssmError:
        return chance
    if sampling == "auto":  # of a run that is not created yet
        sampling = choose_sampling(task, config.train_length)[0]
    constant = best_constant_in_training(task, config.train_length, sampling)
    return chance if constant is None else constant
