"""The runs of a folder as the page asks for them: read again only if files have changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from sdssm.errors import StudioError
from sdssm.files import format_path
from sdssm.studio.folder_scan import FolderScan, scan_folder
from sdssm.studio.page_reader import PageReader

#: Seconds for which an answer is given again without another look at the folder.
SCAN_SECONDS = 0.5
#: Heavy parts of runs that are kept in memory, by number of runs.
MAX_DETAILS = 16


@dataclass(frozen=True)
class VersionedBody:
    """The body of an answer, and a text that differs if the body does."""

    version: str
    body: bytes


@dataclass(frozen=True, kw_only=True)
class ReportSnapshot:
    """All runs at one moment: `body` is the LiveReport of `web/src/studio/live.ts`.

    A run whose version differs from the last one has new heavy parts. `runs` has the RunData by ID.
    """

    version: str
    body: bytes
    versions: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class RunsWatcher:
    """Reads the runs below a folder for as many requests as there are, and as rarely as possible."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._reader = PageReader(root)
        self._lock = threading.Lock()
        self._snapshot: ReportSnapshot | None = None
        self._scan_time = 0.0
        self._details: dict[str, VersionedBody] = {}

    def snapshot(self) -> ReportSnapshot:
        """Return the runs as they are now, or were SCAN_SECONDS ago."""
        with self._lock:
            return self._refresh()

    def detail(self, run: str) -> VersionedBody | None:
        """Return the heavy parts of a run, null in JSON if it has none; None if there is no such run."""
        with self._lock:
            snapshot = self._refresh()
            if run not in snapshot.runs:
                return None
            version = snapshot.versions.get(run, snapshot.version)
            kept = self._details.get(run)
            if kept is None or kept.version != version:
                self._details.pop(run, None)
                self._details[run] = kept = VersionedBody(version, _encode(self._reader.read_detail(run)))
                for oldest in list(self._details)[:-MAX_DETAILS]:
                    del self._details[oldest]
            return kept

    def folder_for_action(self, run: str) -> Path:
        """Return the folder of a run on which a command can be started."""
        data = self.snapshot().runs.get(run)
        if data is None or data["folder"] is None:
            raise StudioError("there is no such run in this folder; it may have been removed")
        if data["status"] == "running":
            raise StudioError("the run is being trained; try again when it has ended")
        return Path(data["folder"])

    def _refresh(self) -> ReportSnapshot:
        if self._snapshot is not None and monotonic() - self._scan_time < SCAN_SECONDS:
            return self._snapshot
        scan = scan_folder(self.root)
        if self._snapshot is None or self._snapshot.version != scan.version:
            self._snapshot = self._read(scan)
        self._scan_time = monotonic()
        return self._snapshot

    def _read(self, scan: FolderScan) -> ReportSnapshot:
        report = self._reader.read_report(scan)
        runs = {run["id"]: run for run in report["runs"]}
        versions = {
            key: scan.versions.get(Path(run["folder"]), scan.version) for key, run in runs.items() if run["folder"]
        }
        body = _encode({"folder": format_path(self.root), "report": report, "versions": versions})
        return ReportSnapshot(version=scan.version, body=body, versions=versions, runs=runs)


def _encode(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
