"""ONNX models give the predictions of Python, for strings of every length.

`tests/laws/test_onnx.py` compares every model of the catalogue.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import sdssm
from sdssm.errors import ModelError
from sdssm.exporting.onnx_check import compare_logits, python_logits
from sdssm.exporting.step_module import make_step_module
from sdssm.models import TokenModel, wrap_module
from tests.exporting.onnx_sessions import OnnxSessions
from tests.laws.test_models import C, V, build

onnx = pytest.importorskip("onnx", reason="exports to ONNX")
pytest.importorskip("onnxscript", reason="exports to ONNX")
pytest.importorskip("onnxruntime", reason="runs ONNX models")
pytestmark = pytest.mark.usefixtures("one_thread")


def draw(rows: int, length: int, n_symbols: int = V, seed: int = 0) -> Tensor:
    return torch.randint(n_symbols, (rows, length), generator=torch.Generator().manual_seed(seed))


def train_parity(folder: Path) -> TokenModel:
    """An SD-SSM that has learned parity, whose logits are far apart."""
    settings = {"state": 32, "batch": 32, "train_length": 6, "lr": 0.01}
    runs = sdssm.train("parity", out=folder, steps=400, settings=settings, device="cpu")
    return sdssm.load(runs[0].path)


def accuracies(logits: NDArray[Any], labels: NDArray[Any]) -> list[float]:
    """The accuracy in percent at each length, from logits (B, L, C)."""
    return [100 * float(share) for share in (logits.argmax(-1) == labels).mean(0)]


def assert_same_labels_of_1000_strings(model: TokenModel, exported: OnnxSessions, length: int) -> None:
    """Every prefix of every string has the label of Python, and the accuracy is equal at each length."""
    task = model.task
    assert task is not None
    tokens = draw(1_000, length, task.n_symbols)
    expected, labels = python_logits(model, tokens), task.labels(tokens).numpy()
    for logits in (exported.read_strings(tokens), exported.read_symbols(tokens)):
        compare_logits(task.name, logits, expected, "1,000 strings")
        np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))
        assert accuracies(logits, labels) == accuracies(expected, labels)
    assert min(accuracies(expected, labels)) > 99 > task.chance_accuracy


def test_a_trained_model_labels_1000_strings_as_python_does(tmp_path: Path) -> None:
    model = train_parity(tmp_path / "runs")
    assert_same_labels_of_1000_strings(model, OnnxSessions(model, tmp_path / "onnx"), 200)


def test_a_compiled_model_is_exact_in_onnx_and_its_files_name_no_path_of_this_machine(tmp_path: Path) -> None:
    model, folder = sdssm.compile("a5"), tmp_path / "a5"
    exported = OnnxSessions(model, folder)
    assert_same_labels_of_1000_strings(model, exported, 50)
    tokens = draw(4, 2_000, 2)
    np.testing.assert_array_equal(exported.read_strings(tokens).argmax(-1), sdssm.task("a5").labels(tokens).numpy())
    assert exported.description["task"]["name"] == "a5" and exported.description["checked"]["longest"] == 200
    assert exported.description["symbols"] == list(sdssm.task("a5").machine.symbol_names)
    data = (folder / "model.onnx").read_bytes()
    properties = {entry.key: entry.value for entry in onnx.load_model_from_string(data).metadata_props}
    assert properties["sdssm.task"] == "a5" and float(properties["sdssm.chance"]) == sdssm.task("a5").chance_accuracy
    assert b".py" not in data and b"/sdssm/" not in data
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "model.json", "model.onnx", "step.onnx"]


def test_options_of_the_catalogue_predict_as_in_python(tmp_path: Path) -> None:
    """Two layers have a state each; a convolution answers a query, or outputs, for strings up to its longest."""
    for name, changed in (("rnn", {"layers": 2, "block": "pre-norm"}), ("hyena", {"query": False, "longest": 150})):
        model = build(name, **changed).float()
        exported = OnnxSessions(model, tmp_path / name)
        for tokens in (draw(3, 64), draw(2, 65), draw(2, 149)):
            compare_logits(name, exported.read_strings(tokens), python_logits(model, tokens), "strings")


def test_an_overflowing_sd_ssm_is_rescaled_as_in_the_evaluation(tmp_path: Path) -> None:
    model = build("sd-ssm", rescale=False, input_matrix=True, column_norm=3.0, initial_state="zero").float()
    long = draw(2, 3_000)
    with torch.no_grad():
        (state,) = model.advance_state(long) or ()
    assert not torch.isfinite(state).all()
    exported = OnnxSessions(model, tmp_path / "growing")
    assert np.isfinite(exported.read_strings(long)).all()
    tokens = draw(4, 30)
    compare_logits("growing", exported.read_strings(tokens), python_logits(model, tokens), "strings")


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
    exported = OnnxSessions(model, tmp_path / "module")
    for tokens in (draw(1, 1), draw(5, 2), draw(3, 120)):
        compare_logits("GRU", exported.read_strings(tokens), python_logits(model, tokens), "strings")
    assert exported.has_step == (kind is SteppingGru)
    assert exported.description["files"]["model.onnx"]["outputs"]["logits"]["shape"] == ["batch", "length", C]


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


class LoopingParity(nn.Module):
    """Reads symbol by symbol, in a loop of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(2))

    def forward(self, tokens: Tensor) -> Tensor:
        state, outputs = torch.zeros(len(tokens), dtype=torch.long), []
        for position in range(tokens.shape[1]):
            state = (state + tokens[:, position]) % 2
            outputs.append(self.weight[state])
        return torch.stack(outputs, 1)


class GrowingState(LoopingParity):
    """Its state is the string that it has read."""

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        read = tokens if state is None else torch.cat([state, tokens], 1)
        return self.forward(read)[:, -tokens.shape[1] :], read


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (LoopingParity, r"its graph is that of one length, .* add advance\(tokens, state\)"),
        (
            GrowingState,
            r"the state of GrowingState has the shapes \[\(1,\)\] after one symbol, \[\(2,\)\] after two",
        ),
    ],
)
def test_what_cannot_be_exported_says_why(kind: type[nn.Module], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        sdssm.export(wrap_module(kind(), 2, 2), tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_a_step_of_an_earlier_model_is_removed(tmp_path: Path) -> None:
    sdssm.export(sdssm.compile("parity"), tmp_path / "folder")
    assert (tmp_path / "folder" / "step.onnx").exists()
    sdssm.export(wrap_module(nn.Embedding(2, 2), 2, 2), tmp_path / "folder", overwrite=True)
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"model.onnx", "model.json", "README.md"}


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
