"""Plain arrays: the npz and JSON formats hold the weights, the settings, the task and what is known of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sdssm
from sdssm.errors import ModelError, OutputError, RunError, UnknownNameError
from sdssm.models.names import tensors_for_file
from sdssm.settings import settings_to_dict
from tests.laws.test_models import build


def predict(arrays: Any, string: list[int]) -> int:
    """The runtime of docs/how-to/numpy.md, from an .npz file alone."""
    settings, x, W = json.loads(str(arrays["settings"])), arrays["initial_state"], arrays["readout.weight"]
    for symbol in string:
        x = arrays["symbol_matrices"][symbol] @ x
        x = x / np.linalg.norm(x) if settings["mixer"]["rescale"] else x
    h = (x - x.mean()) / np.sqrt(x.var() + 1e-5) if settings["norm"] == "plain" else x
    if settings["readout"] == "cosine":
        W = W / np.linalg.norm(W, axis=1, keepdims=True)
        h = h + h @ arrays["readout.projection"]
    return int((W @ h).argmax())


def test_numpy_alone_predicts_as_the_model(tmp_path: Path) -> None:
    model = sdssm.Classifier(sdssm.ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0)).eval()
    model.task = sdssm.task("a5")
    sdssm.export(model, tmp_path / "a5.npz", format="npz")
    arrays = np.load(tmp_path / "a5.npz", allow_pickle=False)
    strings = torch.randint(2, (40, 30), generator=torch.Generator().manual_seed(0))
    assert [predict(arrays, string) for string in strings.tolist()] == model(strings)[:, -1].argmax(-1).tolist()
    description = json.loads(str(arrays["description"]))
    assert description["symbols"] == list(model.task.machine.symbol_names)
    assert description["settings"] == settings_to_dict(model.settings)


@pytest.mark.parametrize("name", ["sd-ssm", "lstm", "s4d"])
def test_both_formats_hold_every_weight(name: str, tmp_path: Path) -> None:
    model = build(name).float()
    sdssm.export(model, tmp_path / "model.npz", format="npz")
    sdssm.export(model, tmp_path / "model.json", format="json")
    arrays = np.load(tmp_path / "model.npz", allow_pickle=False)
    values = json.loads((tmp_path / "model.json").read_text())
    for key, tensor in tensors_for_file(model).items():
        stored = values["tensors"][key]
        np.testing.assert_array_equal(arrays[key], tensor.detach().numpy())
        np.testing.assert_array_equal(np.array(stored["values"], stored["dtype"]), arrays[key])
        assert stored["shape"] == list(tensor.shape)


def test_json_has_the_machine_of_the_task(tmp_path: Path) -> None:
    sdssm.export(sdssm.compile("regex:(ab)*"), tmp_path / "model.json", format="json")
    values = json.loads((tmp_path / "model.json").read_text())
    machine = values["task"]["machine"]
    state = machine["start"]
    for symbol in "abab":
        state = machine["table"][state][values["symbols"].index(symbol)]
    assert machine["outputs"][state] == 1
    assert (values["task"]["chance"], values["evaluation"], values["certificate"]) == (50.0, None, None)


def test_the_query_has_its_own_matrix(tmp_path: Path) -> None:
    model = build("sd-ssm", query=True).float()
    sdssm.export(model, tmp_path / "model.npz", format="npz")
    arrays = np.load(tmp_path / "model.npz")
    assert arrays["symbol_matrices"].shape == (3, 8, 8) and arrays["query_matrix"].shape == (8, 8)
    assert not any(np.allclose(arrays["query_matrix"], matrix) for matrix in arrays["symbol_matrices"])


def test_accuracy_and_certificate_of_a_folder_are_kept_with_the_chance_level(tmp_path: Path) -> None:
    folder = tmp_path / "exact"
    sdssm.snap(sdssm.compile("parity")).save(folder)
    (folder / "evaluation.json").write_text(json.dumps({"mean": 99.5, "max_length": 500, "accuracy": [100.0] * 500}))
    exported = sdssm.export(folder, format="json")
    assert exported.files == (folder / "export" / "model.json",)
    values = json.loads(exported.files[0].read_text())
    assert values["evaluation"] == {"mean": 99.5, "max_length": 500, "chance": 50.0}
    assert values["certificate"]["horizon"] is None and values["certificate"]["exact"]
    model = sdssm.load(folder)
    with torch.no_grad():
        next(model.parameters()).add_(1)  # what was measured and proved is no longer true
    sdssm.export(model, tmp_path / "changed.json", format="json")
    changed = json.loads((tmp_path / "changed.json").read_text())
    assert (changed["evaluation"], changed["certificate"]) == (None, None)


def test_errors_say_what_to_do_and_write_nothing(tmp_path: Path) -> None:
    model, target = sdssm.compile("parity"), tmp_path / "model.json"
    with pytest.raises(UnknownNameError, match="there is no format 'nzp'; did you mean 'npz'?"):
        sdssm.export(model, target, format="nzp")
    with pytest.raises(ModelError, match="has 2 symbols and 2 classes, but a5 has 2 and 60"):
        sdssm.export(model, target, format="json", task="a5")
    with pytest.raises(ModelError, match="pass task="):
        sdssm.export(nn.Embedding(2, 2), target, format="json")
    with pytest.raises(OutputError, match="pass a path"):
        sdssm.export(model, format="json")
    with pytest.raises(OutputError, match="is a folder; give a file"):
        sdssm.export(model, tmp_path, format="json")
    with pytest.raises(RunError):
        sdssm.export(tmp_path / "nowhere", target, format="json")
    broken = sdssm.compile("parity")
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    with pytest.raises(ModelError, match="is not finite"):
        sdssm.export(broken, target, format="json")
    assert not list(tmp_path.iterdir())
    sdssm.export(nn.Embedding(2, 2), target, format="json", task="parity")
    before = target.read_bytes()
    with pytest.raises(OutputError, match="model.json exists; pass overwrite=True"):
        sdssm.export(model, target, format="json")
    assert target.read_bytes() == before
    sdssm.export(model, target, format="json", overwrite=True)
    assert target.read_bytes() != before and [path.name for path in tmp_path.iterdir()] == ["model.json"]
