"""Run folders as the data of the page; folders that have not changed are not read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import join
from typing import Any, cast

from sdssm.errors import SdssmError
from sdssm.files import format_path
from sdssm.report.page.collecting import PageCollector
from sdssm.report.page.html_page import make_policy, read_asset, render_page
from sdssm.report.page.page_sources import PageSources
from sdssm.report.page.page_types import PageProblem, ReportData, RunDetail, TaskData
from sdssm.report.page.run_data import PageRun, read_run
from sdssm.report.page.run_detail import DetailReader
from sdssm.report.page.task_data import make_task_data, task_identifier
from sdssm.studio.folder_scan import MAX_FOLDERS, FolderScan
from sdssm.tasks import Task


class PageReader:
    """Reads the runs below a folder for the page of a studio.

    What it has read of a run is kept with the version of its folder, and what it has computed for a task is kept for
    good: with 50 runs of which one is trained, a look at all of them reads one folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._versions: Mapping[Path, str] = {}
        self._read: dict[Path, tuple[str, PageRun | SdssmError | OSError]] = {}
        self._tasks: dict[str, TaskData] = {}
        self._shown: Mapping[str, PageRun] = {}

    def read_report(self, scan: FolderScan) -> ReportData:
        """Return the data of all runs that a look at the folder has found."""
        self._versions = scan.versions
        self._read = {path: kept for path, kept in self._read.items() if path in scan.versions}
        sources = PageSources.find([self.root]) if scan.versions else PageSources()
        collector = PageCollector(
            [*sources.problems, *_describe_links(self.root, scan)], read_run=self._read_run, make_task=self._make_task
        )
        for path in sources.runs:
            if path in scan.versions:  # none that a link outside leads to
                collector.add_run(path)
        for path in sources.results:
            if path in scan.versions:
                collector.add_results(path)
        folder = format_path(self.root)
        contents = collector.finish(f"Studio: {folder}", join(["sdssm", "report", str(self.root), "-o", "report.html"]))
        self._shown = contents.runs
        for run in contents.runs.values():
            run.data["has_detail"] = True
        return contents.data

    def read_detail(self, run: str) -> RunDetail | None:
        """Return the heavy parts of a run of the last report; None if its folder has just been removed."""
        try:
            return DetailReader(self._shown[run]).read_all()
        except OSError:
            return None

    def _read_run(self, path: Path) -> PageRun:
        version, kept = self._read.get(path, ("", None))
        if kept is None or version != self._versions[path]:
            try:
                kept = read_run(path)
                reader = DetailReader(kept)
                kept.data["is_playable"] = reader.read("player") is not None
                kept.data["not_playable"] = reader.missing.get("player")
            except (SdssmError, OSError) as error:
                kept = error
            self._read[path] = self._versions[path], kept
        if isinstance(kept, Exception):
            raise kept.with_traceback(None)  # else it would grow with every look
        return kept

    def _make_task(self, task: Task) -> TaskData:
        key = task_identifier(task.name, task.digest)
        if key not in self._tasks:
            self._tasks[key] = make_task_data(task)
        return self._tasks[key]


def _describe_links(root: Path, scan: FolderScan) -> list[PageProblem]:
    """Return why parts of the folder are not shown."""
    problems: list[PageProblem] = [
        {"path": format_path(link), "message": "is a link out of the folder and is not followed"} for link in scan.links
    ]
    if scan.is_cut_off:
        message = f"has more than {MAX_FOLDERS:,} folders, of which the first are shown; pass one below it"
        problems.append({"path": format_path(root), "message": message})
    return problems


def render_live_page(title: str, token: str | None) -> bytes:
    """Return the page of a studio, which asks for its data; it may start commands if it has a token."""
    empty = cast(Mapping[str, Any], PageCollector().finish(title, "").data)
    return render_page("report", title, empty, live=True, token=token).encode()


def live_policy() -> str:
    """Return the Content-Security-Policy of the page of a studio, for a header."""
    return make_policy(read_asset("report.js"), live=True) + "; frame-ancestors 'none'"
