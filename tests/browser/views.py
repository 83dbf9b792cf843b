"""Go from view to view of a report page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def show_view(page: Page, address: str) -> None:
    """Show the view of an address such as `#/task/parity`, and wait until its charts are drawn."""
    page.evaluate("address => { location.hash = address; }", address)
    settle(page)


def settle(page: Page) -> None:
    """Wait until the page has drawn what it has to draw: charts follow the layout by some frames."""
    page.evaluate("""async () => {
        const frame = () => new Promise(requestAnimationFrame);
        for (let quiet = 0, frames = 0, before = ""; quiet < 3; frames++) {
            if (frames > 600) throw new Error("the page does not come to rest");
            await frame();
            const now = document.body.innerHTML;
            quiet = now === before ? quiet + 1 : 0;
            before = now;
        }
    }""")


def scroll_through(page: Page) -> None:
    """Scroll to the end and back, so that charts which are drawn near the screen are drawn."""
    page.evaluate("""async () => {
        for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
            scrollTo(0, y);
            await new Promise(requestAnimationFrame);
        }
        scrollTo(0, 0);
    }""")
    settle(page)
