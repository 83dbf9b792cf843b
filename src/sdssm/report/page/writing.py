"""Make a report page from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import join

from sdssm.errors import OutputError, RunError
from sdssm.files import write_output
from sdssm.report.page.assembling import assemble_page
from sdssm.report.page.collecting import PageContents, collect_page
from sdssm.report.page.page_size import LEAST_MB, MAX_MB, MOST_MB


def write_report(
    paths: str | Path | Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    title: str = "sdssm report",
    max_mb: float = MAX_MB,
    command: str | None = None,
) -> PageContents:
    """Write one self-contained HTML page about runs and results, as `sdssm report` does, and return what it shows.

    Args:
        paths: run folders, results folders, or folders that contain them.
        out: the .html file; a file of that name is replaced.
        title: the title of the page.
        max_mb: the largest size of the page; what does not fit is left out.
        command: the command that writes the page again, which the page shows; None: `sdssm report` with these values.
    """
    if not LEAST_MB <= max_mb <= MOST_MB:
        rule = f"must be from {LEAST_MB:g} to {MOST_MB:g}, got {max_mb:g}"
        raise OutputError(f"max_mb {rule}", shell=f"--max-mb {rule}")
    folders = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if command is None:
        command = join(["sdssm", "report", *map(str, folders), "-o", str(out), "--title", title])
    contents = collect_page(folders, title=title, command=command)
    data = contents.data
    if contents.is_empty:
        problem = data["problems"][0] if data["problems"] else None
        reason = "there are no runs" if problem is None else f"{problem['path']}: {problem['message']}"
        raise RunError(f"there is nothing to show; {reason}")
    write_output(Path(out), assemble_page(contents, max_mb).encode())
    return contents
