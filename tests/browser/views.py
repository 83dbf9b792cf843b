"""Go from view to view of a report page, and wait for what it shows.

A page changes some time after a click: the browser announces a new address by an event, and charts follow the layout by
some frames. So a test reads nothing right after an action. It waits with `expect` for what must be there; what must not
be there is checked after something that appears with the same change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from playwright.sync_api._generated import LocatorAssertions

#: Milliseconds until a test gives up waiting. Long, because the browser shares its cores with other tests.
PATIENCE = 30_000


def expect(locator: Locator, message: str | None = None) -> LocatorAssertions:
    """Return playwright's assertions about an element, which wait until they hold.

    A function, because test files are also read where playwright is not installed.
    """
    from playwright.sync_api import expect as make_assertions

    make_assertions.set_options(timeout=PATIENCE)
    return make_assertions(locator, message)


def wait_for_title(page: Page, title: str) -> None:
    """Wait until the page has a level-one heading with this text, and no other."""
    expect(page.get_by_role("heading", level=1)).to_have_text([title])


def show_view(page: Page, address: str) -> None:
    """Show the view of an address such as `#/task/parity`, and wait until its charts are drawn."""
    # The page's own listener was added first, so the view has been replaced when this one is called.
    page.evaluate(
        """address => new Promise(resolve => {
            if (location.hash === address) return resolve();
            addEventListener("hashchange", () => resolve(), { once: true });
            location.hash = address;
        })""",
        address,
    )
    settle(page)


def settle(page: Page) -> None:
    """Wait until every chart is drawn for the width that it has now, and nothing has changed for three frames.

    An action may change the page later than that, so wait for the new view first: with `show_view`, or with `expect`.
    """
    page.wait_for_function("""() => {
        // A chart that is wider than its margins is drawn again when its width changes, see web/src/charts/Chart.tsx.
        const isDrawn = (box) => {
            const picture = box.querySelector(":scope > svg");
            const width = Math.floor(box.clientWidth);
            return width < 150 || (picture !== null && Number(picture.getAttribute("width")) === width);
        };
        const watch = window.settling ??= { quiet: 0 };
        if (!watch.observer) {
            watch.observer = new MutationObserver(() => { watch.quiet = 0; });
            watch.observer.observe(document, { attributes: true, characterData: true, childList: true, subtree: true });
        }
        const isReady = [...document.querySelectorAll(".chart-box")].every(isDrawn)
            && document.querySelector(".player-chart:not(:has(.uplot))") === null;
        watch.quiet = isReady ? watch.quiet + 1 : 0;
        if (watch.quiet <= 3) return false;
        watch.observer.disconnect();
        delete window.settling;
        return true;
    }""")
