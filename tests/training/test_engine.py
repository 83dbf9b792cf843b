"""The engine: a replica trains as it would alone, as a plain PyTorch loop would, and reproducibly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sdssm.errors import SettingsError
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training import schedules
from sdssm.training.engine import TrainingEngine, new_model
from tests.training.exploding import EXPLODING, explode

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
SMALL = {"state": 8, "dictionary": 3, "batch": 16, "steps": 100, "train_length": 9}
#: Trainings that use different code paths: task, preset, settings.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "scale-free": ("a5", "scale-free", {}),
    "paper": ("d4", "paper", {}),
    "query, with invalid strings": ("arithmetic", "paper", {}),
    "dropout": ("parity", "scale-free", {"readout": "mlp", "dropout": 0.3}),
    "stack": ("cycle", "scale-free", {"layers": 2, "embedding": 4}),
    "random start": ("a5", "length-efficiency-5", {"train_length": 5}),
    "covering strings": ("tomita4", "scale-free", {"sampling": "covering"}),
}


def config(name: str, preset: str, seed: int, **values: Any) -> RunConfig:
    return create_config(get_task(name), seed, resolve_settings("sd-ssm", preset, name, {**SMALL, **values}), preset)


def train_losses(runs: list[RunConfig], device: str, steps: int) -> torch.Tensor:
    """Train for some steps; return the loss at each step, (steps, R)."""
    engine = TrainingEngine([get_task(run.task) for run in runs], runs, torch.device(device))
    losses = []
    for _ in range(steps):
        engine.advance(1)
        losses.append(engine.window().loss.cpu())
    return torch.stack(losses)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_replica_trains_as_it_would_alone(kind: str, device: str) -> None:
    name, preset, values = KINDS[kind]
    runs = [config(name, preset, seed, **values) for seed in (3, 0, 7)]
    together = train_losses(runs, device, 12)
    for column, run in enumerate(runs):
        torch.testing.assert_close(train_losses([run], device, 12)[:, 0], together[:, column], rtol=2e-4, atol=2e-5)
    assert together.std() > 0


@pytest.mark.parametrize("device", DEVICES)
def test_replicas_may_differ_in_hyperparameters(device: str) -> None:
    changes: list[dict[str, Any]] = [
        {"lr": 1e-2, "column_norm": 1.4, "temperature_end": 0.9},
        {"weight_decay": 0.1, "train_length": 4, "temperature": 1.5, "shortest": 3},
        {"temperature": 0.7, "attraction": 1.0, "scale": 3.0, "scale_end": 9.0, "warmup": 0.05, "curriculum": "fixed"},
        {"temperature": 2.0, "temperature_end": 0.5, "schedule": "constant", "curriculum": "growing"},
    ]
    runs = [config("a5", "scale-free", 1, **values) for values in changes]
    together = train_losses(runs, device, 12)
    for column, run in enumerate(runs):
        torch.testing.assert_close(train_losses([run], device, 12)[:, 0], together[:, column], rtol=2e-4, atol=2e-5)
    assert len(set(together[-1].tolist())) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_replicas_may_differ_in_tasks(device: str) -> None:
    names = ("d4", "c2xc4", "d4", "random:8x2:0")
    runs = [config(name, "scale-free", seed) for seed, name in enumerate(names)]
    together = train_losses(runs, device, 12)
    for column, run in enumerate(runs):
        torch.testing.assert_close(train_losses([run], device, 12)[:, 0], together[:, column], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_machines_with_covering_strings_share_an_engine(device: str) -> None:
    names = ["regex[01]:1*0", "regex[01]:(01)*", "tomita4", "tomita3"]
    samplings = ["covering", "auto", "balanced", "uniform"]
    runs = [config(name, "scale-free", 3, sampling=sampling) for name, sampling in zip(names, samplings, strict=True)]
    assert [run.train.sampling for run in runs] == ["covering", "covering", "balanced", "uniform"]
    together = train_losses(runs, device, 12)
    for column, run in enumerate(runs):
        torch.testing.assert_close(train_losses([run], device, 12)[:, 0], together[:, column], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a5", {"state": 9}),
        ("a5", {"batch": 8}),
        ("a5", {"temperature": 2.0}),
        ("z7", {}),
        ("parity", {}),
        ("arithmetic", {}),
    ],
)
def test_runs_of_different_shapes_are_refused(name: str, values: dict[str, Any]) -> None:
    runs = [config("a5", "scale-free", 0), config(name, "scale-free", 1, **values)]
    with pytest.raises(SettingsError, match="its own engine"):
        TrainingEngine([get_task(run.task) for run in runs], runs, torch.device("cpu"))


@pytest.mark.parametrize("name", ["a5", "arithmetic"])
def test_matches_a_plain_torch_training_loop(name: str) -> None:
    """As published: Adam on a module, clipped gradients, one length per step; only the strings come from the stream."""
    run = config(name, "paper", 5, lr=1e-2, weight_decay=1e-3)
    engine = TrainingEngine(get_task(name), [run], torch.device("cpu"))
    model = new_model(run)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
    stream = TrainingEngine(get_task(name), [run], torch.device("cpu")).stream
    for step in range(8):
        lengths = torch.from_numpy(stream.draw_lengths(step, 1, [9]))
        strings = stream.draw(torch.tensor(step), lengths, 9)
        tokens = strings.tokens[0, 0, :, : int(lengths)]
        assert torch.equal(get_task(name).labels(tokens)[:, -1], strings.labels[0, 0])
        loss = torch.nn.functional.cross_entropy(model(tokens)[:, -1], strings.labels[0, 0])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        engine.advance(1)
        torch.testing.assert_close(engine.window().loss[0], loss.detach(), rtol=1e-4, atol=1e-5)
    for expected, actual in zip(model.parameters(), engine.model(0).parameters(), strict=True):
        torch.testing.assert_close(expected, actual, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_result_does_not_depend_on_the_steps_per_call(device: str) -> None:
    runs = [config("a5", "scale-free", seed) for seed in (0, 1)]
    engines = [TrainingEngine(get_task("a5"), runs, torch.device(device)) for _ in range(2)]
    engines[0].advance(37)
    for steps in (1, 7, 20, 9):
        engines[1].advance(steps)
    at_once, in_parts = (engine.window() for engine in engines)
    assert engines[0].step == engines[1].step == 37
    torch.testing.assert_close(at_once.loss, in_parts.loss, rtol=0 if device == "cpu" else 1e-5, atol=0)
    if device == "cpu":
        assert torch.equal(engines[0].replicas.flat, engines[1].replicas.flat)


def test_accuracy_reaches_99_percent_on_parity() -> None:
    run = config("parity", "scale-free", 0, steps=300, batch=32, lr=1e-2, state=16, train_length=5)
    engine = TrainingEngine(get_task("parity"), [run], torch.device("cpu"))
    engine.advance(250)
    engine.window()
    engine.advance(50)
    assert engine.window().accuracy.item() > 99


def test_diverged_replica_stops_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    explode(monkeypatch)
    good, bad = config("a5", "scale-free", 0), config("a5", "scale-free", 0, lr=EXPLODING)
    engine = TrainingEngine(get_task("a5"), [good, bad, good], torch.device("cpu"))
    engine.advance(20)
    window = engine.window()
    assert window.alive.tolist() == [True, False, True]
    assert torch.isfinite(engine.replicas.flat[[0, 2]]).all()
    assert torch.equal(engine.replicas.flat[0], engine.replicas.flat[2])
    engine.advance(20)
    assert engine.window().alive.tolist() == [True, False, True]


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_learning_rates_and_ramps() -> None:
    step = np.arange(100)
    rate = schedules.learning_rate(config("a5", "scale-free", 0, lr=2.0, warmup=0.1), step)
    assert rate[0] == pytest.approx(0.2) and rate[9] == rate.max() == pytest.approx(2.0)
    assert np.all(np.diff(rate[10:]) < 0) and 0 < rate[-1] < 0.01
    assert rate[55] == pytest.approx(1.0)
    constant = schedules.learning_rate(config("a5", "paper", 0), step)
    assert set(constant) == {2e-5}
    assert schedules.ramp(10, 5, 101, np.array([0, 50, 100, 200])).tolist() == [10, 7.5, 5, 5]
    assert schedules.ramp(10, None, 101, np.array([0, 100])).tolist() == [10, 10]


def test_curricula() -> None:
    runs = [config("a5", "scale-free", 0, curriculum=name, steps=4000) for name in ("uniform", "fixed", "growing")]
    engine = TrainingEngine(get_task("a5"), runs, torch.device("cpu"))
    lengths = schedules.lengths(runs, engine.stream, 0, 4000)
    uniform, fixed, growing = lengths.T
    counts = np.bincount(uniform, minlength=10)[1:]
    assert counts.sum() == 4000 and ((counts - 4000 / 9) ** 2 / (4000 / 9)).sum() < 26  # chi-square, 8 degrees, 0.1 %
    assert set(fixed) == {9}
    assert growing[:100].max() <= 1 and growing[900:1000].max() <= 5 and growing[2000:].max() == 9
    longer = [replace(run, settings=run.settings.replace_values({"shortest": 4})) for run in runs]
    uniform, fixed, growing = schedules.lengths(longer, engine.stream, 0, 4000).T
    assert set(uniform) == set(range(4, 10)) and set(fixed) == {9}
    assert set(growing[:100]) == {4} and growing[900:1000].max() <= 5 and set(growing[2000:]) == set(range(4, 10))
    odd = config("arithmetic", "scale-free", 0, curriculum="fixed", train_length=8)
    assert set(
        schedules.lengths([odd], TrainingEngine(get_task("arithmetic"), [odd], torch.device("cpu")).stream, 0, 5).flat
    ) == {7}
