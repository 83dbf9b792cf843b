"""Models in the browser agree with torch: predictions after every prefix of 10,000 strings, for each kind of model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from sdssm.exact import compile as compile_exact
from sdssm.models import Classifier, TokenModel
from sdssm.report.page.player_models import make_machine_model
from sdssm.tasks import get_task
from tests.browser.chromium import watch
from tests.browser.player_pages import make_entry, make_untrained, pack_model, write_playground
from tests.browser.views import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TASK = get_task("cycle")  # three symbols, five classes
#: Logits differ by rounding: those of the browser are sums in float64.
TOLERANCE = 1e-4
#: Strings whose predictions are compared for one model of each kind, and for other settings.
STRINGS, FEWER, LENGTH = 10_000, 500, 20

KINDS = ("sd-ssm", "rnn", "lstm", "complex-diagonal", "machine")

SMALL = {"state": 12, "dictionary": 4}
PAPER = {**SMALL, "initial_state": "zero", "input_matrix": True, "rescale": False}
LINEAR = {"readout": "linear", "norm": "affine", "projection": False, "scale_end": None}
#: Name of a case -> model, settings of the mixer, settings of the model.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sd-ssm": ("sd-ssm", SMALL, {}),
    "rnn": ("rnn", {"state": 12}, {}),
    "lstm": ("lstm", {"state": 12}, {}),
    "complex-diagonal": ("complex-diagonal", {"state": 12}, {}),
    "sd-ssm as published": ("sd-ssm", PAPER, {**LINEAR, "query": True}),
    "sd-ssm, wide inputs": ("sd-ssm", PAPER, {**LINEAR, "query": True, "width": 7}),
    "sd-ssm, skip and embedding": (
        "sd-ssm",
        {**SMALL, "skip": True},
        {"embedding": 6, "embedding_scale": 0.5, "readout": "mlp", "hidden": 9, "query": True},
    ),
    "sd-ssm, skip": ("sd-ssm", {**SMALL, "skip": True, "temperature": 0.5}, {"norm": "none", "projection": False}),
    "sd-ssm, centres": ("sd-ssm", {**SMALL, "column_norm": None}, {"centres": 8, "norm": "none", "projection": False}),
    "sd-ssm, stochastic": ("sd-ssm", {**SMALL, "transition": "stochastic", "rescale": False}, {}),
    "sd-ssm, nonnegative": ("sd-ssm", {**SMALL, "transition": "nonnegative", "constraint": 0.5}, {}),
    "sd-ssm, sum-one": ("sd-ssm", {**SMALL, "transition": "sum-one"}, {}),
    "rnn, query": ("rnn", {"state": 12, "initial_state": "learned"}, {"query": True, "readout_bias": True}),
    "rnn, last-bare": ("rnn", {"state": 12}, {"block": "last-bare", "embedding": 5}),
    "lstm, embedding": ("lstm", {"state": 12, "initial_state": "learned"}, {"embedding": 4, "norm": "plain"}),
    "complex-diagonal, B = 0": (
        "complex-diagonal",
        {"state": 12, "input_matrix": False, "radius": 0.99, "generator": "separate"},
        {"query": True},
    ),
}


def make_model(name: str, mixer: dict[str, Any], others: dict[str, Any]) -> Classifier:
    """Build the model of a case."""
    model = make_untrained(TASK, name, mixer, others)
    if model.settings.centres is not None:
        model.assign_states(torch.tensor([0, 1, 2, 3, 4, 0]), 1)
    return model


@pytest.fixture(scope="module")
def models() -> dict[str, TokenModel]:
    """The models of all cases, and the exact model of the automaton."""
    return {**{name: make_model(*case) for name, case in CASES.items()}, "machine": compile_exact("cycle")}


@pytest.fixture(scope="module")
def address(models: dict[str, TokenModel], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A playground page with all models."""
    folder, entries = tmp_path_factory.mktemp("player"), []
    for name, model in models.items():
        is_machine = name == "machine"
        assert isinstance(model, Classifier)
        player = make_machine_model(TASK.machine, TASK.n_classes) if is_machine else pack_model(model, folder / name)
        entries.append(make_entry(name, TASK, player))
    return write_playground(folder / "page.html", entries)


@pytest.fixture(scope="module")
def player_page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with all models, which all tests of this file share: they change nothing in it."""
    problems: list[str] = []
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    watch(page, problems)
    page.goto(address)
    yield page
    page.close()
    assert not problems, "\n".join(problems)


def predict(page: Page, entry: int, words: list[list[int]]) -> list[list[int]]:
    """Return the predictions of a model in the browser; strings travel as digits, which is faster than as lists."""
    digits = ["".join(map(str, word)) for word in words]
    script = """([entry, words]) =>
        sdssm.predict(entry, words.map((word) => Array.from(word, Number))).map((labels) => labels.join(""))"""
    return [list(map(int, labels)) for labels in page.evaluate(script, [entry, digits])]


@pytest.mark.parametrize("name", [*CASES, "machine"])
def test_predictions_are_those_of_torch(player_page: Page, models: dict[str, TokenModel], name: str) -> None:
    count = STRINGS if name in KINDS else FEWER
    words = torch.randint(TASK.n_symbols, (count, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = models[name](words)
    entry = list(models).index(name)
    predicted = np.array(predict(player_page, entry, words.tolist()))
    best = expected.topk(2).values
    is_clear = (best[..., 0] - best[..., 1] > TOLERANCE).numpy()
    assert is_clear.mean() > 0.99
    assert (predicted == expected.argmax(-1).numpy())[is_clear].all()
    script = "([entry, words]) => words.map((word) => sdssm.logits(entry, word))"
    logits = player_page.evaluate(script, [entry, words[:20].tolist()])
    scale = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(logits, expected[:20], rtol=0, atol=TOLERANCE * scale)
