"""Where experiments have their runs and results by default, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

#: The parent of the run folders of experiments.
OUT = Path("runs/experiments")
#: Where `sdssm train` puts runs, and where finished ones are looked for.
RUNS = Path("runs")
#: The parent of the results folders.
RESULTS = Path("results")


def reused_folders(folders: Sequence[Path | str] | None) -> list[Path]:
    """Return the folders from which finished runs are taken; None: `RUNS`, if it exists."""
    if folders is None:
        return [RUNS] if RUNS.is_dir() else []
    return list(map(Path, folders))
