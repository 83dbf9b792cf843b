"""The studio in a browser while a training runs: the page follows the folder without being loaded again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import PHONE, PageFactory
from tests.browser.views import expect
from tests.programs import SDSSM, started_studio

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: Milliseconds for what waits for a training or a command.
PATIENCE = 90_000
#: The page asks the studio every two seconds; so that the test waits less, it asks ten times as often.
HURRY = """{
    const wait = window.setTimeout;
    window.setTimeout = (call, time, ...rest) => wait(call, time === 2000 ? 200 : time, ...rest);
}"""
#: The step that the label of the training curve names.
STEP = re.compile(r"at step ([\d,]+)")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def training(runs: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """An empty list for trainings; they are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start_training(folder: Path) -> subprocess.Popen[bytes]:
    """Train a small model in a process of its own, for longer than any test."""
    settings = [
        "--steps",
        "1_000_000",
        "--state",
        "8",
        "--batch",
        "16",
        "--train-length",
        "10",
        "--set",
        "log_every=20",
    ]
    command = [*SDSSM, "train", "parity", *settings, "--out", str(folder), "--device", "cpu", "--quiet"]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})


def shown_step(page: Page) -> int:
    """Return the last step of the training curve."""
    label = page.locator("[role=img][aria-label^='Training accuracy']").first.get_attribute("aria-label") or ""
    match = STEP.search(label)
    assert match is not None, label
    return int(match[1].replace(",", ""))


def test_a_training_is_watched_evaluated_and_survives_the_studio(
    new_page: PageFactory, problems: list[str], runs: Path, training: list[subprocess.Popen[bytes]]
) -> None:
    page = new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(HURRY)
    with started_studio(str(runs), "--port", "0", "--allow-actions") as (studio, port):
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_text("There are no runs in").wait_for()
        expect(page.get_by_text("sdssm train parity")).to_be_visible()

        training.append(start_training(runs / "parity"))
        page.get_by_role("heading", name="Training now").wait_for()  # appears without a reload
        page.get_by_role("progressbar", name="Steps of the training").wait_for()
        first = shown_step(page)
        page.wait_for_function(
            "first => [...document.querySelectorAll('[role=img]')].some(chart => {"
            " const match = /Training accuracy.* at step ([\\d,]+)/.exec(chart.ariaLabel);"
            " return match && Number(match[1].replaceAll(',', '')) > first; })",
            arg=first,
        )

        page.get_by_role("link", name=re.compile("^Run: parity")).click()
        evaluate = page.get_by_role("button", name="Evaluate")
        expect(evaluate).to_be_disabled()
        training[0].send_signal(signal.SIGINT)  # saves the run and ends
        training[0].wait(60)
        expect(evaluate).to_be_enabled(timeout=PATIENCE)
        expect(page.get_by_text("not evaluated yet").first).to_be_visible()
        evaluate.click()
        page.get_by_text("has finished").first.wait_for()
        page.get_by_text("on random strings beyond them, up to length 500").wait_for()

        studio.send_signal(signal.SIGINT)
        studio.wait(60)
        page.get_by_text("connection lost").wait_for()
        if not problems:  # the page asks again and again; its errors may arrive later than the text
            page.wait_for_event("console")
        assert problems and all("Failed to load resource: net::ERR_" in line for line in problems)
    with started_studio(str(runs), "--port", str(port)):
        page.get_by_role("status").get_by_text("live").wait_for()
        page.get_by_text("on random strings beyond them, up to length 500").wait_for()
    page.close()
    problems.clear()


def test_without_permission_there_are_no_buttons(page: Page, runs: Path) -> None:
    copy_runs(runs)
    with started_studio(str(runs), "--port", "0") as (_, port):
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_role("link", name=re.compile("^Run: parity")).first.click()
        page.get_by_role("heading", name="Settings, versions, command").wait_for()  # the view of the run
        assert page.get_by_role("button", name="Evaluate").count() == 0
        page.close()  # before the studio ends, which the page would notice


def test_a_name_is_shown_as_text_and_the_page_has_no_serious_accessibility_problem(
    new_page: PageFactory, runs: Path
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    copy_runs(runs / "<img src=x onerror=alert(1)>")
    (runs / "broken").mkdir()
    (runs / "broken" / "config.json").write_text("{")
    with started_studio(str(runs), "--port", "0", "--allow-actions") as (_, port):
        for width, colours in ((1280, "light"), (PHONE, "dark")):
            page = new_page(width=width, colours=colours)  # type: ignore[arg-type]  # one of two words
            page.goto(f"http://127.0.0.1:{port}/")
            page.get_by_text("could not be read").wait_for()
            page.get_by_role("link", name=re.compile("^Run: parity")).first.click()
            page.get_by_role("button", name="Evaluate").wait_for()
            assert page.locator("img").count() == 0
            found = Axe().run(page).response["violations"]
            assert not [item["id"] for item in found if item["impact"] in ("serious", "critical")]
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            page.close()


def copy_runs(folder: Path) -> None:
    """Copy runs of an earlier version into a folder."""
    import shutil

    data = Path(__file__).parents[1] / "data" / "written-by-0.1.0" / "runs"
    shutil.copytree(data / "parity", folder / "parity")
