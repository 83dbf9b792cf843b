"""The run folders of one training, which `train` and `resume` return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

from sdssm.display import Displayed, ResultTable
from sdssm.files import format_path
from sdssm.formatting import count_of
from sdssm.runs import RunFolder
from sdssm.runs.summary import summarise_run, tabulate_runs


class Runs(Displayed, Sequence[RunFolder]):
    """The run folders of one training, in order, and the folder that contains them (`path`).

    It prints as a table of the runs: status, steps, and accuracy at training lengths beside the chance level.

    >>> print(Runs(Path("runs/a5"), []))
    0 runs in runs/a5
    """

    def __init__(self, path: Path, folders: Iterable[RunFolder]) -> None:
        self.path = path
        self._folders = tuple(folders)

    @overload
    def __getitem__(self, index: int) -> RunFolder: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> RunFolder | Runs:
        return Runs(self.path, self._folders[index]) if isinstance(index, slice) else self._folders[index]

    def __len__(self) -> int:
        return len(self._folders)

    def __repr__(self) -> str:
        return f"Runs({str(self.path)!r}, {self._count})"

    @property
    def _count(self) -> str:
        return count_of(len(self), "run")

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each run: what it trains, its progress and its accuracy, read from its folder."""
        return [summarise_run(run) for run in self._folders]

    def to_table(self) -> ResultTable:
        """Return the table of the runs that is printed."""
        return tabulate_runs(self.to_records(), f"{self._count} in {format_path(self.path)}")
