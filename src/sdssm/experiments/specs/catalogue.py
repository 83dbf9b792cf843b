"""The experiments that come with the package, and the published numbers beside them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from sdssm.errors import did_you_mean
from sdssm.experiments.specs.parsing import parse_spec, read_spec
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Spec
from sdssm.files import describe_file_error, format_path

#: Where TOML and CSV files lie, in the package itself.
SPECS, PUBLISHED = "specs", "published"
#: What every published file has; more columns are allowed.
COLUMNS = ("row", "column", "max", "average", "source")


@dataclass(frozen=True, kw_only=True)
class Published:
    """What was published for one cell; None where it was not."""

    max: float | None
    average: float | None
    source: str


def spec_names() -> list[str]:
    """The names of the experiments, the paper's tables first.

    >>> "table1" in spec_names()
    True
    """
    first = ("table1", "length-efficiency", "runtime", "c2xc30-d30", "two-layers", "mlp-readout", "complex-layers")
    there = {item.name.removesuffix(".toml") for item in _folder(SPECS).iterdir() if item.name.endswith(".toml")}
    return [name for name in first if name in there] + sorted(there - set(first))


def spec_named(name: str | Path) -> Spec:
    """The experiment of this name, or of a TOML file.

    >>> spec_named("table1").title.startswith("Table 1")
    True
    """
    if str(name) in spec_names():
        return parse_spec(_folder(SPECS).joinpath(f"{name}.toml").read_text(encoding="utf-8"), source=f"sdssm:{name}")
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return read_spec(path)
    raise SpecError(f"there is no experiment {str(name)!r}; {did_you_mean(str(name), spec_names())}")


def published_numbers(spec: Spec) -> dict[tuple[str, str], Published]:
    """The published numbers of an experiment, by row and column."""
    found: dict[tuple[str, str], Published] = {}
    for line in published_rows(spec):
        key = (line["row"], line["column"])
        if key in found:
            raise SpecError(f"{spec.published} has two lines for {key[0]!r}, {key[1]!r}; keep one")
        numbers = {name: _number(line[name], spec) for name in ("max", "average")}
        found[key] = Published(max=numbers["max"], average=numbers["average"], source=line["source"])
    return found


def published_rows(spec: Spec, needed: tuple[str, ...] = COLUMNS) -> list[dict[str, Any]]:
    """The lines of an experiment's published file."""
    if spec.published is None:
        return []
    text = _published_text(spec)
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise SpecError(f"{spec.published} has no column {missing[0]!r}; it needs {', '.join(needed)}")
    return [dict(line) for line in reader]


def _published_text(spec: Spec) -> str:
    assert spec.published is not None
    name = Path(spec.published).name
    if spec.folder is not None and (spec.folder / spec.published).is_file():
        path = spec.folder / spec.published
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SpecError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    there = {item.name for item in _folder(PUBLISHED).iterdir()}
    if name != spec.published or name not in there:
        raise SpecError(f"there is no published file {spec.published!r}; {did_you_mean(name, sorted(there))}")
    return _folder(PUBLISHED).joinpath(name).read_text(encoding="utf-8")


def _number(text: str, spec: Spec) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise SpecError(f"{spec.published} holds {text!r} where a number belongs; leave it empty or mend it") from None


def _folder(name: str) -> Traversable:
    return files("sdssm.experiments").joinpath(name)
