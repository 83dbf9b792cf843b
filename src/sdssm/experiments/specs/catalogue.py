"""The experiments of the package, and the published numbers that they are compared with."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any

from sdssm.errors import did_you_mean
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import DEFAULT_SEEDS, Spec
from sdssm.files import describe_file_error, format_path

#: Folders of the package that hold the TOML and the CSV files.
SPECS, PUBLISHED = "specs", "published"
#: The experiments listed first, in the order of the paper.
PAPER_TABLES = (
    "table1",
    "length-efficiency",
    "runtime",
    "c2xc30-d30",
    "two-layers",
    "mlp-readout",
    "complex-layers",
)
#: The columns that a published file must have; it may have more.
COLUMNS = ("row", "column", "max", "average", "source")


@dataclass(frozen=True, kw_only=True)
class PublishedCell:
    """The published numbers of one cell, in percent; None if a number was not published."""

    max: float | None
    average: float | None
    source: str


def list_experiments() -> list[str]:
    """Return the names of the packaged experiments, the paper's tables first.

    >>> "table1" in list_experiments()
    True
    """
    names = {item.name.removesuffix(".toml") for item in _folder(SPECS).iterdir() if item.name.endswith(".toml")}
    return [name for name in PAPER_TABLES if name in names] + sorted(names - set(PAPER_TABLES))


def get_spec(name: str | Path) -> Spec:
    """Return the packaged experiment of this name, or the experiment of a TOML file.

    >>> get_spec("table1").title.startswith("Table 1")
    True
    """
    from sdssm.experiments.specs.parsing import parse_spec, read_spec  # only here: it needs models and torch

    if str(name) in list_experiments():
        return parse_spec(_read_packaged(str(name)), source=f"sdssm:{name}")
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return read_spec(path)
    raise SpecError(f"there is no experiment {str(name)!r}; {did_you_mean(str(name), list_experiments())}")


@dataclass(frozen=True, kw_only=True)
class ExperimentSummary:
    """A packaged experiment in one line: its name, its title, and how many runs it trains."""

    name: str
    title: str
    runs: int


def summarise_experiments() -> list[ExperimentSummary]:
    """Return a summary of each packaged experiment, in the order of `list_experiments`, without torch.

    A run that several rows need counts once.

    >>> print(summarise_experiments()[0].runs)
    132
    """
    contents = {name: tomllib.loads(_read_packaged(name)) for name in list_experiments()}
    return [
        ExperimentSummary(name=name, title=content["title"], runs=_count_runs(content))
        for name, content in contents.items()
    ]


def _count_runs(content: Mapping[str, Any]) -> int:
    """Return the number of different runs in the rows of a TOML file."""
    runs = set()
    for row in content.get("rows", []):
        seeds = row.get("seeds", content.get("seeds", DEFAULT_SEEDS))
        grid = row.get("grid", {})
        for values in product(*grid.values()):
            settings = {**row.get("settings", {}), **dict(zip(grid, values, strict=True))}
            training = (row["model"], row.get("preset", content.get("preset")), json.dumps(settings, sort_keys=True))
            for task in row.get("tasks", content.get("tasks")):
                runs |= {(task, *training, seed) for seed in (range(seeds) if isinstance(seeds, int) else seeds)}
    return len(runs)


def published_numbers(spec: Spec) -> dict[tuple[str, str], PublishedCell]:
    """Return the published numbers of an experiment by row and column."""
    cells: dict[tuple[str, str], PublishedCell] = {}
    for line in published_rows(spec):
        key = (line["row"], line["column"])
        if key in cells:
            raise SpecError(f"{spec.published} has two lines for {key[0]!r}, {key[1]!r}; remove one")
        numbers = {name: _parse_number(line[name], spec) for name in ("max", "average")}
        cells[key] = PublishedCell(max=numbers["max"], average=numbers["average"], source=line["source"])
    return cells


def published_rows(spec: Spec, required: tuple[str, ...] = COLUMNS) -> list[dict[str, Any]]:
    """Return the lines of an experiment's published file, which must have the `required` columns."""
    if spec.published is None:
        return []
    reader = csv.DictReader(io.StringIO(_read_published(spec)))
    missing = [name for name in required if name not in (reader.fieldnames or ())]
    if missing:
        raise SpecError(f"{spec.published} has no column {missing[0]!r}; it needs {', '.join(required)}")
    return [dict(line) for line in reader]


def _read_published(spec: Spec) -> str:
    assert spec.published is not None
    name = Path(spec.published).name
    if spec.folder is not None and (spec.folder / spec.published).is_file():
        path = spec.folder / spec.published
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SpecError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    packaged = {item.name for item in _folder(PUBLISHED).iterdir()}
    if name != spec.published or name not in packaged:
        raise SpecError(f"there is no published file {spec.published!r}; {did_you_mean(name, sorted(packaged))}")
    return _folder(PUBLISHED).joinpath(name).read_text(encoding="utf-8")


def _parse_number(text: str, spec: Spec) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise SpecError(f"{spec.published} has {text!r} instead of a number; correct it or leave it empty") from None


def _read_packaged(name: str) -> str:
    return _folder(SPECS).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _folder(name: str) -> Traversable:
    return files("sdssm.experiments").joinpath(name)
