"""Which folders a page is made from: run folders and results folders, given or below those that are given."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sdssm.files import describe_file_error, format_path, similar_path
from sdssm.models.model_folder import is_model_folder
from sdssm.models.settings import CONFIG_FILE
from sdssm.report.page.page_types import PageProblem
from sdssm.report.tables import RESULTS_FILE
from sdssm.runs.find import natural_sort_key
from sdssm.runs.own_files import CHECKPOINTS, STATUS_FILE


@dataclass
class PageSources:
    """Folders to read, each once, and paths that hold none."""

    runs: list[Path] = field(default_factory=list)
    results: list[Path] = field(default_factory=list)
    problems: list[PageProblem] = field(default_factory=list)
    _places: set[Path] = field(default_factory=set)

    @classmethod
    def find(cls, paths: Iterable[Path]) -> PageSources:
        """Find the run folders and results folders at or below these paths.

        A path may also be a results.json. Folders of saved models that lie beside runs are no runs and are left out.
        """
        sources = cls()
        for path in paths:
            problem = sources._add(path)
            if problem is not None:
                sources.problems.append({"path": format_path(path), "message": problem})
        return sources

    def _add(self, path: Path) -> str | None:
        """Add what is at or below a path; return why there is nothing, or None."""
        try:
            if path.is_file():
                if path.name != RESULTS_FILE:
                    return "it is a file; pass the folder that it is in"
                self._keep(self.results, path.parent)
                return None
            if not path.is_dir():
                similar = similar_path(path)
                hint = "" if similar is None else f"; did you mean {format_path(similar)}?"
                return f"there is no such folder{hint}"
            if (path / CONFIG_FILE).exists():
                self._keep(self.runs, path)  # if it is a saved model, reading it says so
                return None
        except (OSError, ValueError) as error:
            return f"cannot be read: {describe_file_error(error)}"
        is_empty, errors = True, list[OSError]()
        for name, folders, files in os.walk(path, onerror=errors.append):
            folders.sort(key=natural_sort_key)
            folder = Path(name)
            if CONFIG_FILE in files:
                folders.clear()  # a run contains no other runs
                if STATUS_FILE in files or not is_model_folder(folder):
                    is_empty = False
                    self._keep(self.runs, folder)
            elif STATUS_FILE in files and CHECKPOINTS in folders:
                folders.clear()
                is_empty = False
                message = f"{CONFIG_FILE} of this run is missing; restore it"
                self.problems.append({"path": format_path(folder), "message": message})
            elif RESULTS_FILE in files:
                is_empty = False
                self._keep(self.results, folder)
        for failure in errors:
            place = format_path(Path(str(failure.filename)))
            self.problems.append({"path": place, "message": f"cannot be read: {describe_file_error(failure)}"})
        if is_empty and not errors:
            return "there is no run folder and no results.json in it; sdssm train TASK makes a run"
        return None

    def _keep(self, folders: list[Path], folder: Path) -> None:
        """Add a folder unless it is there already, under any name."""
        place = folder.resolve()
        if place not in self._places:
            self._places.add(place)
            folders.append(folder)
