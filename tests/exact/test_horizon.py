"""Horizons: by words of many symbols as one symbol at a time, and as the model itself reads."""

from __future__ import annotations

import argparse
import json
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
from sdssm.evaluation.strings import TestStrings
from sdssm.exact.compile import compile as compiled
from sdssm.exact.errors import ExactError
from sdssm.exact.horizon import PLACES, doubling, horizon, spread
from sdssm.exact.words import Words
from sdssm.models import Classifier, ModelSettings
from sdssm.tasks import Task

D4 = sdssm.task("d4")


def scale_free(noise: float, seed: int = 0) -> Classifier:
    """A rescaled model of d4 whose states drift."""
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
    words = Words.of(model)
    assert words is not None and words.m == 8
    tokens = torch.randint(2, (5, 64), generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    expected = model.carry(tokens, (x,))
    assert expected is not None
    assert torch.allclose(words.carry(tokens, x), expected[0], atol=1e-5)
    assert not torch.allclose(words.carry(tokens.flip(1), x), expected[0], atol=1e-2)


def test_the_same_with_words_and_without() -> None:
    model = scale_free(0.004)
    fast, plain = (horizon(model, task="d4", max_length=6_000, words=words) for words in (True, False))
    assert fast.method == "words of 8 symbols" and plain.method == "pieces"
    assert fast.lengths == plain.lengths == tuple(doubling(6_000))
    assert [one.accuracy for one in fast.readings] == [one.accuracy for one in plain.readings]
    for one, other in zip(fast.readings, plain.readings, strict=True):
        assert one.within == pytest.approx(other.within, abs=1e-4)
    assert fast.longest == plain.longest < 6_000 and not fast.reached


def test_accuracy_is_that_of_the_model() -> None:
    model = scale_free(0.004)
    found = horizon(model, task="d4", max_length=1_100, strings=32, seed=5)
    test = TestStrings(D4, 32, 5, torch.device("cpu"))
    blocks = list(test.blocks(1_100))
    tokens, labels = (torch.cat([block[k] for block in blocks], 1) for k in (0, 1))
    right = model(tokens).argmax(-1) == labels
    for one in found.readings:
        assert one.first == max(1, one.length - PLACES + 1)
        part = right[:, one.first - 1 : one.length]
        assert one.labels == part.numel()
        assert one.accuracy == pytest.approx(100 * float(part.double().mean()), abs=1e-9)


def test_longest_is_before_the_first_length_that_falls_short() -> None:
    found = horizon(scale_free(0.004), task="d4", max_length=4_096)
    short = [one.length for one in found.readings if one.accuracy < 99.9]
    assert short and found.longest == max(length for length in found.lengths if length < min(short))
    assert found.to_json()["lengths"] == list(found.lengths)


def test_the_spread_predicts_it() -> None:
    found = horizon(scale_free(0.0001), task="d4", max_length=8_192)
    spreads = [one.spread for one in found.readings if one.length >= 512]
    assert all(a is not None and b is not None and a < b for a, b in pairwise(spreads))
    assert found.predicted is not None and found.predicted > 8_192
    exact = horizon(compiled("d4"), task="d4", max_length=8_192)
    assert exact.reached and exact.predicted is None and exact.readings[-1].within == 0.0
    states = np.array([[0.0, 0.1], [0.0, -0.1], [3.0, 0.0], [3.0, 0.0]])
    within, apart = spread(states, np.array([4, 4, 7, 7]))
    assert apart == 3.0 and within == pytest.approx(0.1)  # sqrt(0.02 / 2), the mean known from two states only


def test_valid_lengths_alone_are_read() -> None:
    task = sdssm.task("arithmetic")
    found = horizon(compiled(task), task=task, max_length=600, strings=8)
    assert found.reached and all(length % 2 for length in found.lengths) and found.longest == 599
    assert found.readings[-1].labels == 8 * 8  # every other of the last 16 places


def test_strings_of_their_own_where_prefixes_will_not_do() -> None:
    valid = Machine(table=[[0, 1], [1, 0]], outputs=[1, 0])  # an even number of ones
    task = Task(name="even", machine=Machine(table=[[1, 0], [0, 1]]), valid=valid)
    found = horizon(compiled(task), task=task, max_length=100, strings=8)
    assert found.method == "fresh strings" and found.reached


def test_any_other_recurrent_model_in_pieces() -> None:
    model = Classifier(ModelSettings(name="lstm"), 2, 2, generator=torch.Generator().manual_seed(0))
    found = horizon(model, task="parity", max_length=2_000, strings=8)
    assert found.method == "pieces" and found.readings[-1].spread is None and found.longest < 2_000


def test_refusals() -> None:
    with pytest.raises(ExactError, match="pass task="):
        horizon(compiled("d4"))
    with pytest.raises(ExactError, match="reads 2 symbols and tells 8 classes"):
        horizon(compiled("d4"), task="cycle")
    other = Classifier(ModelSettings(name="transformer", embedding=16), 2, 2, generator=torch.Generator())
    with pytest.raises(ExactError, match="carries no state"):
        horizon(other, task="parity")


def test_the_benchmark_refuses_a_way_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = benchmark.subject(None)
    benchmark.check(model, 1_024)
    right = Words.carry
    monkeypatch.setattr(Words, "carry", lambda self, tokens, x: right(self, tokens.flip(1), x))
    with pytest.raises(SystemExit, match="differ"):
        benchmark.check(model, 1_024)


def run(command: object, *words: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())  # type: ignore[attr-defined]
    options = parser.parse_args(words)
    options.run(options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "parity"
    sdssm.train("parity", steps=50, out=out, device="cpu", settings={"state": 8})
    return out / "seed-0"


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(certify_command, "certify", str(folder), "--json")
    proved = json.loads(capsys.readouterr().out)
    assert proved["task"] == "parity" and proved["fails_at"] == proved["horizon"] + 1  # it has hardly begun to learn
    assert proved["float_horizon"] <= proved["horizon"] < len(proved["counterexample"])
    run(certify_command, "certify", str(folder))
    assert "with float32 rounding" in capsys.readouterr().out
    run(horizon_command, "horizon", str(folder), "--max-length", "3000", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["lengths"][-1] == 3_000 and found["longest"] < 3_000 and not found["reached"]
    run(horizon_command, "horizon", str(folder), "--max-length", "3000")
    assert "positions" in capsys.readouterr().out
