"""Every view of the report is accessible: axe-core finds nothing serious, light or dark, and a phone shows all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser.conftest import PHONE, PageFactory
from tests.browser.sample_pages import SamplePage
from tests.browser.views import show_view, wait_for_title

if TYPE_CHECKING:
    from playwright.sync_api import Page


#: What may differ between light and dark; all else is checked once.
COLOUR_RULES = ("color-contrast", "link-in-text-block")


def find_violations(page: Page, *rules: str) -> list[str]:
    """Return a line for each serious or critical violation that axe-core finds, of these rules or of all."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else None
    violations = Axe().run(page, options=options).response["violations"]
    return [
        f"{violation['id']}: {violation['help']}: {violation['nodes'][0]['html'][:200]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_serious(
    new_page: PageFactory, sample_page: SamplePage, colours: Literal["light", "dark"]
) -> None:
    page = new_page(colours=colours)
    page.goto(sample_page.url)
    found = {}
    for name, address in sample_page.list_views().items():
        show_view(page, address)
        found[name] = find_violations(page, *(COLOUR_RULES if colours == "dark" else ()))
    assert not any(found.values()), "\n".join(f"{name}: {line}" for name, lines in found.items() for line in lines)


def test_axe_notices_a_planted_violation(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    wait_for_title(page, "sdssm report")
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any(line.startswith("button-name") for line in find_violations(page))


def test_a_phone_shows_every_view_without_scrolling_sideways(new_page: PageFactory, sample_page: SamplePage) -> None:
    page = new_page(width=PHONE)
    page.goto(sample_page.url)
    widths = {}
    for name, address in sample_page.list_views().items():
        show_view(page, address)
        widths[name] = page.evaluate("document.documentElement.scrollWidth")
    assert widths == dict.fromkeys(widths, PHONE)
