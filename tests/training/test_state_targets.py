"""Training with the states of the automaton as targets: replicas, resuming, run folders, and when it is the default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sdssm
from sdssm.errors import SettingsError
from sdssm.models import Classifier
from sdssm.models.catalogue import DEFAULT_PRESET
from sdssm.runs.schema import RunConfig, centres_for, choose_preset, create_config, resolve_settings
from sdssm.tasks import PAPER_TASKS, Task, get_task
from sdssm.training.engine import TrainingEngine, group_key, new_model
from sdssm.training.planning import check_config
from sdssm.training.step_values import transition_tables
from tests.training.test_plugged_models import CopyAt, weights

LANGUAGES = Path(__file__).parents[1] / "data/mlregtest"
#: Languages over two letters whose minimal machines have 2, 3 and 4 states, and two labels.
TASKS = [get_task(f"regex[ab]:{expression}") for expression in ("a*", "a*b", "(abb|b)*a")]
SMALL: dict[str, Any] = {"state": 8, "dictionary": 3, "batch": 16, "train_length": 8, "steps": 40, "warmup": 0.0}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def configure(task: Task, seed: int = 0, preset: str = "states", **changes: Any) -> RunConfig:
    return create_config(task, seed, resolve_settings("sd-ssm", preset, task, {**SMALL, **changes}), preset)


def parameters(engine: TrainingEngine, replica: int = 0) -> dict[str, Tensor]:
    return dict(engine.model(replica).state_dict())


@pytest.mark.parametrize("device", DEVICES)
def test_languages_of_different_sizes_train_as_they_do_alone(device: str) -> None:
    runs = [configure(task, seed) for seed, task in enumerate(TASKS)]
    assert len({task.minimal.n_states for task in TASKS}) == len(TASKS)
    assert len({group_key(run, task) for run, task in zip(runs, TASKS, strict=True)}) == 1
    together = TrainingEngine(TASKS, runs, torch.device(device))
    together.advance(6)
    losses = together.window().loss
    for replica, (run, task) in enumerate(zip(runs, TASKS, strict=True)):
        alone = TrainingEngine(task, [run], torch.device(device))
        before = parameters(alone)
        alone.advance(6)
        torch.testing.assert_close(losses[replica], alone.window().loss[0], rtol=1e-4, atol=1e-4)
        expected, changes = parameters(alone), []
        for name, actual in parameters(together, replica).items():
            torch.testing.assert_close(actual, expected[name], rtol=3e-3, atol=3e-3, msg=name)
            changes.append(float((expected[name] - before[name]).abs().max()))
        assert max(changes) > 0.02  # larger than the tolerance above


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_agree() -> None:
    runs = [configure(task, seed, lr=1e-3) for seed, task in enumerate(TASKS)]
    engines = [TrainingEngine(TASKS, runs, torch.device(device)) for device in ("cpu", "cuda")]
    for engine in engines:
        engine.advance(12)
    on_cpu, on_gpu = (engine.window() for engine in engines)
    torch.testing.assert_close(on_gpu.loss.cpu(), on_cpu.loss, rtol=1e-4, atol=1e-4)


def test_large_machines_do_not_train_beside_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """For them the loss compares only the states of the strings: beside them, a small machine would not train alone."""
    monkeypatch.setattr("sdssm.models.state_targets.MOST_CENTRES", 7)  # pairs of a state and a symbol
    small, smaller, large = (group_key(configure(task), task) for task in (TASKS[1], TASKS[0], TASKS[2]))
    assert small == smaller != large
    assert len({group_key(configure(task, preset=DEFAULT_PRESET), task) for task in TASKS}) == 1  # labels as targets


def test_centres_and_the_first_state_stay_as_they_are() -> None:
    run, task = configure(TASKS[2]), TASKS[2]
    engine, model = TrainingEngine(task, [run], torch.device("cpu")), new_model(run, task)
    engine.advance(5)
    trained = engine.model(0)
    assert isinstance(model, Classifier) and isinstance(trained, Classifier)
    assert torch.equal(trained.readout.weight, model.readout.weight)
    assert trained.initial_state is not None
    assert torch.equal(trained.initial_state, model.readout.weight[task.minimal.start])


def test_tables_are_padded_to_the_largest_machine() -> None:
    tables = transition_tables(TASKS, torch.device("cpu"))
    for task, table in zip(TASKS, tables, strict=True):
        count = task.minimal.n_states
        assert torch.equal(table[:count], torch.from_numpy(task.minimal.table))
        assert not table[count:].any()


def test_centres_have_the_labels_of_the_states() -> None:
    arithmetic = get_task("arithmetic")  # some prefixes are not valid: their states have no label
    for task in (*TASKS, arithmetic):
        model = new_model(configure(task), task)
        assert isinstance(model, Classifier) and model.readout.centre_labels is not None
        labels, count = model.readout.centre_labels.tolist(), task.minimal.n_states
        assert labels[:count] == [task.n_classes if label < 0 else label for label in task.minimal.labels]
        assert set(labels[count:]) == {-1} and len(labels) == centres_for(task)
    assert (arithmetic.minimal.labels < 0).any()


def test_a_language_is_learned() -> None:
    settings: dict[str, Any] = {"state": 16, "batch": 32, "steps": 300}
    engine = TrainingEngine(TASKS[2], [configure(TASKS[2], **settings)], torch.device("cpu"))
    engine.advance(10)
    first = float(engine.window().accuracy[0])
    engine.advance(270)
    engine.window()
    engine.advance(20)
    assert first < 90 and float(engine.window().accuracy[0]) > 99


def train(out: Path, **options: Any) -> Any:
    settings = {**SMALL, "log_every": 5, "checkpoint_every": 10}
    del settings["steps"]
    return sdssm.train(
        TASKS[2], preset="states", out=out, settings=settings, steps=30, seeds=2, device="cpu", **options
    )


def test_a_killed_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    train(tmp_path / "whole", progress=CopyAt(10, tmp_path / "whole", tmp_path / "copy"))
    assert not (tmp_path / "copy/seed-0/model.safetensors").exists()
    resumed = sdssm.resume(tmp_path / "copy", device="cpu")
    assert [run.status for run in resumed] == ["finished"] * 2
    for run in resumed:
        expected = weights(tmp_path / "whole" / run.path.name)
        for name, value in weights(run.path).items():
            assert torch.equal(value, expected[name]), name


def test_a_run_folder_keeps_the_centres_and_is_evaluated(tmp_path: Path) -> None:
    run = train(tmp_path)[0]
    model, task = sdssm.load(run.path), TASKS[2]
    assert isinstance(model, Classifier) and model.readout.centre_labels is not None
    assert model.readout.centre_labels[: task.minimal.n_states].tolist() == task.minimal.labels.tolist()
    assert RunConfig.from_json(json.loads((run.path / "config.json").read_text())).matches(run.config)
    assert run.config.train.targets == "state" and run.config.model.centres == centres_for(task)
    assert len(sdssm.evaluate(run, max_length=4, strings=8, device="cpu").runs[0].accuracy) == 4


def test_run_folders_without_these_settings_still_load(tmp_path: Path) -> None:
    """As written before there were centres."""
    settings = {"state": 8, "dictionary": 3, "batch": 8, "train_length": 8}
    run = sdssm.train("parity", out=tmp_path, settings=settings, steps=5, device="cpu")[0]
    path = run.path / "config.json"
    config = json.loads(path.read_text())
    del config["checksum"]
    for part, name in ((config["model"], "centres"), (config["train"], "targets"), (config["train"], "next_state")):
        del part[name]
    del config["model"]["mixer"]["initial_dictionary"]
    assert RunConfig.from_json(config).matches(run.config)
    tokens, expected = torch.tensor([[0, 1, 1, 0]]), sdssm.load(run.path)
    path.write_text(json.dumps(config))
    loaded = sdssm.load(run.path)
    assert isinstance(loaded, Classifier) and loaded.readout.centre_labels is None
    assert torch.equal(loaded(tokens), expected(tokens))


# -- which runs are trained on states ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_tasks_of_the_paper_are_trained_on_labels(name: str) -> None:
    task = get_task(name)
    assert choose_preset("sd-ssm", task) == DEFAULT_PRESET
    settings = resolve_settings("sd-ssm", DEFAULT_PRESET, task)
    assert settings.train.targets == "label" and settings.model.centres is None
    assert settings.model.mixer.initial_dictionary == "random" and settings.model.mixer.state == 64


@pytest.mark.parametrize("name", ["04.03.TSL.4.1.5", "04.04.SP.2.1.5", "16.16.SL.2.1.5"])
def test_languages_with_hidden_states_are_trained_on_states(name: str, tmp_path: Path) -> None:
    task = get_task(str(LANGUAGES / f"{name}.att"))
    assert len(task.minimal.labels) > task.n_classes
    assert choose_preset("sd-ssm", task) == "states"
    assert choose_preset("lstm", task) == "default"
    settings = resolve_settings("sd-ssm", "states", task)
    assert settings.train.targets == "state" and settings.model.centres == centres_for(task)
    check_config(create_config(task, 0, settings, "states"), task)


def test_a_language_whose_labels_are_its_states_is_trained_on_labels() -> None:
    task = get_task("regex[01]:1*")  # two states, and uniform strings do not cover them
    assert create_config(task, 0, resolve_settings("sd-ssm", DEFAULT_PRESET, task), "").train.sampling == "covering"
    assert choose_preset("sd-ssm", task) == DEFAULT_PRESET


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("random:300x4:0", "states"),
        ("random:100x4:0", DEFAULT_PRESET),
        ("s6", DEFAULT_PRESET),
        ("random:500x4:0", DEFAULT_PRESET),
    ],
)
def test_machines_too_large_for_labels_are_trained_on_states(name: str, preset: str) -> None:
    assert choose_preset("sd-ssm", get_task(name)) == preset  # 500 states do not fit into a state of 512 entries


@pytest.mark.parametrize("name", ["d4", "a5", "random:100x4:0", "regex[ab]:(abb|b)*a"])
def test_there_is_a_centre_for_each_state(name: str) -> None:
    task = get_task(name)
    assert centres_for(task) >= task.minimal.n_states


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": "label"}, "centres is 64, but targets is 'label'.* set preset=states, or centres=none"),
        ({"centres": 3}, "centres is 3, but the minimal machine of .* has 4 states; set centres=none, or at least 4"),
        ({"attraction": 1.0}, "attraction is 1.0, .* not part of the loss; set attraction=0"),
        ({"gain_penalty": 1.0}, "gain_penalty is 1.0, .* not part of the loss; set gain_penalty=0"),
    ],
)
def test_settings_that_do_not_fit_the_targets(changes: dict[str, Any], message: str) -> None:
    config = configure(TASKS[2], **{"centres": 64, **changes})
    with pytest.raises(SettingsError, match=message):
        check_config(config, TASKS[2])


def test_states_without_centres_are_refused() -> None:
    settings = resolve_settings("sd-ssm", DEFAULT_PRESET, "parity", {"targets": "state"})  # a name has no states
    config = create_config(TASKS[2], 0, settings, DEFAULT_PRESET)
    with pytest.raises(SettingsError, match="targets is 'state', but the model has no centres .* set preset=states"):
        check_config(config, TASKS[2])
    with pytest.raises(SettingsError, match="norm is 'plain', but with centres"):
        resolve_settings("sd-ssm", DEFAULT_PRESET, TASKS[2], {"targets": "state"})
    with pytest.raises(SettingsError, match="model is 'rnn', but with centres"):
        resolve_settings("rnn", "default", TASKS[2], {"targets": "state"})
