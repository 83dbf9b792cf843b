"""Models for the browser: which can run there, and what is refused in words. `tests/browser` runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sdssm.automata import Machine
from sdssm.errors import ModelError
from sdssm.models import Classifier
from sdssm.models.settings import ModelSettings, default_settings
from sdssm.report.page.player_data import make_player_data
from sdssm.report.page.player_models import make_player_model, why_not_playable
from sdssm.report.page.weight_files import read_tensors
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import get_task


def save_weights(settings: ModelSettings, folder: Path) -> dict[str, np.ndarray]:
    """Return the tensors of an untrained model of parity."""
    Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0)).save(folder)
    return read_tensors(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("s4d", {}, "this is s4d"),
        ("rnn", {"layers": 2}, "one layer, and this has 2"),
        ("rnn", {"block": "pre-norm"}, "the block is pre-norm"),
        ("sd-ssm", {"block": "last-bare"}, "the block is last-bare"),
    ],
)
def test_other_models_are_refused_with_a_reason(name: str, changes: dict[str, Any], reason: str) -> None:
    settings = default_settings(name).with_parts({"model": changes})
    assert reason in (why_not_playable(settings) or "")
    with pytest.raises(ModelError, match=reason):
        make_player_model(settings, {}, 2, 2)


@pytest.mark.parametrize("name", ["sd-ssm", "rnn", "lstm", "complex-diagonal"])
def test_tensors_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    settings = default_settings(name)
    assert isinstance(settings, ModelSettings)
    weights = save_weights(settings, tmp_path / "model")
    assert make_player_model(settings, weights, 2, 2)["kind"] == name
    for tensor in weights:
        if weights[tensor].ndim == 0:
            continue
        with pytest.raises(ModelError, match="not fit|no tensor"):
            make_player_model(settings, {**weights, tensor: weights[tensor][..., :-1]}, 2, 2)
        with pytest.raises(ModelError, match="no tensor"):
            make_player_model(settings, {key: value for key, value in weights.items() if key != tensor}, 2, 2)


def test_the_extracted_machine_is_the_snapped_variant(tmp_path: Path) -> None:
    task = get_task("parity")
    config = create_config(task, 0, resolve_settings("sd-ssm", "scale-free", task), "scale-free")
    assert isinstance(config.model, ModelSettings)
    weights = save_weights(config.model, tmp_path / "model")
    data = make_player_data(config, weights, extracted=task.machine)
    assert [variant["name"] for variant in data["variants"]] == ["trained", "snapped"]
    assert data["variants"][1]["model"]["tensors"]["table"]["shape"] == [2, 2]
    with pytest.raises(ModelError, match="3 symbols"):
        make_player_data(config, weights, extracted=Machine(table=[[0, 0, 0]]))
