"""The campaign of report cards: its plan, and the table of its results."""

from __future__ import annotations

from pathlib import Path

from benchmarks import report_cards
from benchmarks.report_cards_table import LENGTHS
from sdssm.automata import get_machine
from sdssm.checking import ReportCard, check
from sdssm.checking.card_section import TITLES
from sdssm.models.catalogue import MODELS
from tests.evaluation.machines import exact


def test_the_plan_fits_the_time_and_has_every_model(tmp_path: Path) -> None:
    long = report_cards.plan(tmp_path, MODELS, list(report_cards.TASKS), None, 1_000.0)
    short = report_cards.plan(tmp_path, MODELS, list(report_cards.TASKS), None, 10.0)
    assert len(long) == len(MODELS) * len(report_cards.TASKS)
    assert all(card.steps == report_cards.STEPS[card.model][1] for card in long)
    used = sum(report_cards.STEPS[card.model][0] * card.steps for card in short) / 1e6 / report_cards.AT_ONCE
    assert 5.0 < used < 15.0
    measured = {name for group in report_cards.MEASURED for name in group}
    assert measured | {"costs"} == set(TITLES)


def test_the_table_has_accuracies_and_what_was_not_measured(tmp_path: Path) -> None:
    card = check(exact(get_machine("parity")), "parity", sections=["accuracy"], max_length=600, strings=16)
    cards = {"parity/sd-ssm": ReportCard.from_json({**card.to_json(), "steps": 7})}
    description = {"command": "nothing", "device": "CPU", "versions": {"torch": "2"}, "seconds": 1}
    report_cards.write_cards(tmp_path, description, cards)
    page = (tmp_path / "README.md").read_text()
    cells = ["100.00" if length <= 600 else "-" for length in LENGTHS]
    assert f"| sd-ssm | 7 | {' | '.join(cells)} | 600+ | 600+ |" in page
    assert "Chance is 50 %; the best constant answer has 50 % at 1" in page
    assert page.count("not measured") == 4  # the sections that were left out
