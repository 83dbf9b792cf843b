"""The page of `sdssm playground`: strings are valid, keys work, names are text, and everybody can use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from sdssm.report.page.player_models import make_machine_model
from sdssm.tasks import get_task
from tests.browser.conftest import DESKTOP, PHONE, PageFactory
from tests.browser.player_pages import make_entry, make_untrained, pack_model, write_playground
from tests.browser.test_accessibility import find_violations
from tests.browser.views import expect, settle

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with two untrained models of parity, the second with a hostile name, and one of arithmetic."""
    folder, parity, arithmetic = tmp_path_factory.mktemp("playground"), get_task("parity"), get_task("arithmetic")
    small = {"state": 8, "dictionary": 3}
    first = pack_model(make_untrained(parity, "sd-ssm", small, {}), folder / "first")
    second = pack_model(make_untrained(parity, "rnn", {"state": 8}, {}), folder / "second")
    third = pack_model(make_untrained(arithmetic, "sd-ssm", small, {}), folder / "third")
    entries = [
        make_entry("sd-ssm", parity, first, make_machine_model(parity.machine, 2)),
        make_entry(HOSTILE, parity, second),
        make_entry("sd-ssm", arithmetic, third),
    ]
    return write_playground(folder / "page.html", entries)


def show_string(page: Page) -> Locator:
    """Open the field that shows the string of the playground as text, and return it."""
    page.get_by_text("Paste a string").click()
    field = page.get_by_label("The string")
    field.wait_for()
    return field


def test_random_strings_are_valid(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("Model", exact=True).select_option("arithmetic: sd-ssm")
    task, symbols = get_task("arithmetic"), get_task("arithmetic").machine.symbol_names
    field, texts = show_string(page), [""]
    for _ in range(5):
        page.get_by_role("button", name="40 symbols").click()
        expect(field).not_to_have_value(texts[-1])
        page.get_by_label("symbol 0 of 39", exact=True).wait_for()
        texts.append(text := field.input_value())
        tokens = torch.tensor([symbols.index(letter) for letter in text])
        assert len(text) == 39 and task.labels(tokens)[-1] >= 0  # no valid string has 40 symbols
    assert len(set(texts)) == 6
    page.get_by_role("button", name="clear").click()
    expect(page.get_by_role("button", name="+", exact=True)).to_be_disabled()  # a string starts with a digit
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.get_by_role("button", name="3", exact=True)).to_be_disabled()
    expect(field).to_have_value("3")


def test_keys_work_before_anything_has_the_focus(page: Page, address: str) -> None:
    page.goto(address)
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.get_by_label("symbol 11 of 200").wait_for()
    page.keyboard.press("1")
    page.get_by_label("symbol 201 of 201").wait_for()
    expect(show_string(page)).to_have_value(re.compile("^[01]{200}1$"))
    page.keyboard.press("0")  # the field is not focused: the key appends a symbol
    page.get_by_label("symbol 202 of 202").wait_for()
    page.keyboard.press("Backspace")
    page.keyboard.press("Home")
    page.get_by_label("symbol 0 of 201").wait_for()
    page.get_by_label("speed:").focus()
    page.keyboard.press("Space")  # a slider has no use for it
    page.get_by_role("button", name="Pause").wait_for()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("scrollY") == 0


def test_the_end_says_how_often_each_model_was_wrong(page: Page, address: str) -> None:
    page.goto(address)
    panel = page.locator(".player-panel").first
    panel.get_by_role("button", name="snapped").click()
    conclusion = page.locator(".player-conclusion")
    expect(panel).to_contain_text("No mistake in 200 symbols")
    expect(conclusion).to_have_text("")
    page.keyboard.press("End")
    expect(conclusion).to_contain_text("sd-ssm (snapped) made no mistake in 200 symbols.")
    expect(conclusion).to_contain_text(f"{HOSTILE} was wrong")
    expect(panel.locator(".player-verdict")).to_contain_text("right beyond symbol 40: 100")


def test_lengths_are_clamped_in_words_and_long_strings_play_faster(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("speed: 20 a second").wait_for()
    page.get_by_text("Paste a string").click()
    field = page.get_by_label("Length of a random string")
    field.fill("20000")
    field.press("Enter")
    notice = page.locator(".player-notice")
    expect(notice).to_contain_text("The string has 10,000 symbols: that is the longest here")
    page.get_by_label("speed: 334 a second").wait_for()
    page.get_by_role("button", name="40 symbols").click()
    expect(notice).to_have_count(0)  # it was there before


def test_the_cursor_of_the_chart_follows_a_change_of_length(page: Page, address: str) -> None:
    page.goto(address)
    chart = page.locator(".player-panel .uplot").first
    chart.wait_for()

    def distance_to_the_end() -> float:
        settle(page)
        plot, cursor = chart.locator(".u-over").bounding_box(), chart.locator(".player-cursor").bounding_box()
        assert plot and cursor
        return float(abs(plot["x"] + plot["width"] - cursor["x"]))

    page.keyboard.press("End")
    page.get_by_label("symbol 200 of 200").wait_for()
    page.get_by_role("button", name="40 symbols").click()
    page.get_by_label("symbol 0 of 40").wait_for()
    assert distance_to_the_end() > 100
    page.keyboard.press("End")
    page.get_by_label("symbol 40 of 40").wait_for()
    assert distance_to_the_end() < 3
    page.keyboard.press("Backspace")
    page.get_by_label("symbol 39 of 39").wait_for()
    assert distance_to_the_end() < 3


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_play_button_can_be_read_under_the_pointer(
    new_page: PageFactory, address: str, colours: Literal["light", "dark"]
) -> None:
    page = new_page(colours=colours)
    page.goto(address)
    page.get_by_role("button", name="Play").hover()
    page.locator("button.is-primary:hover").wait_for()
    assert find_violations(page) == []


def test_the_exact_model_makes_no_mistake_until_it_is_disturbed(page: Page, address: str) -> None:
    page.goto(address)
    panel = page.locator(".player-panel").first
    panel.get_by_role("button", name="snapped").click()
    expect(panel).to_contain_text("No mistake in 200 symbols")
    page.get_by_label("symbol 0 of 200").fill("100")
    page.get_by_label("size:").fill("200")
    for place in (100, 101, 102):  # a kick is added to the state; more of them move it far enough
        page.get_by_label(f"symbol {place} of 200").wait_for()
        page.get_by_role("button", name="Kick once, here").click()
        page.get_by_role("button", name="One symbol forward").click()
    expect(panel).to_contain_text("After the first of 3 kicks, at symbol 100: ")
    expect(panel).to_contain_text("(without the kicks: 0 wrong)")
    expect(page.locator(".player-badge")).to_contain_text("noise on: kick at symbol 100, 101, 102")
    page.get_by_label("size:").fill("1")  # the kicks get the new size
    expect(panel).to_contain_text("it stays right in 101 predictions")
    page.get_by_label("size:").fill("200")
    page.get_by_label("after every symbol").check()
    expect(panel).to_contain_text("First mistake at symbol")
    page.get_by_role("button", name="Remove noise").click()
    expect(panel).to_contain_text("No mistake in 200 symbols")


def test_the_marks_of_the_diagram_are_on_the_states(page: Page, address: str) -> None:
    page.goto(address)
    panel = page.locator(".player-panel").first
    panel.get_by_role("button", name="snapped").click()
    page.get_by_text("Paste a string").click()
    page.get_by_label("The string").fill("01")
    page.get_by_label("symbol 0 of 2").fill("2")
    page.get_by_label("symbol 2 of 2").wait_for()
    odd = float(panel.locator('[data-state="1"] circle').first.get_attribute("cx") or "nan")
    expect(panel.locator(".player-mark-true circle")).to_have_attribute("cx", f"{odd:g}")
    expect(panel.locator(".player-mark-model.is-right")).to_have_count(1)
    expect(panel.locator('.arrow.is-lit[data-symbols~="1"]')).to_have_count(1)
    expect(panel.locator(".arrow.is-lit")).to_have_count(1)


def test_a_hostile_name_is_text(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.get_by_role("heading", name=HOSTILE)).to_have_count(1)
    assert page.locator("img").count() == 0


@pytest.mark.parametrize(("width", "colours"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")])
def test_it_is_accessible(new_page: PageFactory, address: str, width: int, colours: Literal["light", "dark"]) -> None:
    page = new_page(width=width, colours=colours)
    page.goto(address)
    page.get_by_text("Paste a string").click()
    page.get_by_label("symbol 0 of 200").fill("57")
    page.get_by_label("symbol 57 of 200").wait_for()
    settle(page)
    assert find_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_tiny_probability_is_one_line(page: Page, address: str) -> None:
    page.goto(address)
    values = page.locator(".player-panel").first.locator(".player-share-value")
    page.keyboard.press("End")
    expect(values).to_have_count(2)
    values.first.evaluate("value => { value.textContent = '<\u202f0.01\u202f%'; }")  # the longest text
    long, short = values.first.bounding_box(), values.nth(1).bounding_box()
    assert long and short and long["height"] == short["height"]
