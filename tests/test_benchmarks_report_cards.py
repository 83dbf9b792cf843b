"""The campaign of report cards: its plan, and the table of its results."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report_cards import planning
from benchmarks.report_cards.campaign import MEASURED
from benchmarks.report_cards.completion import is_complete, merge
from benchmarks.report_cards.files import write_cards
from benchmarks.report_cards.table import LENGTHS, write_table
from sdssm.automata import get_machine
from sdssm.checking import ReportCard, check
from sdssm.checking.card_section import TITLES
from sdssm.models.catalogue import MODELS
from tests.evaluation.machines import exact

RESULTS = Path(__file__).parent.parent / "results" / "report-cards"


def test_the_plan_fits_the_time_and_has_every_model(tmp_path: Path) -> None:
    long = planning.plan(tmp_path, MODELS, list(planning.TASKS), None, 1_000.0)
    short = planning.plan(tmp_path, MODELS, list(planning.TASKS), None, 10.0)
    assert len(long) == len(MODELS) * len(planning.TASKS)
    assert all(card.steps == planning.STEPS[card.model][1] for card in long)
    used = sum(planning.STEPS[card.model][0] * card.steps for card in short) / 1e6 / planning.AT_ONCE
    assert 5.0 < used < 15.0
    measured = {name for group in MEASURED for name in group}
    assert measured | {"costs"} == set(TITLES)


def test_the_table_has_accuracies_and_what_was_not_measured(tmp_path: Path) -> None:
    card = check(exact(get_machine("parity")), "parity", sections=["accuracy"], max_length=600, strings=16)
    cards = {"parity/sd-ssm": ReportCard.from_json({**card.to_json(), "steps": 7})}
    description = {"command": "nothing", "device": "CPU", "versions": {"torch": "2"}, "seconds": 1}
    write_cards(tmp_path, description, cards)
    page = (tmp_path / "README.md").read_text()
    cells = ["100.00" if length <= 600 else "-" for length in LENGTHS]
    assert f"| sd-ssm | 7 | {' | '.join(cells)} | 600+ | 600+ |" in page
    assert f"| chance |  | {' | '.join(['50.00'] * len(LENGTHS))} |  |  |" in page
    assert "| best constant answer |  | 50.00 | 50.00 | 50.00 | - | - |  |  |" in page
    for measure, level in (("balanced", "chance"), ("covering", "best constant answer")):
        assert f"| model | {' | '.join(f'{measure} at {length:,}' for length in LENGTHS)} |" in page
        assert f"| {level} | 50.00 | 50.00 | 50.00 | - | - |" in page
    assert page.count("| sd-ssm | 100.00 | 100.00 | 100.00 | - | - |") == 2
    assert page.count("| not measured ") == 4  # the sections that were left out
    assert "- parity/sd-ssm, accuracy beyond length 600: the given limit." in page


def test_sections_that_were_measured_later_name_their_device() -> None:
    model = exact(get_machine("parity"))
    first = check(model, "parity", sections=["accuracy"], max_length=8, strings=4)
    devices: dict[str, str] = {}
    card = merge(first, check(model, "parity", sections=["laws"], max_seconds=0.001), devices)
    assert devices == {"laws": "CPU"}
    assert is_complete(card, "accuracy")
    assert not is_complete(card, "laws")  # some were not checked for lack of time
    assert not is_complete(card, "costs")


def test_what_is_said_about_all_cards_follows_from_the_stored_ones(tmp_path: Path) -> None:
    (tmp_path / "cards.json").write_bytes((RESULTS / "cards.json").read_bytes())
    write_table(tmp_path)
    assert (tmp_path / "README.md").read_text() == (RESULTS / "README.md").read_text()
