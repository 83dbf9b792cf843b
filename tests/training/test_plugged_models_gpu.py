"""Training someone else's modules on a GPU: CUDA graphs where they can be captured, eagerly where not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.models import registry
from tests.training import plugged_modules as modules
from tests.training.test_plugged_models import SMALL, CopyAt, Messages, weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


class Synchronizes(modules.LinearRnn):
    """Waits for the device in a way that only a capture notices."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        if tokens.is_cuda:
            torch.cuda.synchronize()
        return logits


class HostValue(modules.LinearRnn):
    """Computes a factor on the host, which a graph would not compute again."""

    calls = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += self.training
        return super().forward(tokens) * (1 + 0.1 * self.calls)


def train(out: Path, model: Any, device: str = "cuda", **options: Any) -> tuple[Any, str]:
    """Train and return the runs, and the line that says how the model is executed."""
    progress = options.pop("progress", Messages())
    values = {**SMALL, **options.pop("settings", {})}
    runs = sdssm.train(
        "parity",
        model=model,
        out=out,
        settings=values,
        device=device,
        progress=progress,
        **{"steps": 30, "seeds": 1, **options},
    )
    execution = next(event["execution"] for event in runs[0].events() if "execution" in event)
    return runs, execution.partition(": ")[2]


@pytest.mark.parametrize(
    ("module", "seeds", "execution"),
    [
        (modules.LinearRnn, 1, "1 model, CUDA graph"),
        (modules.LinearRnn, 3, "3 models side by side, CUDA graph"),
        (modules.Gru, 2, "2 models one after the other, "),  # whether it is captured depends on the version of cuDNN
        (modules.Branches, 2, "2 models one after the other, CUDA graph: with vmap its loss or gradient would differ"),
        (modules.Waits, 1, "1 model, eager: it waits for the GPU in each step, as .item() does"),
        (Synchronizes, 1, "1 model, eager: a CUDA graph cannot capture it"),
        (HostValue, 1, "1 model, eager: its loss depends on earlier steps; resuming will not be exact: "),
        (modules.Dropout, 2, "2 models one after the other, eager: it draws random numbers"),
        (modules.BatchNorm, 1, "1 model, eager: it changes its buffers in training"),
        (modules.WholeStrings, 1, "1 model, eager: it reads whole strings, of another length in each step"),
        (modules.Unusual, 1, "1 model, eager: its parameters are float64"),
    ],
)
def test_how_a_module_is_executed(tmp_path: Path, module: type, seeds: int, execution: str) -> None:
    torch.cuda.manual_seed(5)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(5)
    runs, line = train(tmp_path / "gpu", module, seeds=seeds)
    assert line.startswith(execution)
    assert [run.status for run in runs] == ["finished"] * seeds
    # A capture that failed leaves neither the random numbers nor the memory of the device broken.
    assert torch.equal(torch.rand(3, device="cuda"), expected)
    torch.cuda.empty_cache()
    if module not in (modules.Dropout, HostValue):  # those draw other numbers on a GPU, or count the calls
        train(tmp_path / "cpu", module, "cpu", seeds=seeds)
        atol = 0.05 if module is modules.Gru else 5e-3  # cuDNN multiplies in TF32
        for run in runs:
            other = weights(tmp_path / "cpu" / run.path.name)
            for name, value in weights(run.path).items():
                torch.testing.assert_close(value, other[name], rtol=0.02, atol=atol, msg=name)
    if module is Synchronizes:
        assert train(tmp_path / "next", modules.LinearRnn)[1] == "1 model, CUDA graph"


def test_strings_of_one_length_are_captured(tmp_path: Path) -> None:
    settings = {"curriculum": "fixed"}
    assert train(tmp_path / "1", modules.WholeStrings, settings=settings)[1] == "1 model, CUDA graph"
    line = train(tmp_path / "2", modules.WholeStrings, seeds=2, settings=settings)[1]
    assert line == "2 models side by side, CUDA graph"


def test_a_large_batch_is_tried_as_it_is_trained(tmp_path: Path) -> None:
    """The gradient of an embedding of more than 3,072 symbols uses other kernels."""
    runs, line = train(tmp_path, modules.LinearRnn, seeds=2, settings={"batch": 2048})
    assert line.startswith("2 models side by side") and [run.status for run in runs] == ["finished"] * 2


@pytest.mark.parametrize("module", [modules.LinearRnn, modules.Dropout])
def test_a_killed_training_resumes(tmp_path: Path, module: type) -> None:
    settings = {"checkpoint_every": 10}
    whole = train(tmp_path / "whole", module, seeds=2, settings=settings)[0]
    progress = CopyAt(10, tmp_path / "out", tmp_path / "copy")
    train(tmp_path / "out", module, seeds=2, settings=settings, progress=progress)
    resumed = sdssm.resume(tmp_path / "copy", device="cuda")
    for run, same in zip(whole, resumed, strict=True):
        assert same.status == "finished"
        other = weights(same.path)
        for name, value in weights(run.path).items():
            torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-4, msg=name)


def test_a_training_that_diverges(tmp_path: Path) -> None:
    runs, _ = train(tmp_path, modules.LinearRnn, settings={"lr": 1e15, "clip": None, "warmup": 0.0})
    assert runs[0].status == "diverged"


class GpuOnly(modules.LinearRnn):
    """Draws a parameter on the GPU if it can, and runs there only."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__(n_symbols, n_classes)
        self.gain = nn.Parameter(torch.rand(n_classes, device="cuda").cpu())

    def forward(self, tokens: Tensor) -> Tensor:
        if not tokens.is_cuda:
            raise RuntimeError("expected a CUDA tensor")
        return super().forward(tokens) * self.gain


def test_a_module_for_gpus_only_is_trained_and_evaluated(tmp_path: Path) -> None:
    torch.rand(1, device="cuda")  # random numbers of a GPU start from the seed once it is in use
    first, second = (train(tmp_path / name, GpuOnly)[0] for name in ("first", "second"))
    assert first[0].status == "finished"
    assert len(sdssm.evaluate(first, max_length=4, strings=8, device="cuda").runs[0].accuracy) == 4
    other = weights(second[0].path)
    for name, value in weights(first[0].path).items():
        torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-4, msg=name)


def test_parameters_that_are_flattened_in_each_step_are_trained(tmp_path: Path) -> None:
    """`flatten_parameters` moves the weights of a GRU into one piece of memory."""

    class Flattened(modules.Gru):
        def forward(self, tokens: Tensor) -> Tensor:
            self.gru.flatten_parameters()
            return super().forward(tokens)

    flattened, plain = (train(tmp_path / model.__name__, model)[0] for model in (Flattened, modules.Gru))
    other = weights(plain[0].path)
    for name, value in weights(flattened[0].path).items():
        torch.testing.assert_close(value, other[name], rtol=1e-2, atol=1e-2, msg=name)
