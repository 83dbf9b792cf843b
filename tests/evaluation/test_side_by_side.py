"""Runs that are evaluated side by side have the results of each run alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sdssm
from sdssm.cli import main
from sdssm.evaluation import correct_counts, group_reading, measurement, prepared
from sdssm.evaluation.correct_counts import count_by_label, count_models_on_prefixes
from sdssm.evaluation.group_reading import GroupReading
from sdssm.evaluation.prepared import group_subjects
from sdssm.evaluation.records import RunEvaluation
from sdssm.evaluation.request import validate_request
from sdssm.evaluation.state_sample import sample_states_of_models
from sdssm.evaluation.stored import EVALUATION_FILE, LENGTHS_FILE
from sdssm.experiments.execution.evaluations import evaluate_group, evaluate_locally, group_files
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.layers.settings import AttentionSettings, SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.runs import RunFolder
from sdssm.runs.own_files import STATES_FILE
from sdssm.tasks import get_task
from sdssm.tasks.evaluation_strings import EvaluationStrings

CPU = torch.device("cpu")
#: A scan with rescaled states; one whose states grow, with an input; one with a query; and models without a joint scan.
SETTINGS = {
    "default": ModelSettings(),
    "growing": ModelSettings(
        mixer=SelectiveDenseSettings(state=8, rescale=False, column_norm=2.0), norm="affine", readout="linear"
    ),
    "input": ModelSettings(mixer=SelectiveDenseSettings(state=8, rescale=False, input_matrix=True), norm="affine"),
    "query": ModelSettings(mixer=SelectiveDenseSettings(state=8), query=True),
    "lstm": ModelSettings(name="lstm"),
    "transformer": ModelSettings(name="transformer", width=16, mixer=AttentionSettings(heads=2)),
}
LENGTHS = np.array([3, 40, 700])  # beyond a block of 512 positions


def make_models(name: str, task: str, count: int = 3) -> list[Classifier]:
    sizes = get_task(task)
    return [
        Classifier(SETTINGS[name], sizes.n_symbols, sizes.n_classes, generator=torch.Generator().manual_seed(seed))
        for seed in range(count)
    ]


@pytest.fixture(params=["one readout at a time", "one readout"])
def _readout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the readouts of a group as on a CPU, and as on a GPU."""
    monkeypatch.setitem(group_reading.HAS_JOINT_READOUT, "cpu", request.param == "one readout")


@pytest.fixture
def _small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pieces be about 20 symbols long."""
    monkeypatch.setitem(correct_counts.MOST_NUMBERS, "cpu", 3 * 16 * 64 * 20)


@pytest.mark.usefixtures("_readout", "_small_memory")
@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "transformer"])
def test_prefixes(name: str) -> None:
    models = make_models(name, "a5")
    strings = EvaluationStrings(get_task("a5"), 16, 1, CPU)
    groups = np.array([[True, True, True], [True, False, False]])
    results = count_models_on_prefixes(models, strings, LENGTHS, groups)
    for model, result in zip(models, results, strict=True):
        [alone] = count_models_on_prefixes([model], strings, LENGTHS, groups)
        assert np.array_equal(result.correct, alone.correct)
        assert result.scores is not None and alone.scores is not None
        assert np.array_equal(result.scores, alone.scores)
        assert result.means is not None and alone.means is not None
        assert np.array_equal(result.means, alone.means)
        assert result.overflowed == alone.overflowed


@pytest.mark.usefixtures("_readout", "_small_memory")
@pytest.mark.parametrize("sampling", ["uniform", "balanced", "covering"])
@pytest.mark.parametrize("name", ["default", "query", "lstm", "transformer"])
def test_fresh_strings(name: str, sampling: str) -> None:
    models, lengths = make_models(name, "tomita4"), LENGTHS[:2] if name == "transformer" else LENGTHS
    strings = EvaluationStrings(get_task("tomita4"), 16, 1, CPU, sampling=sampling)
    correct, drawn, overflowed = count_by_label(models, strings, lengths)
    for number, model in enumerate(models):
        alone, drawn_alone, overflowed_alone = count_by_label([model], strings, lengths)
        assert np.array_equal(correct[number], alone[0])
        assert np.array_equal(drawn, drawn_alone)
        assert overflowed[number] == overflowed_alone[0]


@pytest.mark.parametrize("name", ["default", "input"])
def test_joint_readout_has_nearly_the_same_logits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product for all models may sum in another order than one for each."""
    models = make_models(name, "a5")
    tokens = torch.randint(2, (5, 30), generator=torch.Generator().manual_seed(0))
    outputs = []
    for is_joint in (False, True):
        monkeypatch.setitem(group_reading.HAS_JOINT_READOUT, "cpu", is_joint)
        with torch.inference_mode():
            parts = list(GroupReading(models, 5).advance(tokens))
        assert len(parts) == (1 if is_joint else len(models))
        outputs.append(torch.cat([logits for _, logits in parts]))
    torch.testing.assert_close(*outputs)


def test_random_start_states() -> None:
    settings = ModelSettings(
        mixer=SelectiveDenseSettings(state=8, initial_state="given"), state_embedding=6, readout="linear"
    )
    models = [Classifier(settings, 2, 60, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    together = sdssm.evaluate(models, task="a5", max_length=20, strings=32)
    assert together.runs == tuple(
        sdssm.evaluate(model, task="a5", max_length=20, strings=32).runs[0] for model in models
    )


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the number of models whenever strings are read."""
    sizes = []
    original = count_models_on_prefixes

    def count(models: Any, *arguments: Any) -> Any:
        sizes.append(len(models))
        return original(models, *arguments)

    monkeypatch.setattr(measurement, "count_models_on_prefixes", count)
    return sizes


def test_only_equal_settings_and_tasks_share_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    default, query = make_models("default", "parity"), make_models("query", "parity")
    mixed = [default[0], query[0], default[1], query[1], default[2]]
    alone = [sdssm.evaluate(model, task="parity", max_length=20, strings=32).runs[0] for model in mixed]
    sizes, received = count_calls(monkeypatch), list[RunEvaluation]()
    together = sdssm.evaluate(mixed, task="parity", max_length=20, strings=32, on_result=received.append)
    assert list(together.runs) == alone  # in the order of the models
    assert sizes == [3, 2]
    assert received == [alone[number] for number in (0, 2, 4, 1, 3)]
    other_length = replace(get_task("parity"), test_length=33)  # the same machine, and thus the same digest
    for model in default[1:]:
        model.task = other_length
    default[0].task = get_task("parity")
    assert group_subjects(default, None, validate_request(None, None, 8, 1, False, "cpu")) == [[0], [1, 2]]
    monkeypatch.setitem(prepared.MOST_MODELS, "cpu", 2)
    sdssm.evaluate(default, task="parity", max_length=20, strings=32, device="cpu")
    assert sizes[2:] == [2, 1]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    out = tmp_path_factory.mktemp("runs")
    options: dict[str, Any] = {"steps": 2, "device": "cpu"}
    return [
        RunFolder.open(run.path)
        for task, seeds in (("parity", 3), ("tomita4", 2))
        for run in sdssm.train(task, seeds=seeds, out=out / task, **options)
    ]


@pytest.mark.parametrize("sampling", ["uniform", "covering"])
@pytest.mark.parametrize("name", SETTINGS)
def test_states(name: str, sampling: str) -> None:
    models, task = make_models(name, "d4"), get_task("d4")
    together = sample_states_of_models(models, task, 700, 40, seed=1, sampling=sampling)
    for model, sample in zip(models, together, strict=True):
        [alone] = sample_states_of_models([model], task, 700, 40, seed=1, sampling=sampling)
        if sample is None or alone is None:
            assert sample is alone and name == "transformer"
        else:
            assert sample.encode("d4") == alone.encode("d4")


def test_command(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-length", "30", "--strings", "16", "--quiet", "--overwrite"]
    files = [run.path / name for run in runs for name in (EVALUATION_FILE, STATES_FILE)]
    for run in runs:
        assert main(["evaluate", str(run.path), *options]) == 0
    alone = [file.read_bytes() for file in files]
    sizes = count_calls(monkeypatch)
    assert main(["evaluate", *(str(run.path) for run in runs), *options]) == 0
    assert sizes == [3, 2]
    assert [file.read_bytes() for file in files] == alone
    capsys.readouterr()


def test_a_damaged_run_does_not_stop_its_group(runs: list[RunFolder], tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(run.path, tmp_path / run.path.name)) for run in runs[:3]]
    for weights in folders[1].rglob("*.safetensors"):
        weights.unlink()
    with pytest.warns(sdssm.errors.RunWarning, match="left out"):
        results = sdssm.evaluate(folders, max_length=10, strings=8)
    assert [result.seed for result in results.runs] == [0, 2]


def test_experiments(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EvaluationSpec(max_length=20, lengths=(30, 600), strings=16)
    names = (EVALUATION_FILE, LENGTHS_FILE)
    files = [(run.path, name) for run in runs for name in names]
    for file in files:
        evaluate_group([file], spec, "cpu")
    alone = [(folder / name).read_bytes() for folder, name in files]
    sizes, done = count_calls(monkeypatch), []
    evaluate_locally(files, spec, "cpu", on_evaluated=lambda count, total: done.append((count, total)))
    assert sizes == [3, 3, 2, 2]
    assert done == [(count, 10) for count in range(1, 11)]
    assert [(folder / name).read_bytes() for folder, name in files] == alone
    assert [len(group) for group in group_files(files, 2)] == [2, 1, 2, 1, 2, 2]
