"""Fixtures of the tests in a browser. `page` is all that most tests need."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pytest

from tests.browser.chromium import NO_BROWSER, find_browser, started_browser, watch
from tests.browser.sample_pages import SamplePage, make_hostile_page, make_sample_page
from tests.browser.views import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESKTOP, PHONE = 1280, 390


class PageFactory(Protocol):
    """Opens an empty page, in a session of its own."""

    def __call__(self, *, width: int = DESKTOP, colours: Literal["light", "dark"] = "light") -> Page: ...


@pytest.fixture(scope="package")  # not "session": the event loop of playwright would run during all later tests
def browser() -> Iterator[Browser]:
    """Chromium without a window; without one the test is skipped."""
    path = find_browser()
    if path is None:
        pytest.skip(NO_BROWSER)
    with started_browser(path) as browser:
        yield browser


@pytest.fixture
def problems() -> list[str]:
    """What went wrong in the pages of a test so far. A test that provokes an error removes its line."""
    return []


@pytest.fixture
def new_page(browser: Browser, problems: list[str]) -> Iterator[PageFactory]:
    """Open pages of any width, light or dark; the test fails if `problems` is not empty in the end."""
    contexts = []

    def open_page(*, width: int = DESKTOP, colours: Literal["light", "dark"] = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=colours, reduced_motion="reduce"
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        watch(page, problems)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems, "\n".join(problems)


@pytest.fixture
def page(new_page: PageFactory) -> Page:
    """An empty page of 1280 pixels; the test fails on a console error, an exception, a dialog or a foreign request."""
    return new_page()


@pytest.fixture(scope="session")
def sample_page(tmp_path_factory: pytest.TempPathFactory) -> SamplePage:
    """A report of small runs, damaged runs among them."""
    return make_once(tmp_path_factory, "sample", make_sample_page)


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> SamplePage:
    """A report of a run in which all names are markup."""
    return make_once(tmp_path_factory, "hostile", make_hostile_page)


def make_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], SamplePage]) -> SamplePage:
    """Make a page that all workers of pytest-xdist share: the first one makes it, and the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent  # the folder of the test run; each worker has one below it
    folder = base / f"{name}-page"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "runs-folder"
        if not done.exists():
            page = make(folder)
            done.write_text(str(page.runs), encoding="utf-8")
    return SamplePage(folder / "report.html", Path(done.read_text(encoding="utf-8")))
