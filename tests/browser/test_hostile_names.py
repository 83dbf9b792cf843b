"""Names, labels and paths from files are text: markup in them is shown and never runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.sample_pages import HOSTILE, SamplePage
from tests.browser.views import expect, settle, show_view

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: The start of the text, which no browser shows unless it was escaped.
SHOWN = HOSTILE.partition("\u2028")[0]
#: Clicks every button that can be clicked but Play, one after the other, with time for the page to follow.
CLICK_ALL = """async () => {
    for (const button of document.querySelectorAll("button")) {
        if (button.checkVisibility() && !button.disabled && !button.textContent.includes("Play")) button.click();
        await new Promise(requestAnimationFrame);
    }
}"""


def test_markup_in_names_is_text_in_every_view(page: Page, hostile_page: SamplePage) -> None:
    (run,) = (run for run in hostile_page.read_data()["runs"] if run["has_detail"])
    views = ["#/", f"#/task/{run['task']}", f"#/run/{run['id']}", f"#/playground/{run['id']}", f"#/compare/{run['id']}"]
    page.goto(hostile_page.url)
    for address in views:
        show_view(page, address)
        expect(page.locator("main"), address).to_contain_text(SHOWN, use_inner_text=True)
        page.evaluate(CLICK_ALL)
        settle(page)
        assert page.locator("img[src=x], main script, svg script").count() == 0, address
    page.wait_for_function("title => document.title.startsWith(title)", arg="Compare runs – " + SHOWN)


def test_the_page_without_scripts_shows_markup_as_text(page: Page, hostile_page: SamplePage) -> None:
    context = page.context.browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(hostile_page.url)
    expect(plain.locator("table")).to_contain_text(SHOWN.replace("/", "-"), use_inner_text=True)  # in the path
    assert plain.locator("img, iframe").count() == 0
    context.close()
