"""Collect everything that a report page shows from run folders and results folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sdssm import __version__
from sdssm.errors import SdssmError, first_line
from sdssm.files import format_path
from sdssm.report.page.json_fields import LONGEST_NAME, LONGEST_TEXT, clip_text
from sdssm.report.page.page_sources import PageSources
from sdssm.report.page.page_types import PageProblem, ReportData, TableData, TaskData
from sdssm.report.page.results_data import ResultsFile, run_key
from sdssm.report.page.run_data import PageRun, read_run
from sdssm.report.page.task_data import load_library_task, make_task_data
from sdssm.report.page.training_data import group_runs, make_trainings
from sdssm.tasks import PAPER_TASKS, Task

#: The format of the data, which the scripts of the page check.
FORMAT = 1
#: Lengths of a curve over the seeds of a training.
MOST_LENGTHS = 1_000


@dataclass(frozen=True)
class PageContents:
    """The data of a report page, and the runs that its heavy parts are read from."""

    data: ReportData
    runs: Mapping[str, PageRun]  #: by `RunData.id`, in the order of the page
    groups: Sequence[Sequence[PageRun]]  #: by training

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show but problems."""
        return not self.data["runs"] and not self.data["tables"]


def collect_page(paths: Iterable[Path], *, title: str = "sdssm report", command: str = "sdssm report") -> PageContents:
    """Read all runs and results at or below these paths.

    A folder that cannot be read becomes one of the problems of the page; this function raises no error.

    Args:
        paths: run folders, results folders, or folders that contain them.
        title: the title of the page.
        command: the command that writes the page again.
    """
    sources = PageSources.find(paths)
    collector = PageCollector(sources.problems)
    for path in sources.runs:
        collector.add_run(path)
    for path in sources.results:
        collector.add_results(path)
    return collector.finish(title, command)


class PageCollector:
    """Gathers runs, tables and problems one folder at a time.

    Args:
        problems: what could not be read before.
        read_run: reads a run folder; a caller that collects again and again keeps what has not changed.
        make_task: makes the data of a task, likewise.
    """

    def __init__(
        self,
        problems: Sequence[PageProblem] = (),
        *,
        read_run: Callable[[Path], PageRun] = read_run,
        make_task: Callable[[Task], TaskData] = make_task_data,
    ) -> None:
        self._read_run, self._make_task = read_run, make_task
        self._problems = list(problems)
        self._notes: list[str] = []
        self._runs: dict[tuple[str, int | None], PageRun] = {}
        self._copies: list[PageRun] = []  # runs of folders with the same training and seed as another folder
        self._tables: list[TableData] = []
        self._library: dict[tuple[str, str | None], Task] = {}

    def add_run(self, path: Path) -> None:
        """Add the run in a folder."""
        try:
            run = self._read_run(path)
        except (SdssmError, OSError) as error:
            self._add_problem(path, error)
            return
        if run_key(run.record, run.data["seed"]) in self._runs:
            self._copies.append(run)
        else:
            self._runs[run_key(run.record, run.data["seed"])] = run

    def add_results(self, path: Path) -> None:
        """Add the runs and tables of a results folder; a run whose folder is known is not added again."""
        try:
            results = ResultsFile(path)
            if results.note is not None:
                self._notes.append(clip_text(results.note, LONGEST_TEXT))
                return
            runs = results.read_runs(self._load_task)
            known = {**{run_key(run.record, run.data["seed"]): run for run in runs}, **self._runs}
            tables = results.read_tables(lambda record: _identifier(known, record))
        except (SdssmError, OSError) as error:
            self._add_problem(path, error)
            return
        self._runs = {**self._runs, **{key: run for key, run in known.items() if key not in self._runs}}
        self._tables += tables

    def finish(self, title: str, command: str) -> PageContents:
        """Return the contents of the page."""
        runs = [*self._runs.values(), *self._copies]
        groups = group_runs(runs)
        data: ReportData = {
            "format": FORMAT,
            "title": clip_text(title, LONGEST_NAME),
            "version": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": clip_text(command, LONGEST_TEXT),
            "tasks": self._make_tasks(runs),
            "trainings": make_trainings(groups, MOST_LENGTHS),
            "runs": [run.data for run in runs],
            "tables": self._tables,
            "problems": self._problems,
            "notes": self._notes,
        }
        return PageContents(data, {run.data["id"]: run for run in runs}, groups)

    def _make_tasks(self, runs: Sequence[PageRun]) -> list[TaskData]:
        """Return the tasks of the runs, those of the paper first and in its order."""
        tasks: dict[str, Task] = {}
        for run in runs:
            tasks.setdefault(run.data["task"], run.task)
        order = {name: place for place, name in enumerate(PAPER_TASKS)}
        ordered = sorted(tasks.values(), key=lambda task: order.get(task.name, len(order)))
        return [self._make_task(task) for task in ordered]

    def _load_task(self, name: str, digest: str | None) -> Task:
        if (name, digest) not in self._library:
            self._library[name, digest] = load_library_task(name, digest)
        return self._library[name, digest]

    def _add_problem(self, path: Path, error: Exception) -> None:
        message = clip_text(first_line(error), LONGEST_TEXT)
        self._problems.append({"path": clip_text(format_path(path), LONGEST_TEXT), "message": message})


def _identifier(runs: Mapping[tuple[str, int | None], PageRun], record: Mapping[str, Any]) -> str | None:
    run = runs.get(run_key(record, record["seed"]))
    return None if run is None else run.data["id"]
