"""The sample of states that `evaluate` stores beside evaluation.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import sdssm
from sdssm.automata import get_machine
from sdssm.evaluation import evaluate
from sdssm.evaluation.correct_counts import have_growing_states
from sdssm.evaluation.sources import as_token_model
from sdssm.evaluation.state_sample import (
    FRESH_STRINGS,
    MOST_NUMBERS,
    PREFIX_STRINGS,
    StateSample,
    choose_ladder,
    sample_states_of_models,
)
from sdssm.layers import SelectiveDenseSettings
from sdssm.layers.mixer import flatten_state
from sdssm.models import Classifier, ModelSettings, TokenModel
from sdssm.runs import RunFolder
from sdssm.runs.own_files import STATES_FILE
from sdssm.runs.schema import resolve_settings
from sdssm.tasks import Task, get_task
from sdssm.tasks.evaluation_strings import EvaluationStrings
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import create_run

LADDER = [5, 10, 20, 40, 75, 141, 266, 500]


def build(model: str, task: str, values: dict[str, Any], preset: str = "default") -> Classifier:
    settings, known = resolve_settings(model, preset, get_task(task), values).model, get_task(task)
    generator = torch.Generator().manual_seed(0)
    return Classifier(settings, known.n_symbols, known.n_classes, generator=generator).eval()


def sample(model: TokenModel, task: str | Task, longest: int = 60, sampling: str = "uniform") -> StateSample:
    [result] = sample_states_of_models([model], get_task(task), longest, 40, seed=1, sampling=sampling)
    assert result is not None
    return result


def read(run: RunFolder) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(run.path / STATES_FILE, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["sdssm"])  # noqa: SIM118


def test_the_states_of_an_exact_model_are_those_of_the_automaton(tmp_path: Path) -> None:
    run = create_run(tmp_path, get_machine("d4"), task="d4")
    evaluation = evaluate(run, device="cpu")
    tensors, metadata = read(run)
    assert metadata == {"digest": run.config.digest, "sampling": "uniform"}
    assert tensors["lengths"].tolist() == LADDER
    states = tensors["states"]
    assert (states.shape, states.dtype) == ((8, PREFIX_STRINGS, 8), torch.float16)
    assert torch.equal(states.argmax(-1), tensors["machine_states"].long())  # its states are unit vectors
    assert torch.equal(states.float().amax(-1), torch.ones(8, PREFIX_STRINGS))
    assert torch.equal(tensors["labels"], tensors["predictions"])
    assert set(tensors["machine_states"].flatten().tolist()) == set(range(8))
    assert evaluation == evaluate(run, device="cpu", overwrite=True)
    model = evaluate(exact(get_machine("d4")), task="d4", device="cpu")
    assert model.runs[0].accuracy == evaluation.runs[0].accuracy
    run.rewind(0)  # as training it further does
    assert not (run.path / STATES_FILE).exists()


def test_wrong_predictions_are_marked(tmp_path: Path) -> None:
    run = create_run(tmp_path, tiring_parity(4))
    accuracy = evaluate(run, max_length=200, strings=PREFIX_STRINGS, device="cpu").runs[0].accuracy
    tensors, _ = read(run)
    correct = (tensors["labels"] == tensors["predictions"]).float().mean(1) * 100
    assert correct.tolist() == pytest.approx([accuracy[n - 1] for n in tensors["lengths"].tolist()])  # the same strings
    assert correct[0] > correct[-1]


@pytest.mark.parametrize(
    ("model", "task", "values", "numbers"),
    [
        ("rnn", "parity", {"state": 4}, 4),
        ("lstm", "d4", {"state": 3, "layers": 2}, 12),
        ("complex-diagonal", "parity", {"state": 3}, 6),  # real and imaginary parts
        ("sd-ssm", "arithmetic", {"state": 5, "layers": 2}, 10),
    ],
)
def test_states_of_whole_strings(model: str, task: str, values: dict[str, Any], numbers: int) -> None:
    """The states after pieces of strings are those after the whole strings."""
    token_model = build(model, task, values, "scale-free" if model == "sd-ssm" else "default")
    result, known = sample(token_model, task), get_task(task)
    strings = EvaluationStrings(known, PREFIX_STRINGS, 1, torch.device("cpu"))
    tokens, labels = next(strings.blocks(60))
    for row, length in enumerate(result.lengths.tolist()):
        assert known.has_length(length)
        with torch.no_grad():
            logits, state = token_model.advance(tokens[:, :length])
        whole = torch.cat([value.flatten(1) for value in flatten_state(state)], dim=1)
        assert result.states.shape[-1] == whole.shape[1] == numbers
        torch.testing.assert_close(result.states[row].float(), whole, atol=2e-3, rtol=2e-3)
        assert (result.predictions[row] == logits[:, -1].argmax(-1)).float().mean() > 0.95  # but for ties
        assert torch.equal(result.labels[row].long(), labels[:, length - 1])
        states = [known.machine.run(string) for string in tokens[:9, :length].tolist()]
        assert result.machine_states[row, :9].tolist() == states


def test_covering_strings_are_drawn_for_each_length() -> None:
    task = get_task("regex[abcd]:.*abcd.*")
    uniform = sample(exact(task.machine), task)
    covering = sample(exact(task.machine), task, sampling="covering")
    assert (uniform.sampling, uniform.labels.shape[1]) == ("uniform", PREFIX_STRINGS)
    assert (covering.sampling, covering.labels.shape[1]) == ("covering", FRESH_STRINGS)
    assert torch.equal(covering.states.argmax(-1), covering.machine_states.long())
    assert torch.equal(covering.labels, covering.predictions)
    assert len(set(covering.machine_states[-1].tolist())) == task.machine.n_states
    assert covering.encode("") == sample(exact(task.machine), task, sampling="covering").encode("")


def test_strings_that_start_in_random_states() -> None:
    values = {"state": 60, "state_embedding": 60, "norm": "none"}
    model = build("sd-ssm", "a5", values, "length-efficiency-4")
    assert len(set(sample(model, "a5", 5).machine_states[0].tolist())) > 30  # one symbol leads from one state to two


def test_states_that_grow_are_read_by_their_direction() -> None:
    mixer = SelectiveDenseSettings(state=4, column_norm=4.0, input_matrix=True, rescale=False)
    settings = ModelSettings(mixer=mixer, norm="affine")
    model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        (dictionary,) = (value for name, value in model.named_parameters() if name.endswith("dictionary"))
        dictionary.fill_(1.0)  # equal columns of the 4-norm 1: states grow with each symbol
    strings = EvaluationStrings(get_task("parity"), 16, 1, torch.device("cpu"))
    assert have_growing_states([model], strings, 500) == [True]
    result = sample(model, "parity", 500)
    assert bool(result.states.isfinite().all()) and result.states.shape[-1] == 5


def test_large_states_are_float32() -> None:
    class Large(Counter):
        def next_state(self, state: Tensor, ones: Tensor) -> Tensor:
            return torch.cat([ones[:, -1:], 1e6 * ones[:, -1:]], dim=1)

    result = sample(as_token_model(Large(), get_task("parity")), "parity")
    assert result.states.dtype == torch.float32
    assert torch.equal(result.states[..., 1], 1e6 * result.states[..., 0])


class Counter(nn.Module):
    """A module with a state: by default the number of ones, in as many entries as a subclass says."""

    def __init__(self, n_symbols: int = 2, n_classes: int = 2) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def start(self, tokens: Tensor) -> Tensor:
        return torch.zeros(len(tokens), 1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.advance(tokens, None)[0]

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        state = self.start(tokens) if state is None else state
        ones = state[:, :1] + tokens.cumsum(1)
        return self.scale * torch.stack([1 - ones % 2, ones % 2], dim=-1), self.next_state(state, ones)

    def next_state(self, state: Tensor, ones: Tensor) -> Tensor:
        return ones[:, -1:]


class Wide(Counter):
    def next_state(self, state: Tensor, ones: Tensor) -> Tensor:
        return ones[:, -1:].expand(-1, MOST_NUMBERS + 1)


class Growing(Counter):
    def next_state(self, state: Tensor, ones: Tensor) -> Tensor:
        return torch.cat([ones[:, -1:], state], dim=1)


class Infinite(Counter):
    def next_state(self, state: Tensor, ones: Tensor) -> Tensor:
        return torch.cat([ones[:, -1:], ones[:, -1:] / 0], dim=1)


class Failing(Counter):
    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        if tokens.shape == (PREFIX_STRINGS, 4):
            raise ZeroDivisionError("it does not read pieces of four symbols")
        return super().advance(tokens, state)


def test_a_module_of_others_with_a_state() -> None:
    result = sample(as_token_model(Counter(), get_task("parity")), "parity")
    assert torch.equal(result.states[..., 0] % 2, result.machine_states.half())
    assert torch.equal(result.labels, result.predictions)


@pytest.mark.parametrize("kind", [Wide, Growing, Infinite])
def test_states_that_are_not_stored(kind: type[Counter]) -> None:
    model = as_token_model(kind(), get_task("parity"))
    assert sample_states_of_models([model], get_task("parity"), 60, 40, seed=1) == [None]


def test_models_without_states_have_no_sample() -> None:
    model = build("transformer", "parity", {"layers": 1, "heads": 2})
    assert sample_states_of_models([model], get_task("parity"), 60, 40, seed=1) == [None]


def test_an_evaluation_does_not_fail_because_of_the_sample(tmp_path: Path) -> None:
    settings = {"batch": 4, "train_length": 40}
    runs = sdssm.train("parity", model=Failing, steps=2, settings=settings, out=tmp_path, device="cpu")
    sdssm.models.forget(runs[0].config.model.name)
    sdssm.models.register(Failing, name=runs[0].config.model.name)
    assert len(evaluate(runs, max_length=20, device="cpu").runs[0].accuracy) == 20
    assert (runs[0].path / "evaluation.json").exists()
    assert not (runs[0].path / STATES_FILE).exists()
    sdssm.models.forget(runs[0].config.model.name)


def test_it_is_written_with_evaluation_json_alone(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", get_machine("parity"))
    file = run.path / STATES_FILE
    evaluate(run, lengths=[5, 50], device="cpu")
    assert not file.exists()
    evaluate(run, max_length=60, device="cpu")
    before = file.read_bytes()
    note = evaluate(run, max_length=20, device="cpu").runs[0].note
    assert note is not None and "evaluation.json is kept" in note
    assert file.read_bytes() == before
    evaluate(run, max_length=20, device="cpu", overwrite=True)
    assert read(run)[0]["lengths"].tolist() == choose_ladder(20, 40) == [2, 5, 10, 20]
    running = create_run(tmp_path / "running", get_machine("parity"), ended=None)
    exact(get_machine("parity")).save(tmp_path / "saved")
    evaluate([running, tmp_path / "saved"], task="parity", max_length=20, device="cpu")
    assert list(tmp_path.rglob(STATES_FILE)) == [file]


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    run = create_run(tmp_path, get_machine("parity"))
    (run.path / STATES_FILE).mkdir()
    with pytest.warns(sdssm.errors.RunWarning, match=f"{STATES_FILE} cannot be written: .*not kept"):
        evaluate(run, max_length=20, device="cpu")
    assert (run.path / "evaluation.json").exists()


@pytest.mark.parametrize(("longest", "train_length"), [(1, 1), (1, 40), (40, 40), (41, 40), (600, 90), (10**6, 40)])
def test_the_ladder(longest: int, train_length: int) -> None:
    ladder = choose_ladder(longest, train_length)
    assert ladder == sorted(set(ladder)) and ladder[0] >= 1 and ladder[-1] == longest
    assert len(ladder) <= 8 and min(longest, train_length) in ladder
