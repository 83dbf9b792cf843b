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
from tests.browser.views import show_view

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

LENGTH = 24


@pytest.fixture
def player(page: Page, sample_page: SamplePage) -> Locator:
    """The playground of an SD-SSM, alone."""
    page.goto(sample_page.url)
    show_view(page, f"#/playground/{sample_page.find_run('parity/seed-0')['id']}")
    player = page.locator(".player")
    player.get_by_label("beside").select_option("no other model")
    return player


def enter_string(player: Locator, text: str) -> None:
    """Type a string into the field of the playground."""
    player.get_by_text("Paste a string").click()
    player.get_by_role("textbox", name="The string").fill(text)
    assert player.get_by_label(f"symbol 0 of {len(text)}").count() == 1


def prediction(panel: Locator) -> str:
    """The name of the class that a model predicts now, as its panel says it."""
    match = re.search(r"It says (\w+)", panel.locator(".player-verdict").inner_text())
    assert match is not None
    return match[1]


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
    player.get_by_role("button", name="One symbol forward").focus()
    for step in range(LENGTH):
        page.keyboard.press("ArrowRight")
        assert prediction(panel) == names[predicted[step]], step
        assert panel.locator(".player-verdict.is-right").count() == int(predicted[step] == labels[step])
    assert player.get_by_label(f"symbol {LENGTH} of {LENGTH}").count() == 1
    page.keyboard.press("Home")
    assert "Nothing has been read yet" in panel.locator(".player-verdict").inner_text()


def test_the_first_mistake_is_where_python_has_it(player: Locator, sample_page: SamplePage) -> None:
    word = torch.randint(2, (1, 200), generator=torch.Generator().manual_seed(5))
    predicted = python_logits(sdssm.load(sample_page.runs / "parity" / "seed-0"), word)[0].argmax(-1)
    wrong = (predicted != get_task("parity").labels(word)[0].numpy()).nonzero()[0]
    enter_string(player, "".join(map(str, word[0].tolist())))
    player.get_by_role("button", name="Go to the first mistake").click()
    assert player.get_by_label(f"symbol {wrong[0] + 1} of 200").count() == 1
    assert player.locator(".player-verdict.is-wrong").count() == 1


def test_the_longest_string_is_played_and_noise_is_noticed(player: Locator) -> None:
    player.get_by_role("button", name="10,000 symbols").click()
    player.get_by_role("button", name="Pause").or_(player.get_by_role("button", name="Play")).first.wait_for()
    player.get_by_role("button", name="Go to the end").click()
    player.get_by_label("symbol 10,000 of 10,000").wait_for()
    before = player.locator(".player-score").inner_text()
    player.get_by_label("after every symbol").check()
    player.get_by_role("button", name="Remove noise").wait_for()
    player.get_by_text(re.compile("First mistake at symbol|No mistake in")).wait_for()
    assert player.locator(".player-score").inner_text() != before
    player.get_by_role("button", name="Remove noise").click()
    player.get_by_text(re.compile("First mistake at symbol|No mistake in")).wait_for()
    assert player.locator(".player-score").inner_text() == before


def test_a_symbol_that_does_not_exist_is_refused_in_words(player: Locator) -> None:
    player.get_by_text("Paste a string").click()
    player.get_by_role("textbox", name="The string").fill("0120")
    problem = player.locator(".player-problem").inner_text()
    assert "“2” is not a symbol" in problem and "Still showing the previous string" in problem
    player.get_by_role("textbox", name="The string").fill("0, 1, 0")
    assert player.locator(".player-problem").inner_text() == ""
    assert player.get_by_label("symbol 0 of 3").count() == 1


def test_the_snapped_model_is_the_extracted_machine(player: Locator) -> None:
    weights = player.get_by_role("group", name="Weights")
    assert weights.get_by_role("button", name="trained").get_attribute("aria-pressed") == "true"
    weights.get_by_role("button", name="snapped").click()
    assert weights.get_by_role("button", name="snapped").get_attribute("aria-pressed") == "true"
