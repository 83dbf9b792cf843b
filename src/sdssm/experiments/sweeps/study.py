"""The study of a sweep: its trials by cell, in memory or in a file from which the search resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError, format_value
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.settings import check_one_of, convert_value

#: The file of a study, in the results folder.
STUDY = "study.json"
#: running: not trained to the end yet; pruned: stopped at a rung; refused: invalid settings.
STATES = ("running", "finished", "pruned", "refused")

#: Row and column of the table.
Cell = tuple[str, str]


@dataclass(kw_only=True)
class SweepTrial:
    """One candidate of a cell: its settings, its value once it is known, and its accuracy at each rung."""

    variant: dict[str, Any]
    state: str = "running"
    value: float | None = None
    rungs: dict[str, float] = field(default_factory=dict)  #: share of the steps -> accuracy in percent


class SweepStudy:
    """The trials of every cell, in the order in which they were tried.

    With a `path`, trials are read from that file if it exists, and `save` writes them there atomically. `description`
    describes the search; a file with another description is refused.
    """

    def __init__(self, description: Mapping[str, Any] | None = None, path: Path | None = None) -> None:
        self.description, self._path = json.loads(json.dumps(description or {})), path
        self.by_cell: dict[Cell, list[SweepTrial]] = {}
        if path is not None and path.exists():
            self._read(path)

    def trials(self, cell: Cell) -> list[SweepTrial]:
        """Return the list of trials of a cell, to read or to extend."""
        return self.by_cell.setdefault(cell, [])

    def _read(self, path: Path) -> None:
        description, self.by_cell = read_study(path)
        for name, value in self.description.items():
            if description.get(name) != value:
                raise OutputError(
                    f"{format_path(path)} belongs to another search "
                    f"({name} {format_value(description.get(name))}, not {format_value(value)}); "
                    "choose another --name"
                )

    def save(self) -> None:
        """Write all trials to the file of the study, if it has one."""
        if self._path is None:
            return
        cells = [
            {"row": row, "column": column, "trials": [asdict(trial) for trial in trials]}
            for (row, column), trials in self.by_cell.items()
        ]
        text = json.dumps({"search": self.description, "cells": cells}, indent=1) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, text.encode())
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write {format_path(self._path)}: {describe_file_error(error)}") from None


def read_study(path: Path) -> tuple[dict[str, Any], dict[Cell, list[SweepTrial]]]:
    """Return the description of the search in a study file, and its trials by cell."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = {(str(cell["row"]), str(cell["column"])): cell["trials"] for cell in content["cells"]}
        return dict(content["search"]), {cell: [_trial(data) for data in trials] for cell, trials in cells.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = describe_file_error(error) if isinstance(error, OSError) else "it is damaged"
        raise OutputError(
            f"cannot resume the search in {format_path(path)}: {reason}; remove the file to start again, "
            "finished runs are kept"
        ) from None


def cell_name(cell: Cell) -> str:
    """Return a cell in words: the row on the column.

    >>> cell_name(("sd-ssm", "a5"))
    'sd-ssm on a5'
    """
    return " on ".join(cell)


def _trial(data: Mapping[str, Any]) -> SweepTrial:
    state, value = convert_value("state", data["state"], str), convert_value("value", data["value"], float | None)
    check_one_of("state", state, STATES)
    rungs = {str(share): float(accuracy) for share, accuracy in data["rungs"].items()}
    return SweepTrial(variant=dict(data["variant"]), state=state, value=value, rungs=rungs)
