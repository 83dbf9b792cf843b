"""A finished run with every kind of file, trained once for all tests that damage copies of it."""

from __future__ import annotations

from pathlib import Path

import sdssm
from sdssm.exact import store_result
from sdssm.runs import RunFolder

#: One file of each kind.
KINDS = {
    "config": "config.json",
    "status": "status.json",
    "events": "events.jsonl",
    "checkpoint": "checkpoints/step-000000020.safetensors",
    "model": "model.safetensors",
    "evaluation": "evaluation.json",
    "states": "evaluation-states.safetensors",
    "certificate": "certificate.json",
    "extraction": "extraction.json",
    "horizon": "horizon.json",
}


def make_run(path: Path) -> RunFolder:
    """Train a tiny model, and store every kind of result."""
    settings = {"state": 8, "batch": 16, "log_every": 5}
    (run,) = sdssm.train("parity", steps=20, out=path, settings=settings, device="cpu")
    sdssm.evaluate(run, max_length=30, strings=32, device="cpu")
    exact = sdssm.compile("parity")  # an untrained model takes minutes to extract
    store_result(run, sdssm.certify(exact))
    store_result(run, sdssm.extract(exact))
    store_result(run, sdssm.horizon(exact, max_length=50, strings=16))
    assert all((run.path / name).exists() for name in KINDS.values())
    return run
