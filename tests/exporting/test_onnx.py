"""ONNX models give the predictions of Python, for strings of every length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.errors import ModelError
from sdssm.exporting.onnx_check import compare_logits, open_session, python_logits
from sdssm.exporting.step_module import make_step_module
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models import Classifier, TokenModel, wrap_module
from tests.laws.test_models import C, V, build

pytestmark = pytest.mark.usefixtures("one_thread")


def export_onnx(model: Any, folder: Path, **options: Any) -> tuple[Any, Any | None, dict[str, Any]]:
    """Sessions of whole strings and, if there is one, of a step; and the description."""
    sdssm.export(model, folder, **options)
    step = folder / "step.onnx"
    strings, steps = (
        open_session(onnxruntime, path.read_bytes()) if path.exists() else None
        for path in (folder / "model.onnx", step)
    )
    return strings, steps, json.loads((folder / "model.json").read_text())


def assert_same_predictions(session: Any, model: TokenModel, tokens: Tensor) -> None:
    """Logits and labels of every prefix, or of the whole strings, are those of Python."""
    (actual,) = session.run(["logits"], {"tokens": tokens.numpy()})
    expected = python_logits(model, tokens)
    compare_logits(model.name, actual, expected, "the strings")
    first, second = np.sort(expected, -1)[..., -2:].transpose(-1, *range(expected.ndim - 1))[::-1]
    clear = first - second > 1e-4  # a tie up to rounding may be broken either way
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(actual.argmax(-1)[clear], expected.argmax(-1)[clear])


def step_through(session: Any, description: dict[str, Any], tokens: Tensor) -> np.ndarray:
    """The logits after every symbol, from one step at a time, with the initial state of the description."""
    initial, rows = description["files"]["step.onnx"]["initial_state"], len(tokens)
    state = {name: np.repeat(np.asarray(value, np.float32)[None], rows, 0) for name, value in initial.items()}
    logits = []
    for token in tokens.numpy().T:
        row, *after = session.run(None, {"token": token, **state})
        state = dict(zip(state, after, strict=True))
        logits.append(row)
    return np.stack(logits, 1)


def draw(rows: int, length: int, n_symbols: int = V, seed: int = 0) -> Tensor:
    return torch.randint(n_symbols, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_an_sd_ssm_predicts_1000_strings_as_python_does(tmp_path: Path) -> None:
    task = sdssm.task("a5")
    settings = sdssm.ModelSettings(mixer=SelectiveDenseSettings(state=16))
    model = Classifier(settings, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(0)).eval()
    model.task = task
    strings, step, description = export_onnx(model, tmp_path / "a5")
    batches = [(2 * length % 11 + 1, length) for length in range(1, 201)]  # 1 to 11 strings of each length
    assert sum(rows for rows, _ in batches) >= 1_000
    for rows, length in batches:
        assert_same_predictions(strings, model, draw(rows, length, 2, seed=length))
    tokens = draw(7, 60, 2)
    compare_logits("a step", step_through(step, description, tokens), python_logits(model, tokens), "strings")
    assert description["task"]["name"] == "a5" and description["symbols"] == list(task.machine.symbol_names)
    assert description["checked"]["longest"] == 200


def test_a_compiled_model_is_exact_in_onnx_and_its_files_name_no_path_of_this_machine(tmp_path: Path) -> None:
    model, folder = sdssm.compile("d4"), tmp_path / "d4"
    strings, _, _ = export_onnx(model, folder)
    tokens = draw(8, 2_000, 2)
    (logits,) = strings.run(["logits"], {"tokens": tokens.numpy()})
    np.testing.assert_array_equal(logits.argmax(-1), sdssm.task("d4").labels(tokens).numpy())
    data = (folder / "model.onnx").read_bytes()
    properties = {entry.key: entry.value for entry in onnx.load_model_from_string(data).metadata_props}
    assert (properties["sdssm.task"], properties["sdssm.chance"]) == ("d4", "12.5")
    assert b".py" not in data and b"/sdssm/" not in data
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "model.json", "model.onnx", "step.onnx"]


#: One model of each kind: complex states, a first step of its own, no state, no prefixes.
KINDS = [
    ("s4", {"query": False}),
    ("slice", {}),
    ("hyena", {"query": True, "longest": 150}),
    ("transformer", {"layers": 1}),
]


@pytest.mark.parametrize(("name", "changed"), KINDS, ids=[name for name, _ in KINDS])
def test_models_of_all_kinds_predict_as_in_python(name: str, changed: dict[str, Any], tmp_path: Path) -> None:
    model = build(name, **changed).float()
    strings, step, description = export_onnx(model, tmp_path / name)
    for rows, length in ((1, 1), (5, 2), (3, 64), (2, 65), (2, 149)):
        assert_same_predictions(strings, model, draw(rows, length, seed=length))
    assert (step is not None) == model.is_recurrent
    shape = description["files"]["model.onnx"]["outputs"]["logits"]["shape"]
    assert shape == (["batch", C] if name == "transformer" else ["batch", "length", C])
    if step is not None:
        tokens = draw(3, 20)
        compare_logits(name, step_through(step, description, tokens), python_logits(model, tokens), "strings")


def test_an_overflowing_sd_ssm_is_rescaled_as_in_the_evaluation(tmp_path: Path) -> None:
    model = build("sd-ssm", rescale=False, input_matrix=True, column_norm=3.0, initial_state="zero").float()
    long = draw(2, 3_000)
    with torch.no_grad():
        (state,) = model.advance_state(long) or ()
    assert not torch.isfinite(state).all()
    strings, _, _ = export_onnx(model, tmp_path / "growing")
    (logits,) = strings.run(["logits"], {"tokens": long.numpy()})
    assert np.isfinite(logits).all()
    assert_same_predictions(strings, model, draw(4, 30))


class GruModule(nn.Module):
    """torch's own GRU; with `advance` also piece by piece."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, 8)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.readout = nn.Linear(8, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.readout(self.gru(self.embedding(tokens))[0])
        return logits


class SteppingGru(GruModule):
    """The same with a state (B, 8)."""

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs, after = self.gru(self.embedding(tokens), None if state is None else state[None])
        return self.readout(outputs), after[0]


@pytest.mark.parametrize("kind", [GruModule, SteppingGru])
def test_modules_of_others_predict_as_in_python(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = wrap_module(kind(V, C), V, C).eval()
    strings, step, description = export_onnx(model, tmp_path / "module")
    for rows, length in ((1, 1), (5, 2), (3, 120)):
        assert_same_predictions(strings, model, draw(rows, length, seed=length))
    assert (step is not None) == (kind is SteppingGru)
    assert description["files"]["model.onnx"]["outputs"]["logits"]["shape"] == ["batch", "length", C]


class Unsupported(nn.Module):
    """Uses an operator that ONNX does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(V, C)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = torch.special.bessel_j0(self.table(tokens))
        return logits


def test_an_operator_that_onnx_lacks_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"ONNX has no operator for torch's \S*bessel_j0"):
        sdssm.export(wrap_module(Unsupported(), V, C), tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_wrong_logits_are_found() -> None:
    expected = np.array([[1.0, 2.0], [np.nan, 1.0]])
    assert compare_logits("m", expected + 1e-6, expected, "2 strings") < 1e-5
    with pytest.raises(ModelError, match="logits of 2 strings differ by 0.1"):
        compare_logits("m", expected + 0.1, expected, "2 strings")
    with pytest.raises(ModelError, match="returns shape"):
        compare_logits("m", expected[:, :1], expected, "2 strings")


def test_a_model_that_starts_from_a_given_state_is_refused() -> None:
    model = build("rnn", initial_state="given")
    with pytest.raises(ModelError, match="starts from a state that is given"):
        make_step_module(model)
