"""The playground inside the report: a string is stepped through, and each prediction is compared with Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

import sdssm
from sdssm.exporting.onnx_check import python_logits
from sdssm.tasks import get_task
from tests.browser.sample_pages import SamplePage
from tests.browser.views import expect, show_view

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

LENGTH = 24
#: What a panel says once its model has read the whole string.
READ = re.compile("First mistake at symbol|No mistake in")


@pytest.fixture
def player(page: Page, sample_page: SamplePage) -> Locator:
    """The playground of an SD-SSM, alone."""
    page.goto(sample_page.url)
    show_view(page, f"#/playground/{sample_page.find_run('parity/seed-0')['id']}")
    player = page.locator(".player")
    player.get_by_label("beside").select_option("no other model")
    expect(player.locator(".player-panel")).to_have_count(1)
    return player


def enter_string(player: Locator, text: str) -> None:
    """Type a string into the field of the playground."""
    player.get_by_text("Paste a string").click()
    player.get_by_role("textbox", name="The string").fill(text)
    player.get_by_label(f"symbol 0 of {len(text)}", exact=True).wait_for()


@pytest.mark.parametrize("folder", ["parity/seed-0", "parity/seed-1", "rnn/seed-0"])
def test_each_step_predicts_what_python_predicts(page: Page, sample_page: SamplePage, folder: str) -> None:
    word = torch.randint(2, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    predicted = python_logits(sdssm.load(sample_page.runs / folder), word)[0].argmax(-1)
    labels = get_task("parity").labels(word)[0]
    names = get_task("parity").machine.states or ()
    page.goto(sample_page.url)
    show_view(page, f"#/playground/{sample_page.find_run(folder)['id']}")
    player = page.locator(".player")
    enter_string(player, "".join(map(str, word[0].tolist())))
    panel = player.locator(".player-panel").first
    expect(panel.locator(".player-outcome")).to_contain_text(READ)
    verdict = panel.locator(".player-verdict")
    player.get_by_role("button", name="One symbol forward").focus()
    for step in range(LENGTH):
        page.keyboard.press("ArrowRight")
        player.get_by_label(f"symbol {step + 1} of {LENGTH}", exact=True).wait_for()  # changes with the panels
        stamp = "✓ right" if predicted[step] == labels[step] else "✗ wrong"
        expect(verdict, f"step {step}").to_contain_text(re.compile(rf"{stamp} It says {names[predicted[step]]}\b"))
    page.keyboard.press("Home")
    expect(verdict).to_contain_text("Nothing has been read yet")


def test_the_first_mistake_is_where_python_has_it(player: Locator, sample_page: SamplePage) -> None:
    word = torch.randint(2, (1, 200), generator=torch.Generator().manual_seed(5))
    predicted = python_logits(sdssm.load(sample_page.runs / "parity" / "seed-0"), word)[0].argmax(-1)
    wrong = (predicted != get_task("parity").labels(word)[0].numpy()).nonzero()[0]
    enter_string(player, "".join(map(str, word[0].tolist())))
    player.get_by_role("button", name="Go to the first mistake").click()
    player.get_by_label(f"symbol {wrong[0] + 1} of 200", exact=True).wait_for()
    expect(player.locator(".player-verdict.is-wrong")).to_have_count(1)


def test_the_longest_string_is_played_and_noise_is_noticed(player: Locator) -> None:
    player.get_by_role("button", name="10,000 symbols").click()
    player.get_by_role("button", name="Pause").or_(player.get_by_role("button", name="Play")).first.wait_for()
    player.get_by_role("button", name="Go to the end").click()
    player.get_by_label("symbol 10,000 of 10,000").wait_for()
    outcome, score = player.locator(".player-outcome"), player.locator(".player-score")
    expect(outcome).to_contain_text(READ)
    before = score.inner_text()
    player.get_by_label("after every symbol").check()
    player.get_by_text("noise on: after every symbol").wait_for()
    expect(outcome).to_contain_text(READ)
    assert score.inner_text() != before  # after the whole string, and not only while it is being read
    player.get_by_role("button", name="Remove noise").click()
    expect(score).to_have_text(before, use_inner_text=True)


def test_a_symbol_that_does_not_exist_is_refused_in_words(player: Locator) -> None:
    player.get_by_text("Paste a string").click()
    player.get_by_role("textbox", name="The string").fill("0120")
    problem = player.locator(".player-problem")
    expect(problem).to_contain_text("“2” is not a symbol")
    expect(problem).to_contain_text("Still showing the previous string")
    player.get_by_role("textbox", name="The string").fill("0, 1, 0")
    player.get_by_label("symbol 0 of 3", exact=True).wait_for()
    expect(problem).to_have_text("")


def test_the_snapped_model_is_the_extracted_machine(player: Locator) -> None:
    weights = player.get_by_role("group", name="Weights")
    expect(weights.get_by_role("button", name="trained")).to_have_attribute("aria-pressed", "true")
    weights.get_by_role("button", name="snapped").click()
    expect(weights.get_by_role("button", name="snapped")).to_have_attribute("aria-pressed", "true")
