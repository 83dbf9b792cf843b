"""Tables of the candidates of a search, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdssm.formatting import format_chance, format_percent, format_setting
from sdssm.report.rendering import NOTHING, Grid, Table, to_csv, to_markdown, write_table

#: The files of a ranking, and how each is rendered; they hold all candidates.
FORMATS = {"ranking.csv": to_csv, "ranking.md": to_markdown}


def make_ranking_table(results: Mapping[str, Any], most: int | None = None) -> Table | None:
    """Return the ranking in results, with the first `most` candidates of each cell, or None."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in results.get("ranking", ()):
        cells.setdefault((entry["row"], entry["column"]), []).append(entry)
    if not cells:
        return None
    levels: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in results.get("cells", ()):
        known = levels.setdefault((cell["row"], cell["column"]), {"chance": cell.get("chance")})
        known[cell["score"]] = cell.get("best_constant")
    grids = [_make_grid(cell, entries, most, levels.get(cell, {})) for cell, entries in cells.items()]
    facts = [_facts(entry) for entries in cells.values() for entry in entries]
    hidden = sum(max(0, len(entries) - most) for entries in cells.values()) if most is not None else 0
    notes = [f"{hidden} more candidates in {next(iter(FORMATS))}"] if hidden else []
    return Table(f"{results['title']}: candidates", grids, facts, notes)


def write_ranking(results: Mapping[str, Any], folder: Path) -> None:
    """Write all candidates as CSV and Markdown, if anything was searched."""
    table = make_ranking_table(results)
    if table is not None:
        write_table(table, folder, FORMATS)


def _make_grid(
    cell: tuple[str, str], entries: Sequence[Mapping[str, Any]], most: int | None, levels: Mapping[str, Any]
) -> Grid:
    names = list(dict.fromkeys(name for entry in entries for name in entry["variant"]))
    score = next((entry["score"] for entry in entries if entry["score"]), "all")
    rows = []
    for entry in entries[:most]:
        test = NOTHING
        if entry["max"] is not None:
            test = f"{format_percent(entry['max'])} / {format_percent(entry['average'])}"
        cells = [format_setting(entry["variant"].get(name)) for name in names]
        cells += [format_percent(entry["within"]), test, _format_seeds(entry), _format_steps(entry)]
        rows.append((str(entry["place"]), cells))
    row, column = cell
    caption = f"{row} on {column}: {len(entries)} candidates by {entries[0]['by']}; in %, within: at training lengths"
    caption += "" if levels.get("chance") is None else f"; chance {format_chance(levels['chance'])}"
    within = next((entry["constant_within"] for entry in entries if entry.get("constant_within") is not None), None)
    constants = [(name, level) for name, level in (("within", within), (score, levels.get(score))) if level is not None]
    if constants:
        caption += "; best constant answer " + ", ".join(f"{name} {format_chance(level)}" for name, level in constants)
    return Grid(caption, "place", [*names, "within", f"{score}: max / average", "seeds", "steps"], rows)


def _format_seeds(entry: Mapping[str, Any]) -> str:
    return f"{entry['seeds']}" + (f", {entry['diverged']} diverged" if entry["diverged"] else "")


def _format_steps(entry: Mapping[str, Any]) -> str:
    """Format the steps of a candidate, and for a pruned one the step at which it stopped."""
    return ("" if entry["pruned_at"] is None else f"{entry['pruned_at']:,} of ") + f"{entry['steps']:,}"


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("place", "within", "score", "max", "average", "seeds", "diverged", "steps", "pruned_at", "by")
    settings = {f"set {name}": format_setting(value) for name, value in entry["variant"].items()}
    return {"row": entry["row"], "column": entry["column"], **settings, **{name: entry[name] for name in kept}}
