"""A run config for tests of run folders."""

from __future__ import annotations

from sdssm.runs.schema import RunConfig, Settings, create_config
from sdssm.tasks import get_task


def make_config(seed: int = 0, name: str = "parity") -> RunConfig:
    return create_config(get_task(name), seed, Settings().replace_values({"steps": 100}), "scale-free")
