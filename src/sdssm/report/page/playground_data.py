"""Collect the models of a playground page from run folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdssm.report.page.collecting import FORMAT, PageContents, collect_page
from sdssm.report.page.page_types import PageProblem, PlaygroundData, PlaygroundEntry, RunData
from sdssm.report.page.run_detail import DetailReader


@dataclass(frozen=True)
class PlaygroundContents:
    """The data of a playground page, and what is not part of it."""

    data: PlaygroundData
    problems: Sequence[PageProblem]  #: folders that could not be read, and runs that the browser cannot run


def collect_playground(paths: Iterable[Path], *, title: str) -> PlaygroundContents:
    """Read all runs at or below these paths, in their order; this function raises no error.

    Args:
        paths: run folders, or folders that contain them.
        title: the title of the page.
    """
    contents = collect_page(paths, title=title)
    problems, entries = list(contents.data["problems"]), list[PlaygroundEntry]()
    tasks = {task["id"]: task for task in contents.data["tasks"]}
    labels = _make_labels(contents)
    for name, run in contents.runs.items():
        if run.path is None:  # known from a results file
            continue
        reader = DetailReader(run)
        player = reader.read("player")
        if player is None:
            problems.append({"path": run.data["source"], "message": reader.missing["player"]})
        else:
            entries.append({"label": labels[name], "task": tasks[run.data["task"]], "player": player})
    data: PlaygroundData = {
        "format": FORMAT,
        "title": contents.data["title"],
        "version": contents.data["version"],
        "entries": entries,
    }
    return PlaygroundContents(data, problems)


def _make_labels(contents: PageContents) -> dict[str, str]:
    """Return a label for each run: that of its training, and the seed if there are several."""
    trainings = {training["id"]: training for training in contents.data["trainings"]}
    seeds = Counter(run["training"] for run in contents.data["runs"])

    def label(run: RunData) -> str:
        name = trainings[run["training"]]["label"]
        return f"{name}, seed {run['seed']}" if seeds[run["training"]] > 1 else name

    return {run["id"]: label(run) for run in contents.data["runs"]}
