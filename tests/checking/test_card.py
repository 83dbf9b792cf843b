"""The report card: its sections, what happens if one fails, and what can be checked."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.automata import get_machine
from sdssm.checking import ReportCard, check
from sdssm.checking.accuracy_measurement import measure_accuracy
from sdssm.checking.card_section import SHARES, TITLES, CardSection, measure_section
from sdssm.checking.cost_measurement import measure_costs
from sdssm.checking.section_results import ForecastSection
from sdssm.errors import ModelError, SdssmError, SettingsError
from sdssm.models.registry import forget
from sdssm.tasks import get_task
from sdssm.tasks.label_shares import best_constants
from tests.evaluation.machines import exact, tiring_parity

ACCURACY = ["accuracy"]


class LastSymbol(nn.Module):
    """A model that predicts from the last symbol alone."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_symbols, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.table(tokens)
        return logits


# -- the best constant answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a5", "even_pairs", "arithmetic", "tomita4", "cycle"])
def test_the_best_constant_answer_agrees_with_samples(name: str) -> None:
    task = get_task(name)
    lengths = [task.longest_valid_length(length) for length in (3, 6, 25)]
    for length, share in zip(lengths, best_constants(task, lengths), strict=True):
        labels = task.sample(4_000, length, generator=torch.Generator().manual_seed(length)).labels[:, -1]
        frequent = 100 * float(np.bincount(labels.numpy()).max()) / 4_000
        assert share is not None and abs(share - frequent) < 4 * math.sqrt(share * (100 - share) / 4_000) + 1


def test_the_best_constant_answer_stays_finite_at_long_lengths() -> None:
    task = get_task("arithmetic")  # valid strings are an exponentially small share of all strings
    [share] = best_constants(task, [5_001])
    assert share is not None and 20 <= share < 30
    assert best_constants(get_task("a5"), [4_000], random_start=True) == [pytest.approx(100 / 60)]


# -- accuracy ----------------------------------------------------------------------------------------------------------


def test_lengths_of_a_model_that_fails() -> None:
    result = measure_accuracy(exact(tiring_parity(7)), get_task("parity"), max_length=3_000, strings=256)
    by_length = dict(zip(result.lengths, result.accuracy, strict=True))
    longest = result.longest_at_least(99.0)
    assert longest is not None and by_length[longest] >= 99 > by_length[longest + 1]
    assert all(share >= 99 for length, share in by_length.items() if length <= longest)
    assert result.failing_length is not None and longest < result.failing_length < 200
    assert result.lengths[-1] == 500  # it fails before, so longer strings are not read
    facts = result.facts()
    assert facts["chance"] == "50 %" and "best constant 50 %" in facts["length 40"]
    assert f"up to length {longest:,}" == facts["at least 99 %"]
    low, high = result.low[99], result.high[99]
    assert low < by_length[100] < high and 5 < high - low < 15


def test_an_exact_model_reaches_the_longest_length() -> None:
    result = measure_accuracy(exact(get_machine("parity")), get_task("parity"), max_length=1_500, strings=32)
    assert result.longest_at_least(99.0) == 1_500 and result.failing_length is None
    assert result.facts()["at least 99 %"] == "up to length 1,500, the longest measured"
    assert result.facts()["longest measured"] == "length 1,500: the given limit"
    assert 1_500 in result.lengths and len(result.lengths) < 600  # few lengths beyond the test length


def test_the_time_limit_keeps_the_training_lengths() -> None:
    result = measure_accuracy(exact(get_machine("parity")), get_task("parity"), strings=16, max_seconds=0.0)
    assert result.lengths == tuple(range(1, 41))
    assert "longer strings would have taken more" in result.facts()["longest measured"]


# -- the whole card ----------------------------------------------------------------------------------------------------


def test_an_untrained_model_says_so_in_the_first_line() -> None:
    card = check("lstm", "parity", sections=ACCURACY, max_length=20, strings=16, settings={"state": 4})
    assert str(card).splitlines()[0] == "lstm on parity: NOT TRAINED, with the initial weights of seed 0"
    assert card.weights == "initial" and not card.passes
    same = check("lstm", "parity", sections=ACCURACY, max_length=20, strings=16, settings={"state": 4})
    assert same["accuracy"].data == card["accuracy"].data


def test_a_run_knows_its_task_and_its_steps(tmp_path: Path) -> None:
    card = check(
        "sd-ssm",
        "parity",
        train=True,
        steps=4,
        settings={"state": 4, "batch": 8, "train_length": 12},
        out=tmp_path / "runs",
        sections=ACCURACY,
        max_length=20,
        strings=16,
        device="cpu",
    )
    assert (card.weights, card.steps, card.train_length, card.seed) == ("trained", 4, 12, 0)
    again = check(tmp_path / "runs", sections=ACCURACY, max_length=20, strings=16, device="cpu")
    assert again.weights == "run" and again.task == "parity" and again.steps == 4
    assert again["accuracy"].data == card["accuracy"].data
    with pytest.raises(SettingsError, match="holds a model that is trained; leave train out"):
        check(tmp_path / "runs", train=True)


def test_a_module_a_class_and_a_saved_model(tmp_path: Path) -> None:
    card = check(LastSymbol(2, 2), "parity", sections=["accuracy", "costs"], max_length=30, strings=16)
    assert card.weights == "given" and card.model == "LastSymbol"
    costs = card["costs"]
    assert "the whole prefix is read again for each token" in costs.facts["generation"]
    assert costs.data is not None and costs.data["parameters"] == 4 and costs.data["state_numbers"] is None
    try:
        assert check(LastSymbol, "parity", sections=ACCURACY, max_length=5, strings=16).weights == "initial"
    finally:
        forget("tests.checking.test_card:LastSymbol")
    model = exact(get_machine("parity"))
    model.task = get_task("parity")
    model.save(tmp_path / "model")
    saved = sdssm.check(tmp_path / "model", sections=ACCURACY, max_length=30, strings=16)
    assert saved.weights == "saved" and saved.passes and saved.value("accuracy", "longest_99") == 30


def test_a_card_survives_json_and_prints_everywhere() -> None:
    card = check(exact(get_machine("a5")), "a5", sections=["accuracy", "costs"], max_length=50, strings=16)
    again = ReportCard.from_json(json.loads(json.dumps(card.to_json())))
    assert again.to_json() == card.to_json() and str(again) == str(card)
    assert "1.67 %" in str(card) and "<table>" in card._repr_html_()
    page = card.to_markdown()
    assert page.startswith("# Report card: sd-ssm on a5") and "| chance | 1.67 % |" in page
    assert len(card.to_records()) == 50 and card.to_records()[0]["best_constant"] == 50.0
    assert "chance 1.67 %" in repr(card)
    with pytest.raises(SettingsError, match="the format of the card is 9"):
        ReportCard.from_json({"format": 9})


def test_a_section_that_fails_does_not_lose_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("out of luck\nand more")

    monkeypatch.setattr("sdssm.checking.checker.measure_costs", fail)
    card = check(exact(get_machine("parity")), "parity", sections=["accuracy", "costs"], max_length=20, strings=16)
    assert card["costs"].lines == {"not measured": "RuntimeError: out of luck"}
    assert card.value("costs", "parameters") is None and card["accuracy"].is_measured
    assert "not measured" in str(card) and "Not measured: RuntimeError: out of luck" in card.to_markdown()


def test_the_shortest_misclassified_string_is_in_the_card() -> None:
    card = check(exact(tiring_parity(6)), "parity", sections=["misclassified"], max_seconds=1.0)
    section = card["misclassified"]
    assert section.summary == "length 6, no shorter one exists"
    assert section.facts["result"].startswith("'1 1 1 1 1 1' (length 6) has the label 0, but the model predicts 1")


def test_all_sections_of_an_exact_model() -> None:
    card = check(exact(get_machine("parity")), "parity", max_length=1_000, strings=32, max_seconds=12.0)
    summaries = {section.name: section.summary or section.reason or "" for section in card.sections}
    assert list(summaries) == list(TITLES)
    assert summaries["accuracy"] == "at least 99 % to length 1,000, the longest measured"
    assert summaries["misclassified"].startswith("none found: all valid strings up to length ")
    assert summaries["automaton"] == "2 states, equivalent to that of the task; through its states"
    assert summaries["forecast"] == "no failure; measured none to 1,000"
    assert summaries["laws"].endswith(" laws hold") and card.passes and not card.failed_laws
    assert summaries["costs"].startswith(f"{card.value('costs', 'parameters'):,} parameters; training ")


def test_the_forecast_is_compared_with_the_measured_length() -> None:
    Forecast = pytest.importorskip("sdssm.checking.forecast").Forecast  # a class
    section = ForecastSection(Forecast(120.0, 60.0, 240.0, 0.2, "drift"), failing_length=60.0, measured_to=500)
    assert section.factor == 2.0 and section.to_json()["factor"] == 2.0
    assert (
        section.facts()["off by a factor"] == "2.00"
        and section.summary() == "if it fails, near 120; measured 60, factor 2.0"
    )
    none = ForecastSection(Forecast(None, cause="none"), failing_length=None, measured_to=50_000)
    assert none.summary() == "no failure; measured none to 50,000" and "off by a factor" not in none.facts()
    unknown = ForecastSection(Forecast(None, reason="too bad"), failing_length=3.0, measured_to=None)
    assert unknown.summary() == "no forecast; measured 3"


class Leaky(LastSymbol):
    """A model that breaks a law: the strings of a batch influence each other."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.table(tokens)
        return logits + logits[:1].flip(0).cumsum(1)


def test_a_broken_law_is_named() -> None:
    card = check(Leaky(2, 2), "parity", sections=["laws"], max_seconds=20.0)
    assert "rows" in card.failed_laws and not card.passes
    assert card["laws"].summary.startswith("broken: ") and card["laws"].facts["rows"].startswith(
        "BROKEN: the strings of"
    )
    assert card["laws"].facts["chunks"].startswith("does not apply: ")


def test_what_was_not_measured_does_not_pass() -> None:
    good = check(exact(get_machine("parity")), "parity", sections=["accuracy", "laws"], max_length=40, strings=16)
    assert good.passes and good.shortcomings == []
    unmeasured = good.with_section(CardSection(name="laws", reason="the time was up"))
    assert not unmeasured.passes and unmeasured.shortcomings == ["laws: not measured, the time was up"]
    laws = CardSection(name="laws", data={"laws": [], "unchecked": ["causal"]})
    assert good.with_section(laws).shortcomings == ["laws that were not checked, for lack of time: causal"]
    costs = check(exact(get_machine("parity")), "parity", sections=["costs"])
    assert costs.shortcomings == ["neither the accuracy nor the laws were asked for"]


def test_a_section_without_time_is_not_started() -> None:
    assert (
        "the time was up"
        in measure_section("laws", lambda seconds: pytest.fail("it was started"), 0.0).lines["not measured"]
    )
    assert set(SHARES) == set(TITLES)


def test_costs_leave_no_trace() -> None:
    model = exact(get_machine("parity"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    costs = measure_costs(model, get_task("parity"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters()) and not model.training
    assert costs.training_tokens is not None and costs.training_tokens > 0 and costs.training_bytes
    assert costs.state_numbers == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lstn", "a5"), "there is no model and no folder 'lstn'; did you mean 'lstm'"),
        (("lstm",), "lstm does not know its task; pass task="),
        ((LastSymbol(2, 2),), "a model alone does not know its task"),
        ((LastSymbol(2, 3), "parity"), "returns shape"),
        ((3, "parity"), "model is 3; pass a name"),
    ],
)
def test_what_cannot_be_checked(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(SdssmError, match=message):
        check(*arguments)


def test_options_that_do_not_fit() -> None:
    with pytest.raises(SettingsError, match="steps is 5, but nothing is trained; pass train=True"):
        check("lstm", "a5", steps=5)
    with pytest.raises(SettingsError, match="settings is"):
        check(LastSymbol(2, 2), "parity", settings={"state": 4})
    with pytest.raises(SdssmError, match="there is no section 'law'; did you mean 'laws'"):
        check("lstm", "a5", sections=["law"])
    with pytest.raises(SettingsError, match="max_seconds is 0"):
        check("lstm", "a5", max_seconds=0)
    with pytest.raises(ModelError, match="check it on the task that it was built for"):
        check(exact(get_machine("parity")), "a5")
