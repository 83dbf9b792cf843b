"""Run folders to make pages from: small ones that were trained, and full ones that were not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

import sdssm
from sdssm.automata import to_json
from sdssm.exact import store_result
from sdssm.models import Classifier
from sdssm.runs import RunFolder
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import Task, get_task

#: A small and quick SD-SSM.
TINY = {"state": 8, "dictionary": 3, "batch": 8, "train_length": 8}


def train_samples(folder: Path) -> list[RunFolder]:
    """Train and evaluate small models below a folder, two seeds of SD-SSM and an RNN, and examine the first."""
    sd_ssm = sdssm.train(
        "parity", seeds=2, steps=60, settings=TINY, out=folder / "parity", device="cpu", progress=False
    )
    settings = {"batch": 8, "train_length": 8}
    rnn = sdssm.train(
        "parity", model="rnn", steps=20, settings=settings, out=folder / "rnn", device="cpu", progress=False
    )
    runs = [*sd_ssm, *rnn]
    sdssm.evaluate(runs, max_length=40, strings=32, device="cpu")
    store_result(runs[0], sdssm.certify(runs[0]))
    store_result(runs[0], sdssm.extract(runs[0]))
    store_result(runs[0], sdssm.horizon(runs[0], max_length=64))
    return runs


def write_run(
    folder: Path,
    task: Task | str = "parity",
    *,
    seed: int = 0,
    settings: Mapping[str, Any] = TINY,
    max_length: int = 40,
    events: int = 30,
) -> Path:
    """Write a run folder with every file that a page reads, of random weights and random numbers."""
    task = get_task(task)
    random = np.random.default_rng(seed)
    config = create_config(task, seed, resolve_settings("sd-ssm", "scale-free", task, settings), "scale-free")
    run = RunFolder.create(folder, config)
    steps = config.train.steps
    for step in np.linspace(0, steps, events).astype(int).tolist():
        run.log({"step": step, "loss": random.random(), "accuracy": 100 * random.random()})
    model = Classifier(config.model, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(seed))
    run.write_model(model.to_safetensors())
    run.write_progress(steps, seconds=1.5, loss=0.25, accuracy=75.0, device="CPU")
    run.finish("finished")
    own = {"status": "finished", "digest": config.digest}
    results = {
        "evaluation": _evaluation(config.train_length, max_length, random),
        "certificate": {
            "horizon": 12,
            "float_horizon": None,
            "reason": "the bound is too wide",
            "misclassified": {"string": [0, 1], "text": "01", "predicted": 0, "correct": 1},
        },
        "extraction": {
            "machine": json.loads(to_json(task.machine)),
            "faithful": True,
            "equals_task": False,
            "difference": [0, 1, 1],
            "note": "a note",
        },
        "horizon": {
            "longest": 32,
            "max_length": 64,
            "reached": False,
            "predicted": 100,
            "readings": [{"length": n, "accuracy": 100 - n / 10, "spread": n / 100} for n in (16, 32, 64)],
        },
    }
    for name, values in results.items():
        (folder / f"{name}.json").write_text(json.dumps({**values, **own}))
    (folder / "evaluation-states.safetensors").write_bytes(save(_states(task, config.model.mixer.state, random)))
    return folder


def _evaluation(train_length: int, max_length: int, random: np.random.Generator) -> dict[str, Any]:
    accuracy = (100 * random.random(max_length)).round(4).tolist()
    sampled = {"lengths": [10, 20], "accuracy": [60.5, 55.25], "mean": 57.875, "best_constant_mean": 50.0}
    return {
        "strings": 64,
        "train_length": train_length,
        "max_length": max_length,
        "accuracy": accuracy,
        "accuracy_low": accuracy,
        "accuracy_high": accuracy,
        "best_constant": [50.0] * max_length,
        "best_constant_mean": 50.0,
        "chance": 50.0,
        "mean": float(np.mean(accuracy)),
        "mean_within": 50.0,
        "mean_beyond": 51.0,
        "first_below_99": 3,
        "balanced": sampled,
        "covering": sampled,
    }


def _states(task: Task, size: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    shape = (3, 64)
    return {
        "lengths": np.array([10, 40, 80]),
        "states": random.normal(size=(*shape, size)).astype(np.float32),
        "machine_states": random.integers(task.machine.n_states, size=shape),
        "labels": random.integers(task.n_classes, size=shape),
        "predictions": random.integers(task.n_classes, size=shape),
    }


def read_blocks(page: str) -> dict[str, Any]:
    """Return the data of a page by the identifiers of its script elements."""
    found = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', page)
    return {name: json.loads(text) for name, text in found}
