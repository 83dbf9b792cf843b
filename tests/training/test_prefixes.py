"""The setting `prefixes`: labels of several prefixes of each string in the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sdssm.errors import SettingsError
from sdssm.models import MODELS, default_preset, wrap_module
from sdssm.models.token_model import TokenModel
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training.engine import TrainingEngine, new_model
from sdssm.training.planning import check_config

SMALL = {"batch": 8, "train_length": 6, "steps": 40}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def configure(model: str = "sd-ssm", task: str = "parity", seed: int = 0, **changes: Any) -> RunConfig:
    preset = changes.pop("preset", default_preset(model))
    return create_config(
        get_task(task), seed, resolve_settings(model, preset, get_task(task), {**SMALL, **changes}), preset
    )


def loss_by_strings(model: TokenModel, tokens: torch.Tensor, labels: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the mean of the losses of the prefixes, each read as a string by itself."""
    losses = [
        model.loss(string[None, :end], label[None])[0]
        for string, own_ends, own_labels in zip(tokens, ends.tolist(), labels, strict=True)
        for end, label in zip(own_ends, own_labels, strict=True)
    ]
    return torch.stack(losses).mean()


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_the_mean_over_prefixes(name: str) -> None:
    model = new_model(configure(name, block_dropout=0.0) if name == "transformer" else configure(name)).double().eval()
    if not model.predicts_prefixes:
        pytest.skip("it does not predict all prefixes in one pass; planning refuses it, see below")
    generator = torch.Generator().manual_seed(0)
    tokens, labels = torch.randint(2, (3, 6), generator=generator), torch.randint(2, (3, 4), generator=generator)
    ends, lengths = torch.tensor([[2, 3, 5, 6], [1, 1, 2, 2], [1, 3, 4, 5]]), torch.tensor([6, 2, 5])
    loss, correct = model.loss(tokens, labels, lengths=lengths, ends=ends)
    torch.testing.assert_close(loss, loss_by_strings(model, tokens, labels, ends), rtol=1e-9, atol=1e-9)
    assert 0 <= int(correct) <= labels.numel()


class LastTwo(nn.Module):
    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_symbols**2, n_classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        before = nn.functional.pad(tokens[:, :-1], (1, 0))
        logits: torch.Tensor = self.table(tokens + 2 * before)
        return logits


def test_modules_of_others_have_the_same_loss() -> None:
    model = wrap_module(LastTwo(2, 2), n_symbols=2, n_classes=2)
    tokens, labels, ends = torch.tensor([[0, 1, 1]]), torch.tensor([[0, 1, 0]]), torch.tensor([[1, 2, 3]])
    assert model.predicts_prefixes
    expected = loss_by_strings(model, tokens, labels, ends)
    torch.testing.assert_close(model.loss(tokens, labels, ends=ends)[0], expected)


@pytest.mark.parametrize("device", DEVICES)
def test_replicas_train_as_they_do_alone(device: str) -> None:
    task = get_task("c6:all")
    runs = [configure(task="c6:all", seed=seed, prefixes=6, state=6, dictionary=3) for seed in range(2)]
    together = TrainingEngine(task, runs, torch.device(device))
    together.advance(8)
    assert 0 <= float(together.window().accuracy.max()) <= 100
    for replica, run in enumerate(runs):
        alone = TrainingEngine(task, [run], torch.device(device))
        alone.advance(8)
        expected = alone.model(0).state_dict()
        for name, actual in together.model(replica).state_dict().items():
            torch.testing.assert_close(actual, expected[name], rtol=3e-3, atol=3e-3, msg=name)


def test_all_prefixes_of_a_word_problem_are_learned_sooner() -> None:
    task, losses = get_task("c6:all"), []
    for prefixes in (1, 10):
        run = configure(
            task="c6:all", prefixes=prefixes, train_length=10, batch=16, lr=1e-2, warmup=0.0, state=16, steps=200
        )
        engine = TrainingEngine(task, [run], torch.device("cpu"))
        engine.advance(150)
        engine.window()
        engine.advance(50)
        losses.append(float(engine.window().loss))
    assert losses[1] < losses[0] / 2, losses


@pytest.mark.parametrize(
    ("model", "task", "changes", "message"),
    [
        ("sd-ssm", "arithmetic", {}, "not every prefix of a string of arithmetic is valid; set prefixes=1"),
        (
            "sd-ssm",
            "parity",
            {"preset": "states", "attraction": 0.0},
            "with states as targets the states of two prefixes",
        ),
        ("transformer", "parity", {}, "transformer with these settings does not predict all prefixes in one pass"),
    ],
)
def test_combinations_that_are_refused(model: str, task: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_config(configure(model, task, prefixes=4, **changes), get_task(task))
