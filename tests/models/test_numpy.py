"""The weight files hold what docs/how-to/numpy.md says: logits rebuilt in numpy equal those of the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from sdssm.models import Classifier
from sdssm.runs.schema import resolve_settings
from sdssm.tasks import get_task


def rebuild_logits(folder: Path, string: list[int], *, stored: str = "P - I") -> np.ndarray:
    """The logits after a string, from the two files of a model."""
    settings = json.loads((folder / "config.json").read_text())["model"]
    w = {name: value.astype(np.float64) for name, value in load_file(folder / "model.safetensors").items()}
    query = settings["query"]
    inputs = np.eye(w["selection.weight"].shape[1])
    if settings["embedding"] is not None:
        inputs = w["embedding"] * settings["embedding_scale"]
    logits = (inputs @ w["selection.weight"].T + w["selection.bias"]) / w["temperature"]
    weights = np.exp(logits - logits.max(1, keepdims=True))
    A = np.einsum("vk,kij->vij", weights / weights.sum(1, keepdims=True), w["dictionary"])
    if "column_norm" in w:
        A = A / (np.abs(A) ** w["column_norm"]).sum(1, keepdims=True) ** (1 / w["column_norm"])
    x = w["initial_state"] if "initial_state" in w else np.zeros(A.shape[1])
    for symbol in [*string, len(inputs) - 1] if query else string:
        x = A[symbol] @ x
        if "input_matrix" in w:
            x = x + w["input_matrix"] @ inputs[symbol]
        if settings["mixer"]["rescale"]:
            x = x / np.linalg.norm(x)
    h = x + w["skip"] @ inputs[symbol] if "skip" in w else x
    if settings["norm"] != "none":
        h = (h - h.mean()) / np.sqrt(h.var() + 1e-5)
    if settings["norm"] == "affine":
        h = h * w["norm.weight"] + w["norm.bias"]
    W = w["readout.weight"]
    if settings["readout"] == "cosine":
        if "readout.projection" in w:
            h = h + h @ w["readout.projection"] if stored == "P - I" else h @ w["readout.projection"]
        logits = w["readout.scale"] * (W @ h) / np.linalg.norm(W, axis=1) / np.linalg.norm(h)
        if "readout.centre_labels" in w:
            labels = w["readout.centre_labels"]
            logits = np.array([logits[labels == label].max() for label in range(int(labels.max()) + 1)])
        return np.asarray(logits)
    if settings["readout"] == "mlp":
        h = np.maximum(w["readout.hidden.weight"] @ h + w["readout.hidden.bias"], 0)
    return np.asarray(W @ h + w.get("readout.bias", 0))


def save_model(folder: Path, preset: str, task_name: str, changed: dict[str, Any]) -> Classifier:
    task = get_task(task_name)
    settings = resolve_settings("sd-ssm", preset, task_name, {"state": 12, "dictionary": 3, **changed}).model
    model = Classifier(settings, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():  # nothing is left at zero or one
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    if model.readout.centre_labels is not None:
        model.readout.assign_centres(torch.from_numpy(task.minimal.labels))
    model.save(folder)
    return model


@pytest.mark.parametrize(
    ("preset", "task_name", "changed"),
    [
        ("scale-free", "a5", {}),
        ("scale-free", "cycle", {"projection": False, "temperature": 2.0, "column_norm": None}),
        ("scale-free", "cycle", {"embedding": 5, "embedding_scale": 3.0, "query": True, "skip": True}),
        ("scale-free", "cycle", {"query": True, "norm": "affine", "readout": "mlp", "attraction": 0.0}),
        ("paper", "parity", {}),
        ("paper", "arithmetic", {}),
        ("readme", "a5", {}),
        ("states", "tomita4", {"centres": 6}),
    ],
)
def test_logits_rebuilt_from_the_files_are_those_of_the_model(
    preset: str, task_name: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    model = save_model(tmp_path, preset, task_name, changed)
    for seed, length in enumerate((1, 2, 7, 40)):
        tokens = torch.randint(model.n_symbols, (length,), generator=torch.Generator().manual_seed(seed))
        expected = model.double()(tokens)[-1].detach().numpy()
        actual = rebuild_logits(tmp_path, tokens.tolist())
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_the_stored_projection_is_not_p_itself(tmp_path: Path) -> None:
    model = save_model(tmp_path, "scale-free", "a5", {})
    wrong = rebuild_logits(tmp_path, [0, 1, 1], stored="P")
    assert np.abs(wrong - model(torch.tensor([0, 1, 1]))[-1].detach().numpy()).max() > 0.1
    P = model.readout.projection_matrix()
    assert P is not None and model.readout.projection is not None
    torch.testing.assert_close(P, torch.eye(12) + model.readout.projection)
