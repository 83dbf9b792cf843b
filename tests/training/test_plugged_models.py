"""Training someone else's modules: how they are executed, exact resuming, unusual parameters, and failures."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.errors import ModelError, RunError, RunWarning
from sdssm.models import registry
from sdssm.models.building import untrained_model
from sdssm.runs import RunFolder
from sdssm.training.progress import SilentProgress
from tests.training import plugged_mixers as mixers
from tests.training import plugged_modules as modules
from tests.training.test_training import is_same_run

SMALL: dict[str, Any] = {"batch": 8, "train_length": 5, "log_every": 5, "lr": 0.01}
#: The module of the models, and so the beginning of their names.
PATH = "tests.training.plugged_modules"


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def train(out: Path, model: Any, **options: Any) -> Any:
    values = {**SMALL, **options.pop("settings", {})}
    task = options.pop("task", "parity")
    return sdssm.train(
        task, model=model, out=out, settings=values, device="cpu", **{"steps": 20, "seeds": 1, **options}
    )


def weights(folder: Path, **options: Any) -> dict[str, Tensor]:
    return dict(sdssm.load(folder, **options).state_dict())


class Messages(SilentProgress):
    """Records the lines that a display would show."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


class CopyAt(SilentProgress):
    """Copies the folders of the runs at a step, as they are if the process is killed there.

    If a step takes more than a second, it is shown before its checkpoint is written: then the next one is taken.
    """

    def __init__(self, step: int, out: Path, to: Path) -> None:
        self.step, self.out, self.to = step, out, to

    def update(self, step: int, *_: Any) -> None:
        has_checkpoint = any(self.out.rglob("checkpoints/*.safetensors"))
        if step >= self.step and has_checkpoint and not self.to.exists():
            shutil.copytree(self.out, self.to)
            for mark in self.to.rglob("owner"):
                mark.unlink()


@pytest.mark.parametrize(
    ("module", "execution"),
    [
        (modules.Gru, "one after the other, eager: nn.GRU does not support vmap"),
        (modules.Encoder, "one after the other, eager: it draws random numbers"),
        (modules.LinearRnn, "side by side, eager"),
        (modules.WholeStrings, "one after the other, eager: it reads whole strings, of another length in each step"),
        (modules.BatchNorm, "one after the other, eager: it changes its buffers in training"),
        (modules.Unusual, "one after the other, eager: its parameters are not all float32"),
        (modules.Waits, "one after the other, eager: vmap does not support it"),
        (modules.Lazy, "one after the other, eager: vmap does not support it"),
        (modules.TooLarge, "one after the other, eager: side by side there is not enough memory"),
        (modules.Branches, "one after the other, eager: with vmap its loss or gradient would differ"),
    ],
)
def test_three_replicas_equal_three_single_trainings(tmp_path: Path, module: type, execution: str) -> None:
    progress = Messages()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    together = train(tmp_path / "together", module, seeds=3, steps=10, progress=progress)
    drawn = random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    assert drawn == (random.random(), np.random.rand(), torch.rand(()).item())  # noqa: NPY002
    line = f"{PATH}:{module.__name__}: 3 models {execution}"
    assert [text.startswith(line) for text in progress.lines] == [True]
    assert together[2].events()[0] == {"step": 0, "execution": progress.lines[0]}
    assert [run.status for run in together] == ["finished"] * 3
    alone = train(tmp_path / "alone", module, seeds=[1], steps=10)[0]
    mine, own = weights(together[1].path), weights(alone.path)
    assert mine.keys() == own.keys() and len(mine) > 0
    for name, value in own.items():
        if "one after" in execution:
            assert torch.equal(mine[name], value), name
        else:
            torch.testing.assert_close(mine[name], value, rtol=1e-4, atol=1e-5)
    evaluation = sdssm.evaluate(together, max_length=6, strings=16, device="cpu")
    assert len(evaluation.runs) == 3 and evaluation.runs[0].chance == 50


@pytest.mark.parametrize("module", [modules.Gru, modules.Dropout, modules.BatchNorm, modules.Unusual])
def test_a_killed_training_resumes_bit_for_bit(tmp_path: Path, module: type) -> None:
    """The best weights of a validation, with the buffers that belong to them, survive as well."""
    settings = {"checkpoint_every": 5, "validate_length": 3, "validate_every": 5}
    train(tmp_path / "whole", module, settings=settings)
    train(tmp_path / "out", module, settings=settings, progress=CopyAt(15, tmp_path / "out", tmp_path / "copy"))
    assert RunFolder.open(tmp_path / "copy/seed-0").step in (5, 10, 15)
    resumed = sdssm.resume(tmp_path / "copy", device="cpu")
    assert resumed[0].status == "finished"
    assert is_same_run(tmp_path / "whole/seed-0", tmp_path / "copy/seed-0")


@pytest.mark.parametrize("module", [modules.Normalised, modules.Moved, modules.NormalisedHalf])
def test_a_module_that_moves_its_parameters_is_trained_as_in_a_plain_loop(tmp_path: Path, module: type) -> None:
    """`parameter.data = ...` in forward: the optimizer and the module must keep the same memory."""
    settings = {"lr": 0.05, "schedule": "constant", "warmup": 0.0}
    run = train(tmp_path / "moved", module, steps=3, settings=settings)[0]
    trained = sdssm.load(run.path)
    before, after = (
        model.module.readout.weight.detach() for model in (untrained_model(trained.settings, 2, 2, seed=0), trained)
    )
    assert not torch.allclose(after, before, atol=0.02)
    if module is modules.Moved:
        plain = sdssm.load(train(tmp_path / "plain", modules.LinearRnn, steps=3, settings=settings)[0].path)
        assert torch.equal(after, plain.module.readout.weight)
    else:  # it had norm 1 in the last step, and moved by the learning rate since
        assert abs(float(after.norm()) - 1) < 0.2 and float(before.norm()) > 2


def test_a_gradient_that_is_not_finite_is_named(tmp_path: Path) -> None:
    progress = Messages()
    runs = train(tmp_path, modules.Infinite, seeds=2, steps=5, progress=progress)
    assert progress.lines[0].endswith("2 models one after the other, eager: its loss or gradient is not finite")
    assert [run.status for run in runs] == ["diverged"] * 2


def test_a_module_that_replaces_a_parameter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="replaces its parameter readout.weight in training, .*; change its values"):
        train(tmp_path / "out", modules.Replaced)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (modules.RunningMean, "the buffer mean changes in training and is not saved; make it persistent"),
        (modules.Counts, "it keeps something between steps that is not saved, such as a counter or a generator; make"),
        (modules.OwnGenerator, "it keeps something between steps that is not saved"),
    ],
)
def test_a_module_that_cannot_be_resumed_exactly_says_so(tmp_path: Path, module: type, reason: str) -> None:
    with pytest.warns(RunWarning, match=f"resuming will not be exact: {reason}"):
        run = train(tmp_path, module, steps=2)[0]
    assert f"resuming will not be exact: {reason}" in run.events()[0]["execution"]


def test_training_keeps_the_warning_filters(tmp_path: Path) -> None:
    before = list(warnings.filters)
    train(tmp_path, modules.Gru, steps=2)
    assert list(warnings.filters) == before


def test_a_module_learns_its_task(tmp_path: Path) -> None:
    """Parity of strings of up to 3 symbols; chance is 50 %."""
    settings = {"train_length": 3, "batch": 32, "lr": 0.03, "width": 8}
    run = train(tmp_path, modules.Gru, steps=150, settings=settings)[0]
    assert run.progress.accuracy is not None and run.progress.accuracy > 90


def test_unusual_parameters_are_trained_and_saved_as_they_are(tmp_path: Path) -> None:
    run = train(tmp_path, modules.Unusual)[0]
    model = sdssm.load(run.path)
    before = untrained_model(model.settings, 2, 2, seed=0).state_dict()
    after = model.state_dict()
    assert "module.rebuilt" not in after
    for name, value in after.items():
        assert value.dtype == before[name].dtype
        is_trained = not name.endswith(("frozen", "kept", "unused"))
        assert torch.equal(value, before[name]) != is_trained, name
    assert model.module.tied.weight is model.module.embedding.weight


def test_parameters_of_low_precision_keep_small_updates(tmp_path: Path) -> None:
    """Updates far below the precision of bfloat16 add up: the checkpoint holds them in float32 or better."""
    run = train(tmp_path, modules.Unusual, settings={"lr": 1e-5, "schedule": "constant", "warmup": 0.0})[0]
    value = run.load_checkpoint().tensors["adam.exact.low"]
    assert value.dtype == torch.float64 and not torch.equal(value, value.bfloat16().double())


def test_modes_are_right_in_training_and_in_validation(tmp_path: Path) -> None:
    seen: set[tuple[bool, bool]] = set()

    class Watched(modules.LinearRnn):
        def forward(self, tokens: Tensor) -> Tensor:
            seen.add((self.training, torch.is_grad_enabled()))
            return super().forward(tokens)

    train(tmp_path, Watched, steps=5, settings={"validate_length": 2})
    assert seen == {(True, True), (False, False)}


def test_evaluation_leaves_a_module_in_its_modes() -> None:
    module = nn.Sequential(nn.Embedding(2, 2), nn.Dropout(0.5), nn.LayerNorm(2)).train()
    module[1].eval()
    sdssm.evaluate(module, task="parity", max_length=3, strings=4, device="cpu")
    assert [part.training for part in module.modules()] == [True, True, False, True]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (modules.Constant, "Constant has no trainable parameters; sdssm.evaluate measures it without training"),
        (modules.Detached, "the logits of .*Detached depend on none of its trainable parameters"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused_before_anything_is_written(
    tmp_path: Path, module: type, message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        train(tmp_path / "out", module)
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_a_module_that_raises_keeps_the_other_groups(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Fails raises ValueError .*: the module is tired; this was step 12") as caught:
        train(
            tmp_path,
            modules.Fails,
            settings={"how": "raise", "checkpoint_every": 5},
            variants={"bad": {}, "good": {"call": 1000}},
        )
    assert "\n" not in str(caught.value)
    bad, good = (RunFolder.open(tmp_path / name / "seed-0") for name in ("bad", "good"))
    assert (bad.status, bad.step) == ("stopped", 10)
    assert good.status == "stopped" and good.step >= 10
    assert sdssm.load(bad.path).name == f"{PATH}:Fails"


def test_a_module_that_returns_nan_diverges(tmp_path: Path) -> None:
    with pytest.warns(sdssm.errors.RunWarning, match="the loss is not finite"):
        runs = train(tmp_path, modules.Fails, seeds=2, settings={"how": "nan", "checkpoint_every": 5})
    assert [run.status for run in runs] == ["diverged"] * 2
    assert all(value.isfinite().all() for value in weights(runs[0].path).values())


def test_resuming_imports_code_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", modules.Gru, steps=10, settings={"checkpoint_every": 5})
    progress = CopyAt(5, tmp_path / "out", tmp_path / "copy")
    train(tmp_path / "out", modules.Gru, steps=10, settings={"checkpoint_every": 5}, progress=progress)
    monkeypatch.setattr(registry, "_registered", {})  # as in another process
    for function in (sdssm.resume, sdssm.load, sdssm.evaluate):
        with pytest.raises(ModelError, match=f"would import {PATH}:Gru; if you trust it, pass trust=True"):
            function(tmp_path / "copy/seed-0")
    shutil.copytree(tmp_path / "copy", tmp_path / "again")
    sdssm.resume(tmp_path / "copy", trust=True, device="cpu")
    assert is_same_run(whole[0].path, tmp_path / "copy/seed-0")
    monkeypatch.setattr(registry, "_registered", {})
    sdssm.resume(tmp_path / "again", model=f"{PATH}:Gru", device="cpu")
    assert is_same_run(whole[0].path, tmp_path / "again/seed-0")


def test_a_module_whose_code_changed_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = CopyAt(5, tmp_path / "out", tmp_path / "copy")
    train(tmp_path / "out", modules.Gru, steps=10, settings={"checkpoint_every": 5}, progress=progress)

    class Wider(modules.Gru):
        def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
            super().__init__(n_symbols, n_classes, width + 1)

    class Longer(modules.Gru):
        def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
            super().__init__(n_symbols, n_classes, width)
            self.gain = nn.Parameter(torch.ones(1))

    for changed, message in ((Wider, "is \\(2, 4\\), but the config says \\(2, 5\\)"), (Longer, "gain .* is missing")):
        for name in ("__module__", "__qualname__"):
            setattr(changed, name, getattr(modules.Gru, name))
        with monkeypatch.context() as patch:
            patch.setattr(modules, "Gru", changed)
            patch.setattr(registry, "_registered", {})
            with pytest.raises(RunError, match=message) as caught:
                sdssm.resume(tmp_path / "copy", trust=True, device="cpu")
            assert "\n" not in str(caught.value)
            with pytest.raises(
                ModelError, match="as it is now, has a parameter .* was its code changed since the training"
            ):
                sdssm.load(tmp_path / "copy/seed-0", trust=True)


@pytest.mark.parametrize(
    ("mixer", "execution"),
    [(mixers.Sum, "side by side, eager"), (mixers.BranchingSum, "one after the other, eager: vmap does not support")],
)
def test_a_mixer_of_ones_own_trains_in_the_classifier(tmp_path: Path, mixer: type, execution: str) -> None:
    """With block dropout, noise and lengths are those of the catalogue's models."""
    progress = Messages()
    settings = {"state": 5, "block": "pre-norm", "block_dropout": 0.1, "checkpoint_every": 5}
    together = train(tmp_path / "together", mixer, seeds=3, settings=settings, progress=progress)
    assert progress.lines[0].startswith(f"{mixer.name}: 3 models {execution}")  # type: ignore[attr-defined]
    alone = train(tmp_path / "alone", mixer, seeds=[2], settings=settings)
    mine = weights(together[2].path)
    for name, value in weights(alone[0].path).items():
        torch.testing.assert_close(mine[name], value, rtol=1e-3, atol=1e-4)
    copy = CopyAt(10, tmp_path / "out", tmp_path / "copy")
    train(tmp_path / "out", mixer, seeds=3, settings=settings, progress=copy)
    sdssm.resume(tmp_path / "copy", device="cpu")
    assert is_same_run(together[2].path, tmp_path / "copy/seed-2")
