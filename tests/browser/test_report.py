"""The report page in a browser: every view by mouse and by keyboard, values, damaged folders, size and speed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.sample_pages import SamplePage, make_large_page
from tests.browser.views import expect, settle, show_view, wait_for_title

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: The sections of a run's view; each is there also if nothing is known.
SECTIONS = [
    "Accuracy against length",
    "Training",
    "How long can strings be?",
    "Automaton read from the weights",
    "Transition matrices",
    "Eigenvalues",
    "States in two dimensions",
    "Settings, versions, command",
]


def test_all_views_by_clicking(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    wait_for_title(page, "sdssm report")
    views = page.get_by_role("navigation", name="Views")
    views.get_by_role("link", name="Tasks").click()
    for task in ("parity", "d4"):
        page.get_by_role("navigation", name="Tasks").get_by_role("link", name=task, exact=True).click()
        wait_for_title(page, task)
        expect(page.locator("svg [data-state]").nth(1)).to_be_visible()
    views.get_by_role("link", name="Tables").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("d4")
    page.get_by_role("cell").first.wait_for()
    views.get_by_role("link", name="Overview").click()
    wait_for_title(page, "sdssm report")
    boxes = page.get_by_role("checkbox", name=re.compile("^Compare parity"))
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("link", name="Compare 2 runs").click()
    wait_for_title(page, "Compare runs")
    expect(page.get_by_role("button", name=re.compile("^Remove"))).to_have_count(2)
    page.get_by_role("link", name=re.compile("^parity · sd-ssm.*seed 0")).first.click()
    for name in SECTIONS:
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    page.go_back()
    wait_for_title(page, "Compare runs")


def test_charts_survive_a_window_narrower_than_their_margins(page: Page, sample_page: SamplePage) -> None:
    # Chromium makes the window one pixel wide for a moment while it prints or takes a picture of a whole page.
    page.goto(sample_page.url)
    for address in sample_page.list_views().values():
        show_view(page, address)
        page.set_viewport_size({"width": 1, "height": 800})
        page.wait_for_function("innerWidth === 1")
        settle(page)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.wait_for_function("innerWidth === 1280")
        settle(page)
        widths = page.locator(".chart-box > svg").evaluate_all("charts => charts.map(chart => chart.clientWidth)")
        assert all(width > 40 for width in widths), address  # drawn again for the wide window


def test_every_view_has_its_own_heading_and_title(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    titles: list[str] = []
    for name, address in sample_page.list_views().items():
        show_view(page, address)
        expect(page.get_by_role("heading", level=1), name).to_have_count(1)
        page.wait_for_function("titles => !titles.includes(document.title)", arg=titles)  # it follows the view
        titles.append(page.title())


def test_a_curve_tells_its_values_under_the_pointer(page: Page, sample_page: SamplePage) -> None:
    run = sample_page.find_run("rnn/seed-0")
    page.goto(sample_page.url)
    show_view(page, f"#/run/{run['id']}")
    chart = page.get_by_role("img", name=re.compile("^Accuracy on")).first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + box["height"] / 2)  # the longest length
    tip = chart.locator("[aria-label=tip] text")
    evaluation = json.loads((sample_page.runs / "rnn" / "seed-0" / "evaluation.json").read_text())
    accuracy = evaluation["accuracy"][-1]
    for part in ("length 60", "chance 50\u202f%", f"{accuracy:.1f}".removesuffix(".0")):
        expect(tip).to_contain_text(part)
    page.mouse.move(box["x"], box["y"] - 20)
    expect(tip).to_have_count(0)  # it was there before


def test_the_keyboard_is_enough(page: Page, sample_page: SamplePage) -> None:
    def focused() -> str:  # a key moves the focus before `press` returns; what Enter opens comes later
        return str(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText"))

    def press_until(key: str, name: str) -> None:
        for _ in range(60):
            if focused().strip().startswith(name):
                return
            page.keyboard.press(key)
        raise AssertionError(f"{key} does not reach {name!r}; it is at {focused()!r}")

    page.goto(sample_page.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    press_until("Shift+Tab", "Tasks")
    page.keyboard.press("Enter")
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text(re.compile("^(parity|d4)$"))
    expect(title).to_be_focused()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.value") == "log":
            break
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="linear").first).to_be_checked()
    press_until("Tab", "Status")
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text(re.compile("^Status"))
    press_until("Tab", "Run:")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Settings, versions, command")).to_be_visible()


def test_the_table_of_runs_is_sorted_and_filtered(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    table = page.get_by_role("region", name="Table of runs")
    rows = table.locator("tbody tr")
    total = len(sample_page.read_data()["runs"])
    expect(rows).to_have_count(total)
    sorted_column = table.locator("th[aria-sort=ascending]")
    table.get_by_role("button", name="Seed").click()
    expect(sorted_column).to_have_text(re.compile("^Seed"))  # head and rows change together
    seeds = [int(text) for text in table.locator("tbody tr td.number:nth-last-of-type(2)").all_inner_texts()]
    assert len(seeds) == total and seeds == sorted(seeds)
    table.get_by_role("button", name="Accuracy beyond them").click()
    expect(sorted_column).to_have_text(re.compile("^Accuracy beyond them"))
    shown = [text.split("\u202f")[0] for text in table.locator("tbody tr td:nth-of-type(4)").all_inner_texts()]
    beyond = [float(text) for text in shown if not text.startswith("–")]
    assert beyond and beyond == sorted(beyond)
    page.get_by_role("searchbox", name="Filter").fill("rnn seed=0")
    expect(rows).not_to_have_count(total)
    shown = rows.all_inner_texts()
    assert shown and all("rnn" in text for text in shown)
    page.get_by_role("searchbox", name="Filter").fill("state=8")
    expect(rows).to_have_count(2)
    page.get_by_role("searchbox", name="Filter").fill("no such run")
    expect(rows).to_have_text(["No run matches."])


def test_charts_far_from_the_screen_are_drawn_too(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    show_view(page, sample_page.list_views()["run of an SD-SSM"])
    boxes = page.locator(".chart-box")
    expect(boxes.nth(3)).to_be_attached()
    expect(page.locator(".chart-box > svg")).to_have_count(boxes.count())
    assert page.evaluate("scrollY") == 0


def test_an_empty_comparison_offers_the_models_of_a_task(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    show_view(page, "#/compare")
    page.get_by_role("link", name=re.compile("^Compare the [0-9]+ models of parity")).first.click()
    page.get_by_role("region", name="Results of the runs").wait_for()
    expect(page.get_by_role("button", name=re.compile("^Remove parity")).nth(1)).to_be_visible()


def test_a_damaged_folder_is_a_row_that_says_what_is_wrong(page: Page, sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    problems = page.get_by_role("region", name="could not be read")
    expect(problems).to_contain_text(str(sample_page.runs / "no-config"))
    run = sample_page.find_run("no-evaluation")
    show_view(page, f"#/run/{run['id']}")
    expect(page.get_by_text("evaluation.json").first).to_be_visible()


def test_fifty_runs_are_one_small_page_that_opens_quickly(page: Page, sample_page: SamplePage, tmp_path: Path) -> None:
    large = make_large_page(tmp_path, sample_page, 50)
    assert large.file.stat().st_size < 5_000_000
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(large.url)
    page.get_by_role("heading", name="Accuracy against length").wait_for()
    metrics = {metric["name"]: metric["value"] for metric in devtools.send("Performance.getMetrics")["metrics"]}
    # Seconds that the page's thread computed, and not those that it waited for a core: 0.15.
    assert 0 < metrics["TaskDuration"] < 1
    expect(page.get_by_text("50 runs").first).to_be_visible()


def test_no_script_but_its_own_runs(page: Page, problems: list[str], sample_page: SamplePage) -> None:
    page.goto(sample_page.url)
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content") or ""
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert re.search(r"script-src 'sha256-[^']+';", policy)
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.planted = 1";
        document.body.append(script);
        const box = document.createElement("div");
        box.innerHTML = "<img src=data:, onerror='window.planted = 2'>";
        document.body.append(box);
        const frame = document.createElement("iframe");
        frame.src = "data:text/html,<script>parent.postMessage(1, '*')</script>";
        document.body.append(frame);
        return new Promise((resolve) => { frame.onload = resolve; });  // the refused frame shows an error page
    }""")
    settle(page)
    refused = [problem for problem in problems if "Content Security Policy" in problem]
    problems[:] = [problem for problem in problems if "Content Security Policy" not in problem]
    assert len(refused) >= 3
    assert page.evaluate("window.planted") is None
