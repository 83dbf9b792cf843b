"""The candidates of a search, best first, as a table in every form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.report.tables import NOTHING, Grid, Table, percent, to_csv, to_markdown

#: Files of a ranking, with all candidates.
FILES = ("ranking.csv", "ranking.md")


def ranking_of(results: Mapping[str, Any], most: int | None = None) -> Table | None:
    """The ranking that results hold, of each cell the first `most`; None where nothing was searched."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in results.get("ranking", ()):
        found.setdefault((one["row"], one["column"]), []).append(one)
    if not found:
        return None
    grids = [_grid(row, column, some, most) for (row, column), some in found.items()]
    facts = [_facts(one) for some in found.values() for one in some]
    left = sum(max(0, len(some) - most) for some in found.values()) if most is not None else 0
    notes = [f"{left} more candidates in {FILES[0]}"] if left else []
    return Table(f"{results['title']}: candidates", grids, facts, notes)


def write_ranking(results: Mapping[str, Any], folder: Path) -> None:
    """All candidates as CSV and Markdown, if there are any."""
    table = ranking_of(results)
    for name, form in zip(FILES, (to_csv, to_markdown), strict=True) if table is not None else ():
        assert table is not None
        try:
            write_atomic(folder / name, form(table).encode())
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write {format_path(folder / name)}: {describe_file_error(error)}") from None


def _grid(row: str, column: str, some: Sequence[Mapping[str, Any]], most: int | None) -> Grid:
    names = list(dict.fromkeys(name for one in some for name in one["variant"]))
    score = next((one["score"] for one in some if one["score"]), "all")
    lines = []
    for one in some[:most]:
        reached = NOTHING if one["max"] is None else f"{percent(one['max'])} / {percent(one['average'])}"
        cells = [_short(one["variant"].get(name)) for name in names]
        cells += [percent(one["within"]), reached, _seeds(one), _steps(one)]
        lines.append((str(one["place"]), cells))
    caption = f"{row} on {column}: {len(some)} candidates by {some[0]['by']}; in %, within: at training lengths"
    columns = [*names, "within", f"{score}: max / average", "seeds", "steps"]
    return Grid(caption, "place", columns, lines)


def _seeds(one: Mapping[str, Any]) -> str:
    return f"{one['seeds']}" + (f", {one['diverged']} diverged" if one["diverged"] else "")


def _steps(one: Mapping[str, Any]) -> str:
    """How long it was trained, of what it would have been."""
    return ("" if one["pruned_at"] is None else f"{one['pruned_at']:,} of ") + f"{one['steps']:,}"


def _facts(one: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("place", "within", "score", "max", "average", "seeds", "diverged", "steps", "pruned_at", "by")
    chosen = {f"set {name}": _short(value) for name, value in one["variant"].items()}
    return {"row": one["row"], "column": one["column"], **chosen, **{name: one[name] for name in kept}}


def _short(value: Any) -> str:
    """A setting as it is typed.

    >>> _short(None), _short(0.0001), _short([0.9, 0.99])
    ('none', '0.0001', '[0.9, 0.99]')
    """
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
