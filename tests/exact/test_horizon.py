"""Measured horizons: words of many symbols agree with single symbols and with the model itself."""

from __future__ import annotations

import argparse
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import sdssm
from benchmarks import horizon as benchmark
from sdssm.automata import Machine
from sdssm.cli import certify as certify_command
from sdssm.cli import horizon as horizon_command
from sdssm.exact.compilation.compiler import compile as compiled
from sdssm.exact.errors import ExactError
from sdssm.exact.measurement.length_readings import POSITIONS, class_spread
from sdssm.exact.measurement.measured_horizon import doubling_lengths, horizon
from sdssm.exact.measurement.word_matrices import WordMatrices
from sdssm.models import Classifier, ModelSettings
from sdssm.tasks import Task
from sdssm.tasks.evaluation_strings import EvaluationStrings

D4 = sdssm.task("d4")


def scale_free(noise: float, seed: int = 0) -> Classifier:
    """Return a rescaled model of d4 whose states drift."""
    exact = compiled(D4)
    settings = ModelSettings(mixer={"state": 8, "dictionary": 2}, norm="none", readout="linear", readout_bias=False)  # type: ignore[arg-type]
    model = Classifier(settings, 2, 8, generator=torch.Generator())
    model.load_state_dict(exact.state_dict())
    with torch.no_grad():
        shape = model.dictionary.shape
        model.dictionary.add_(noise * torch.randn(shape, generator=torch.Generator().manual_seed(seed)))
    return model.eval()


def test_words_are_products_of_symbols() -> None:
    model = scale_free(0.1)
    words = WordMatrices.build(model)
    assert words is not None and words.m == 8
    tokens = torch.randint(2, (5, 64), generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    expected = model.advance_state(tokens, (x,))
    assert expected is not None
    assert torch.allclose(words.advance_state(tokens, x), expected[0], atol=1e-5)
    assert not torch.allclose(words.advance_state(tokens.flip(1), x), expected[0], atol=1e-2)


def test_words_do_not_change_the_accuracy() -> None:
    model = scale_free(0.004)
    fast, plain = (horizon(model, task="d4", max_length=6_000, words=words) for words in (True, False))
    assert fast.method == "words of 8 symbols" and plain.method == "pieces"
    assert fast.lengths == plain.lengths == tuple(doubling_lengths(6_000))
    assert [reading.accuracy for reading in fast.readings] == [reading.accuracy for reading in plain.readings]
    for reading, expected in zip(fast.readings, plain.readings, strict=True):
        assert reading.within == pytest.approx(expected.within, abs=1e-4)
    assert fast.longest == plain.longest < 6_000 and not fast.reached


def test_accuracy_equals_that_of_the_whole_model() -> None:
    model = scale_free(0.004)
    result = horizon(model, task="d4", max_length=1_100, strings=32, seed=5)
    test = EvaluationStrings(D4, 32, 5, torch.device("cpu"))
    blocks = list(test.blocks(1_100))
    tokens, labels = (torch.cat([block[k] for block in blocks], 1) for k in (0, 1))
    correct = model(tokens).argmax(-1) == labels
    for reading in result.readings:
        assert reading.first == max(1, reading.length - POSITIONS + 1)
        window = correct[:, reading.first - 1 : reading.length]
        assert reading.labels == window.numel()
        assert reading.accuracy == pytest.approx(100 * float(window.double().mean()), abs=1e-9)


def test_longest_is_before_the_first_length_below_the_threshold() -> None:
    result = horizon(scale_free(0.004), task="d4", max_length=4_096)
    short = [reading.length for reading in result.readings if reading.accuracy < 99.9]
    assert short and result.longest == max(length for length in result.lengths if length < min(short))
    assert result.to_json()["lengths"] == list(result.lengths)


def test_prediction_follows_the_spread() -> None:
    result = horizon(scale_free(0.0001), task="d4", max_length=8_192)
    spreads = [reading.spread for reading in result.readings if reading.length >= 512]
    assert all(a is not None and b is not None and a < b for a, b in pairwise(spreads))
    assert result.predicted is not None and result.predicted > 8_192
    assert re.search(r"up to length 4,096: about \d{1,3},?\d?00(,000)*\n", f"{result}\n")  # two significant digits
    exact = horizon(compiled("d4"), task="d4", max_length=8_192)
    assert exact.reached and exact.predicted is None and exact.readings[-1].within == 0.0
    states = np.array([[0.0, 0.1], [0.0, -0.1], [3.0, 0.0], [3.0, 0.0]])
    within, apart = class_spread(states, np.array([4, 4, 7, 7]))
    assert apart == 3.0 and within == pytest.approx(0.1)  # sqrt(0.02 / 2) with Bessel's correction


def test_only_lengths_with_valid_strings_are_read() -> None:
    task = sdssm.task("arithmetic")
    result = horizon(compiled(task), task=task, max_length=600, strings=8)
    assert result.reached and all(length % 2 for length in result.lengths) and result.longest == 599
    assert result.readings[-1].labels == 8 * 8  # every other of the last 16 positions


def test_fresh_strings_if_prefixes_are_not_uniform() -> None:
    valid = Machine(table=[[0, 1], [1, 0]], outputs=[1, 0])  # an even number of ones
    task = Task(name="even", machine=Machine(table=[[1, 0], [0, 1]]), valid=valid)
    result = horizon(compiled(task), task=task, max_length=100, strings=8)
    assert result.method == "fresh strings" and result.reached


def test_other_recurrent_models_are_read_in_pieces() -> None:
    model = Classifier(ModelSettings(name="lstm"), 2, 2, generator=torch.Generator().manual_seed(0))
    result = horizon(model, task="parity", max_length=2_000, strings=8)
    assert result.method == "pieces" and result.readings[-1].spread is None and result.longest < 2_000


def test_unsupported_requests_are_refused() -> None:
    model = compiled("d4")
    model.task = None
    with pytest.raises(ExactError, match=r"horizon\(model, 'a5'\)"):
        horizon(model)
    with pytest.raises(ExactError, match="has 2 symbols and 8 classes"):
        horizon(compiled("d4"), task="cycle")
    other = Classifier(ModelSettings(name="transformer", embedding=16), 2, 2, generator=torch.Generator())
    with pytest.raises(ExactError, match="carries no state"):
        horizon(other, task="parity")


def test_benchmark_refuses_results_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    model = benchmark.subject(None)
    benchmark.check(model, 1_024)
    advance_state = WordMatrices.advance_state
    monkeypatch.setattr(WordMatrices, "advance_state", lambda self, tokens, x: advance_state(self, tokens.flip(1), x))
    with pytest.raises(SystemExit, match="differ"):
        benchmark.check(model, 1_024)


def run(command: object, *words: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())  # type: ignore[attr-defined]
    options = parser.parse_args(words)
    options.run(options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "parity"
    sdssm.train("parity", steps=50, out=out, device="cpu", settings={"state": 8})
    return out / "seed-0"


def test_certify_and_horizon_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(certify_command, "certify", str(folder), "--json")
    proved = json.loads(capsys.readouterr().out)
    assert (
        proved["task"] == "parity" and proved["fails_at"] == proved["horizon"] + 1
    )  # after so few steps it is hardly trained
    assert proved["float_horizon"] <= proved["horizon"] < len(proved["counterexample"])
    run(certify_command, "certify", str(folder))
    assert "float32, symbol by symbol" in capsys.readouterr().out
    run(horizon_command, "horizon", str(folder), "--max-length", "3000", "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["lengths"][-1] == 3_000 and result["longest"] < 3_000 and not result["reached"]
    run(horizon_command, "horizon", str(folder), "--max-length", "3000")
    assert "positions" in capsys.readouterr().out


SPARSE = "regex:(a|b|c)*aa(a|b|c)*"


class Constant(torch.nn.Module):
    """Answer 0 after every symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.advance(tokens, None)[0]

    def advance(self, tokens: torch.Tensor, state: None) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.tensor([1.0, 0.0]).expand(*tokens.shape, 2) + 0 * self.unused
        return logits, torch.zeros(len(tokens), 1)


def test_a_constant_answer_has_no_horizon() -> None:
    result = horizon(Constant(), "regex:aaaaaaaaaa(a|b|c)*", max_length=1_000, strings=64)
    assert all(reading.accuracy == 100 for reading in result.readings)  # as it looks
    assert all(reading.best_constant > 99.99 for reading in result.readings)  # type: ignore[operator]
    failure = result.first_failure
    assert failure is not None and failure.balanced == failure.chance == 50
    assert (result.longest, failure.length) == (8, 16)  # no string of up to 9 symbols is accepted
    assert "balanced accuracy 50.00 % (balanced chance 50 %)" in str(result)


def test_a_frequent_label_makes_a_horizon_measure_balanced_strings() -> None:
    exact = horizon(compiled(SPARSE), SPARSE, max_length=600, strings=16)
    assert exact.reached and all(reading.balanced == 100 for reading in exact.readings)
    assert exact.readings[-1].best_constant > 99.9 and exact.readings[-1].chance == 50  # type: ignore[operator]
    group = horizon(compiled("d4"), "d4", max_length=600, strings=16)
    assert all(reading.balanced is None for reading in group.readings)  # its labels are equally frequent anyway
    assert group.readings[0].best_constant == 50


def test_the_time_limit_also_ends_the_balanced_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    result = horizon(compiled(SPARSE), SPARSE, max_length=600, strings=4, max_seconds=1e-9)
    assert result.stopped and len(result.readings) == 1 and result.readings[0].balanced == 100


class KeepsMasks(torch.nn.Module):
    """A module with a frozen part that keeps a mask for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.frozen = torch.nn.Embedding(2, 2), torch.nn.Dropout().eval()
        self.masks: dict[int, torch.Tensor] = {}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.advance(tokens, None)[0]

    def advance(self, tokens: torch.Tensor, state: None) -> tuple[torch.Tensor, torch.Tensor]:
        mask = self.masks.setdefault(tokens.shape[1], torch.ones(2))
        logits: torch.Tensor = self.frozen(self.embed(tokens)) * mask
        return logits, torch.zeros(len(tokens), 1)


def test_a_module_can_be_trained_after_its_horizon_was_measured() -> None:
    module = KeepsMasks()
    horizon(module, "parity", max_length=50, strings=4)
    assert module.training and not module.frozen.training
    module(torch.zeros(1, 50, dtype=torch.long)).sum().backward()  # a mask of the inference mode would be an error
