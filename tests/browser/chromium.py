"""Find and start Chromium, and watch what a page does there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request

#: Why tests are skipped; `tests/conftest.py` repeats it in the last lines of a test run.
NO_BROWSER = "no browser: make browser installs one"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: The sandbox does not work for root; nothing but 127.0.0.1 is reachable, and Chromium does not try.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]


def find_browser() -> str | None:
    """Return the path of a browser, or None if there is none or playwright, which drives it, is not installed."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return None
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def started_browser(path: str) -> Iterator[Browser]:
    """Start the browser at `path` without a window, and close it at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def is_local(request: Request) -> bool:
    """Whether a request stays where the page came from: a page is one file, or comes from the studio on 127.0.0.1."""
    url = urlsplit(str(request.url))
    if url.scheme in ("data", "blob", "about"):
        return True
    if request.is_navigation_request():
        return url.scheme == "file" or url.hostname == "127.0.0.1"
    page = urlsplit(str(request.frame.page.url))
    return url.hostname == "127.0.0.1" and (url.scheme, url.netloc) == (page.scheme, page.netloc)


def watch(page: Page, problems: list[str]) -> None:
    """Add a line to `problems` for each console error, exception, dialog, and request that leaves the page."""

    def note_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"console error: {message.text}")

    def note_exception(error: Error) -> None:
        problems.append(f"exception: {error}")

    def note_dialog(dialog: Dialog) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def note_request(request: Request) -> None:
        if not is_local(request):
            problems.append(f"request: {request.url}")

    page.on("console", note_console)
    page.on("pageerror", note_exception)
    page.on("dialog", note_dialog)
    page.on("request", note_request)
