"""The candidates of a search and what became of them, in memory or in a file that a search goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError, format_value
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.settings import check_one_of, convert_value

#: Beside the results.
STUDY = "study.json"
#: running: still to be trained; pruned: stopped at a rung; refused: settings that no training can have.
STATES = ("running", "finished", "pruned", "refused")

#: Row and column of the table.
Cell = tuple[str, str]


@dataclass(kw_only=True)
class Trial:
    """One candidate of a cell: settings by name, its worth once it is known, and its accuracy at each rung."""

    variant: dict[str, Any]
    state: str = "running"
    value: float | None = None
    rungs: dict[str, float] = field(default_factory=dict)  #: share of the steps -> accuracy in percent


class Trials:
    """The candidates of every cell, in the order in which they were tried.

    With a file they are written there, whole or not at all, whenever `save` is called, and read when it is there.
    """

    def __init__(self, told: Mapping[str, Any] | None = None, path: Path | None = None) -> None:
        self.told, self._path = json.loads(json.dumps(told or {})), path
        self.of: dict[Cell, list[Trial]] = {}
        if path is not None and path.exists():
            self._read(path)

    def at(self, cell: Cell) -> list[Trial]:
        return self.of.setdefault(cell, [])

    def _read(self, path: Path) -> None:
        told, self.of = read_study(path)
        for name, value in self.told.items():
            if told.get(name) != value:
                raise OutputError(
                    f"{format_path(path)} is of another search "
                    f"({name} {format_value(told.get(name))}, not {format_value(value)}); "
                    "choose another --name"
                )

    def save(self) -> None:
        if self._path is None:
            return
        cells = [
            {"row": row, "column": column, "trials": [asdict(trial) for trial in trials]}
            for (row, column), trials in self.of.items()
        ]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, (json.dumps({"search": self.told, "cells": cells}, indent=1) + "\n").encode())
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write {format_path(self._path)}: {describe_file_error(error)}") from None


def read_study(path: Path) -> tuple[dict[str, Any], dict[Cell, list[Trial]]]:
    """What a search told of itself in its file, and its trials."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        cells = {(str(one["row"]), str(one["column"])): one["trials"] for one in found["cells"]}
        return dict(found["search"]), {cell: [_trial(one) for one in trials] for cell, trials in cells.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = describe_file_error(error) if isinstance(error, OSError) else "it is damaged"
        raise OutputError(
            f"cannot go on with the search in {format_path(path)}: {why}; remove it to search anew, "
            "what was trained is kept"
        ) from None


def cell_name(cell: Cell) -> str:
    return " on ".join(cell)


def _trial(data: Mapping[str, Any]) -> Trial:
    state, value = convert_value("state", data["state"], str), convert_value("value", data["value"], float | None)
    check_one_of("state", state, STATES)
    rungs = {str(share): float(accuracy) for share, accuracy in data["rungs"].items()}
    return Trial(variant=dict(data["variant"]), state=state, value=value, rungs=rungs)
