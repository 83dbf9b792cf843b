"""The gallery in docs/gallery: its page is what its facts give, its pictures are there, and its files are small."""

from __future__ import annotations

import json
import re
from pathlib import Path

from docs.site.gallery.facts import RunFacts
from docs.site.gallery.markdown import list_pictures, render_page
from docs.site.gallery.recipes import RECIPES
from sdssm.tasks.library import PAPER_TASKS

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
MEGABYTE = 1_000_000


def read_runs() -> list[RunFacts]:
    runs: list[RunFacts] = json.loads((GALLERY / "runs.json").read_text())
    return runs


def test_the_page_is_made_from_the_facts_about_its_runs() -> None:
    assert (GALLERY / "index.md").read_text() == render_page(read_runs())


def test_the_runs_are_those_of_the_recipes() -> None:
    runs = read_runs()
    assert [(run["task"], run["model"], run["steps"]) for run in runs] == [
        (recipe.task, recipe.model, recipe.steps) for recipe in RECIPES
    ]
    assert {run["task"] for run in runs if run["model"] == "sd-ssm"} == set(PAPER_TASKS)


def test_a_run_that_is_not_perfect_is_named() -> None:
    runs = read_runs()
    assert "sd-ssm makes no error" in render_page([{**run, "within": 100.0, "beyond": 100.0} for run in runs])
    worse: list[RunFacts] = [{**run, "beyond": 99.5} if run["task"] == "a5" else run for run in runs]
    assert "sd-ssm is not at 100 % after these short trainings on: `a5` (99.50 beyond)" in render_page(worse)


def test_every_picture_is_there_and_no_other() -> None:
    runs = read_runs()
    tasks = {run["task"] for run in runs}
    shown = {name for task in tasks for name in list_pictures([run for run in runs if run["task"] == task])}
    assert {path.name for path in GALLERY.glob("*.svg")} == shown
    assert set(re.findall(r"\((\S+\.svg)\)", (GALLERY / "index.md").read_text())) == shown


def test_files_are_small_and_name_no_folder_of_a_machine() -> None:
    assert (GALLERY / "report.html").stat().st_size < 5 * MEGABYTE
    assert sum(path.stat().st_size for path in GALLERY.glob("*.svg")) < 3 * MEGABYTE
    for path in GALLERY.iterdir():
        assert not re.search(r"/(home|root|tmp|work|Users)/", path.read_text()), path.name


def test_the_report_shows_the_same_runs() -> None:
    text = (GALLERY / "report.html").read_text()
    data = re.search(r'<script type="application/json" id="sdssm-report">(.*?)</script>', text)
    assert data is not None
    report = json.loads(data[1])
    names = {task["id"]: task["name"] for task in report["tasks"]}
    shown = report["runs"]
    facts = read_runs()
    assert [(names[run["task"]], run["model"], run["steps"], run["mean_beyond"]) for run in shown] == [
        (run["task"], run["model"], run["steps"], run["beyond"]) for run in facts
    ]
    assert all(run["is_playable"] for run in shown if run["model"] == "sd-ssm")
