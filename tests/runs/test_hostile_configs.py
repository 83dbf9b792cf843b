"""A config.json of a stranger: sizes are bounded before anything is allocated, and nothing outside is opened."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sdssm.automata import formats, get_machine, library
from sdssm.cli import main
from sdssm.errors import ModelError, RunError, SdssmError
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models.building import SIZES, build_model, prepare_model, untrained_model
from sdssm.models.classifier import Classifier
from sdssm.models.names import tensors_for_file
from sdssm.models.settings import ModelSettings, build_model_settings
from sdssm.models.size_limit import TooManyNumbersError, memory_limit, weights_limit
from sdssm.runs import load
from sdssm.runs.schema import RunConfig
from sdssm.settings import settings_to_dict
from tests.evaluation.test_evaluate import create_run
from tests.runs.configs import make_config

#: Values that are no number, or far too large.
HOSTILE: tuple[Any, ...] = (10**9 + 10**18, 10**30, -1, 0, 1.5, float("nan"), "x", None, [], {}, [["x"]], True)


@pytest.mark.parametrize("name", ["seed", "n_symbols", "n_classes", "train_length", "test_length"])
def test_numbers_of_a_config_are_bounded(name: str) -> None:
    config = make_config().to_json()
    for value in HOSTILE:
        if name == "seed" and value in (0, 10**9 + 10**18):  # valid seeds
            continue
        with pytest.raises(SdssmError, match=name):
            RunConfig.from_json({**config, name: value})


@pytest.mark.parametrize("name", ["steps", "batch", "train_length", "shortest", "validate_length", "log_every"])
def test_settings_of_a_config_are_bounded(name: str) -> None:
    config = make_config().to_json()
    hostile: tuple[Any, ...] = (10**18, 10**30, -1, 0, "x", [], {})
    for value in hostile:
        with pytest.raises(SdssmError, match=name):
            RunConfig.from_json({**config, "train": {**config["train"], name: value}})


@pytest.mark.parametrize(
    "changes",
    [
        {"train": []},
        {"train": None},
        {"model": []},
        {"model": {"mixer": []}},
        {"model": {"name": ["x"]}},
        {"machines": [["x"]]},
        {"machines": ["x", None]},
        {"machines": ["[" * 100_000, None]},
        {"machines": {}},
        {"versions": [["x"]]},
        {"task": 5},
        {"task": "x\n" * 1_000},
        {"digest": {}},
    ],
)
def test_damaged_configs_are_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(SdssmError) as caught:
        RunConfig.from_json({**make_config().to_json(), **changes}).load_task()
    assert "\n" not in str(caught.value) and len(str(caught.value)) <= 300


# -- files outside of the folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "sink:{}", "z2*{}", "alphabet[ab]:{}"])
def test_a_config_opens_no_file(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the file is opened nor its keys are named; before, they stood in the error message."""
    secret = tmp_path / ("secret.att" if "alphabet" in form else "secret.json")
    secret.write_text('{"password": "hunter2"}')

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("the file was opened")

    monkeypatch.setattr(library, "read_machine", fail)
    monkeypatch.setattr(formats, "_read_text", fail)
    config = replace(make_config(), task=form.format(secret))
    with pytest.raises(RunError, match="does not hold") as caught:
        config.load_task()
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("name", ["{}/", "{}/notes", "{}"])
def test_a_config_lists_no_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "private.att").write_text("0 1 a a\n1\n")
    (tmp_path / "notes").write_text("x")
    with pytest.raises(RunError, match="no longer exists") as caught:
        replace(make_config(), task=name.format(tmp_path)).load_task()
    assert "private" not in str(caught.value)


def test_a_run_of_a_file_needs_the_file_no_more(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"table": [[0, 1], [1, 0]]}')
    run = create_run(tmp_path / "run", get_machine("parity"), task=str(file))
    for contents in ('{"table": [[0, 1], [1, 1]]}', '{"password": "hunter2"}', None):
        file.write_text(contents) if contents is not None else file.unlink()
        assert run.config.load_task().machine.table.tolist() == [[0, 1], [1, 0]]
    task = load(run.path).task
    assert task is not None and task.digest == run.config.digest


# -- sizes of models ---------------------------------------------------------------------------------------------------


def _saved(**settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    model = untrained_model(
        ModelSettings(mixer=SelectiveDenseSettings(state=4, dictionary=2), **settings), 2, 3, seed=0
    )
    config = {"model": settings_to_dict(model.settings), "n_symbols": 2, "n_classes": 3}
    return config, tensors_for_file(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"mixer": {"state": 4_096, "dictionary": 4_096}},
        {"mixer": {"state": 256, "dictionary": 4_096}},
        {"embedding": 65_536, "block": "pre-norm", "feed_forward": 65_536},
        {"name": "transformer", "mixer": {}, "embedding": 65_536},
        {"name": "hyena", "mixer": {"longest": 1 << 20, "bands": 256}},
        {"name": "mamba", "mixer": {"state": 256, "expand": 64}, "embedding": 65_536},
        {"name": "s4", "mixer": {"state": 1_024}, "embedding": 65_536},
    ],
)
def test_a_model_is_compared_with_its_weights_before_it_is_allocated(changes: dict[str, Any]) -> None:
    config, weights = _saved()
    build_model(config, weights, "the folder")
    large = deepcopy(config)
    if "name" in changes:
        large["model"] = {}
    large["model"].update({**changes, "mixer": {**large["model"].get("mixer", {}), **changes.get("mixer", {})}})
    build_model_settings(large["model"])  # each of them is a valid model
    with pytest.raises(ModelError, match="does not hold the model .* needs at least [0-9,]+ numbers, but its weights"):
        build_model(large, weights, "the folder")


@pytest.mark.parametrize("name", list(SIZES))
def test_sizes_of_a_task_are_compared_too(name: str) -> None:
    config, weights = _saved()
    hostile: tuple[Any, ...] = (10**9, 10**18, 10**30, -1, 0, 2.5, "x", None, [])
    for value in hostile:
        with pytest.raises(SdssmError) as caught:
            build_model({**config, name: value}, weights, "the folder")
        assert "\n" not in str(caught.value)


def test_shapes_are_named_if_they_differ() -> None:
    config, weights = _saved()
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    with pytest.raises(ModelError, match=r"'dictionary' has shape \(9, 9\), but the settings need \(2, 4, 4\)"):
        prepare_model(config, {**shapes, "dictionary": (9, 9)}, "the folder")
    with pytest.raises(ModelError, match="'dictionary' is missing"):
        prepare_model(config, {name: shape for name, shape in shapes.items() if name != "dictionary"}, "the folder")
    with pytest.raises(ModelError, match=r"have no parameter '\\x1b\[2J'"):
        prepare_model(config, {**shapes, "\x1b[2J": (1,)}, "the folder")


def test_the_memory_of_the_machine_limits_a_new_model() -> None:
    settings = ModelSettings(embedding=65_536, readout="mlp", hidden=65_536, layers=64, block="pre-norm")
    with pytest.raises(TooManyNumbersError, match="this machine has [0-9,]+ GB of memory; use smaller settings"):
        untrained_model(replace(settings, mixer=SelectiveDenseSettings(state=4_096, dictionary=4_096)), 2, 2, seed=0)
    assert memory_limit().most > weights_limit([(1_000, 1_000)], is_module=False).most > 1_000_000


def test_the_limit_does_not_change_the_weights() -> None:
    import torch

    settings = ModelSettings(name="lstm")
    plain = Classifier(settings, 2, 3, generator=torch.Generator().manual_seed(5))
    limited = untrained_model(settings, 2, 3, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), limited.parameters(), strict=True))


def test_a_huge_length_in_a_saved_task_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sdssm

    sdssm.compile("parity").save(tmp_path)
    values = json.loads((tmp_path / "task.json").read_text())
    for name in ("train_length", "test_length"):
        (tmp_path / "task.json").write_text(json.dumps({**values, name: 10**9}))
        assert main(["evaluate", str(tmp_path), "--device", "cpu"]) == 2
        assert capsys.readouterr().err.count("\n") == 1
