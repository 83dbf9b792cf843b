"""The balanced accuracy of a run at its training lengths, as the end of a training shows it."""

from __future__ import annotations

import torch

from sdssm.devices import resolve_device
from sdssm.errors import SdssmError
from sdssm.evaluation.sampled_accuracy import SampledAccuracy, choose_lengths
from sdssm.evaluation.sampled_measurement import measure_sampled
from sdssm.runs import RunFolder, load
from sdssm.tasks.evaluation_strings import EvaluationStrings

#: The strings at each length, and their seed: those of `evaluate`.
STRINGS, SEED = 512, 1


def measure_at_training_lengths(run: RunFolder, device: str | torch.device = "auto") -> SampledAccuracy | None:
    """Measure the balanced accuracy of a run at a few of its training lengths.

    The accuracy that a training shows is on its own strings, on which a constant answer may be nearly always right.
    Nothing is written. None if it cannot be measured: the run has no weights, its code is not imported, or its strings
    start in random states.
    """
    try:
        model, task = load(run, device=resolve_device(device)), run.config.load_task()
        if model.settings.state_embedding is not None:
            return None
        lengths = choose_lengths(range(1, run.config.train_length + 1))
        strings = EvaluationStrings(task, STRINGS, SEED, model.device)
        return measure_sampled(model, strings, "balanced", lengths) if lengths else None
    except SdssmError:
        return None
