"""The picture of the README: two models of the gallery in the playground, one of which has just made a mistake."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sdssm.cli import main as run_command
from tests.browser.chromium import NO_BROWSER, find_browser, started_browser

#: The size of the picture, in the pixels of the page, and how many pixels of a screen each of them has.
WIDTH, HEIGHT, SCALE = 1180, 1006, 1.0


def picture_playground(folders: list[Path], path: Path) -> None:
    """Write a picture of two runs in the playground, at the first mistake of the second; without a browser, say so."""
    program = find_browser()
    if program is None:
        print(f"{path} is not written: {NO_BROWSER}")
        return
    with TemporaryDirectory() as scratch, started_browser(program) as browser:
        file = Path(scratch) / "playground.html"
        run_command(["playground", *map(str, folders), "-o", str(file)])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        page.goto(file.as_uri())
        page.get_by_role("button", name="Go to the first mistake").click()
        page.evaluate("window.scrollTo(0, 0)")  # the click has moved the page to the diagrams
        page.screenshot(path=path)
