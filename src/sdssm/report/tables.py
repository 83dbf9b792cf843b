"""Tables of experiments: ours beside what was published, for a terminal and as CSV, Markdown and LaTeX.

They are made from the results.json that an experiment leaves, and every form from one `Table`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError
from sdssm.files import describe_file_error, format_path, write_atomic

#: What stands where there is nothing. A cell of ours is never filled with a published number.
NOTHING = "-"
CAPTION = "max / average over seeds ± its 95 % band, in %; published max / average in brackets"
#: Files of a table, by the form that they hold.
FILES = ("table.csv", "table.md", "table.tex")


@dataclass(frozen=True)
class Grid:
    """Texts by row and column under a caption."""

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]  #: the name of a row and its cells


@dataclass(frozen=True)
class Table:
    """All that a table shows: grids to be read, the facts of each cell, and notes."""

    title: str
    grids: Sequence[Grid]
    facts: Sequence[Mapping[str, Any]]  #: a line of the CSV file each
    notes: Sequence[str] = ()


def table_of(results: Mapping[str, Any]) -> Table:
    """The table of an experiment's results, as results.json holds them."""
    makers = {"accuracy": _accuracies, "timing": _times, "claims": _claims}
    try:
        return makers[results["kind"]](results)
    except (KeyError, TypeError) as error:
        raise OutputError(f"these are not the results of an experiment: {error!r} is missing or wrong") from None


def write_tables(folder: Path) -> Table:
    """The table of a results folder, also written there in every form."""
    path = folder / "results.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = describe_file_error(error) if isinstance(error, OSError) else "not JSON"
        raise OutputError(f"cannot read {format_path(path)}: {why}; sdssm reproduce writes it") from None
    table = table_of(results)
    forms: tuple[Callable[[Table], str], ...] = (to_csv, to_markdown, to_latex)
    for name, form in zip(FILES, forms, strict=True):
        try:
            write_atomic(folder / name, form(table).encode())
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write {format_path(folder / name)}: {describe_file_error(error)}") from None
    return table


# -- from results ------------------------------------------------------------------------------------------------------


def _accuracies(results: Mapping[str, Any]) -> Table:
    cells, first = results["cells"], results["scores"][0]
    own = {cell["score"] for cell in cells if cell["first"]}  # scores that rows were published as
    captions = {first: CAPTION}
    captions |= {
        score: f"the same, {'' if score.startswith('at ') else 'mean '}{_range(score)}"
        for score in results["scores"]
        if score not in own
    }
    grids = []
    for score, caption in captions.items():
        shown = [cell for cell in cells if (cell["first"] if score == first else cell["score"] == score)]
        if score != first and all(cell["max"] is None for cell in shown):
            continue  # not measured
        texts = {(cell["row"], cell["column"]): _accuracy(cell) for cell in shown}
        grids.append(_grid(results, caption, texts))
    other = {cell["row"]: cell["score"] for cell in cells if cell["first"] and cell["score"] != first}
    notes = [f"{row}: mean {_range(score)}, as published" for row, score in other.items()]
    measured = [cell for cell in cells if cell["first"] and cell["steps"] is not None]
    measured.sort(key=lambda cell: (-cell["steps"], -cell["seeds"]))
    notes += _of_rows(measured, _trained)
    notes += _of_rows(measured, _where) if any(cell.get("trained_on") for cell in measured) else []
    chosen = [cell for cell in cells if cell["first"] and cell["choice"]]
    notes += [f"{cell['row']}, {cell['column']}: {cell['choice']}" for cell in chosen]
    lost = [cell for cell in cells if cell["first"] and cell["diverged"]]
    notes += [f"{cell['row']}, {cell['column']}: {cell['diverged']} diverged and left out" for cell in lost]
    return Table(results["title"], grids, [_facts(cell) for cell in cells], notes)


def _of_rows(cells: Sequence[Mapping[str, Any]], told: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """What is told of cells: once where it is the same everywhere, or everywhere in a row."""
    found: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        found.setdefault(told(cell), {}).setdefault(cell["row"], []).append(cell["column"])
    if len(found) == 1:
        return list(found)
    kinds = Counter(row for rows in found.values() for row in rows)
    return [
        f"{text}: "
        + "; ".join(row if kinds[row] == 1 else f"{row} on {', '.join(columns)}" for row, columns in rows.items())
        for text, rows in found.items()
    ]


def _trained(cell: Mapping[str, Any]) -> str:
    return f"{cell['steps']:,} steps, {cell['seeds']} seed{'s' if cell['seeds'] != 1 else ''}"


def _where(cell: Mapping[str, Any]) -> str:
    """On which device a cell was made; results of another version do not say."""
    trained, evaluated = cell.get("trained_on") or "a device not recorded", cell.get("evaluated_on")
    return f"trained on {trained}" + (f", evaluated on {evaluated}" if evaluated not in (None, trained) else "")


def _range(score: str) -> str:
    """The lengths of a score in words.

    >>> [_range(score) for score in ("all", "50..500", "to 5000", "at 5000")]
    ['over all lengths', 'over lengths 50 to 500', 'over every length to 5,000', 'at 5,000']
    """
    if score == "all":
        return "over all lengths"
    if score in ("within", "beyond"):
        return "over training lengths" if score == "within" else "beyond training lengths"
    if ".." in score:
        return f"over lengths {score.replace('..', ' to ')}"
    kind, length = score.split(" ")
    return f"{'at' if kind == 'at' else 'over every length to'} {int(length):,}"


def _accuracy(cell: Mapping[str, Any]) -> str:
    ours = NOTHING if cell["max"] is None else f"{percent(cell['max'])} / {percent(cell['average'])}{_band(cell)}"
    theirs = [_published(cell[name]) for name in ("published_max", "published_average")]
    return ours if theirs == [NOTHING, NOTHING] else f"{ours} ({' / '.join(theirs)})"


def _band(cell: Mapping[str, Any]) -> str:
    """Of the average: the farther end, as 100 cuts the other."""
    low, high = cell["average_low"], cell["average_high"]
    return "" if low is None else f" ± {max(cell['average'] - low, high - cell['average'], 0.0):.1f}"


def _published(value: float | None) -> str:
    return NOTHING if value is None else f"{value:g}"


def _facts(cell: Mapping[str, Any]) -> dict[str, Any]:
    band = cell.get("max_band") or (None, None)
    kept = ("row", "column", "score", "max", "average", "min", "average_low", "average_high")
    return {
        **{name: cell[name] for name in kept},
        "max_low": band[0],
        "max_high": band[1],
        **{name: cell[name] for name in ("seeds", "diverged", "steps", "published_max", "published_average", "source")},
        "choice": cell["choice"],
        "trained_on": cell.get("trained_on"),
        "evaluated_on": cell.get("evaluated_on"),
    }


def _times(results: Mapping[str, Any]) -> Table:
    texts = {}
    for cell in results["cells"]:
        theirs = "" if cell["published"] is None else f" ({cell['published']:g})"
        texts[cell["row"], cell["column"]] = f"{cell['value']:.3g}{theirs}"
    grid = _grid(results, "milliseconds, and their ratio; published in brackets, on another device", texts)
    return Table(results["title"], [grid], results["cells"])


def _claims(results: Mapping[str, Any]) -> Table:
    rows = []
    for cell in results["cells"]:
        what = f"{cell['model']}, {cell['task']}: {cell['quantity']}"
        theirs = f"{cell['value']} {cell['unit']}".strip()
        rows.append((cell["id"], [what, theirs, _figure(cell), _origin(cell)]))
    grid = Grid("each beside our figure", results["corner"], ["what", "published", "ours", "from"], rows)
    return Table(results["title"], [grid], results["cells"])


def _figure(cell: Mapping[str, Any]) -> str:
    if cell["spec"] is None:
        return "not measured"
    if cell["least"] is None:
        return "never" if cell["never"] else NOTHING
    form = str if cell["figure"] == "first_below_99" else percent
    ends = list(dict.fromkeys(form(cell[name]) for name in ("least", "greatest")))
    return " to ".join(ends)


def _origin(cell: Mapping[str, Any]) -> str:
    if cell["spec"] is None:
        return str(cell["note"] or NOTHING)
    steps = "" if cell["steps"] is None else f", {cell['steps']:,} steps"
    return f"{cell['spec']}{steps}" + (f"; {cell['note']}" if cell["note"] else "")


def _grid(results: Mapping[str, Any], caption: str, texts: Mapping[tuple[str, str], str]) -> Grid:
    columns = results["columns"]
    rows = [(row, [texts.get((row, column), NOTHING) for column in columns]) for row in results["rows"]]
    return Grid(caption, results["corner"], columns, rows)


def percent(value: float | None) -> str:
    """Two digits, cut and not rounded: 100.00 is said of nothing less.

    >>> percent(99.9999), percent(100.0), percent(None)
    ('99.99', '100.00', '-')
    """
    if value is None or math.isnan(value):
        return NOTHING
    return f"{math.floor(value * 100 + 1e-6) / 100:.2f}"


# -- forms -------------------------------------------------------------------------------------------------------------


def to_text(table: Table, width: int | None = None) -> str:
    """Plain columns for any terminal; those that do not fit into `width` letters follow below."""
    parts = [table.title]
    for grid in table.grids:
        lines = [[grid.corner, *grid.columns], *([row, *cells] for row, cells in grid.rows)]
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        blocks = []
        for some in _fitting(widths, width):
            padded = ("  ".join(line[k].ljust(widths[k]) for k in some).rstrip() for line in lines)
            blocks.append("\n".join(padded))
        parts.append(f"{grid.caption}\n" + "\n\n".join(blocks))
    return "\n\n".join([*parts, *(["\n".join(table.notes)] if table.notes else [])]) + "\n"


def _fitting(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Columns that fit beside each other, each time after the first, which names the rows.

    >>> _fitting([4, 10, 10, 10], 30), _fitting([4, 10], None)
    ([[0, 1, 2], [0, 3]], [[0, 1]])
    """
    blocks = [[0]]
    for k in range(1, len(widths)):
        taken = sum(widths[j] + 2 for j in blocks[-1])
        if width is not None and taken + widths[k] > width and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(k)
    return blocks


def to_csv(table: Table) -> str:
    """A line for each cell of each score, with all its numbers; empty where there is none."""
    out = io.StringIO()
    names = list(dict.fromkeys(name for fact in table.facts for name in fact))
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _csv(value) for name, value in fact.items()} for fact in table.facts)
    return out.getvalue()


def _csv(value: Any) -> Any:
    return "" if value is None else round(value, 4) if isinstance(value, float) else value


def to_markdown(table: Table) -> str:
    """Tables of GitHub's Markdown."""
    parts = [f"# {table.title}"]
    for grid in table.grids:
        lines = [[grid.corner, *grid.columns], ["---"] * (len(grid.columns) + 1)]
        lines += [[row, *cells] for row, cells in grid.rows]
        rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        parts.append(f"{grid.caption}\n\n{rows}")
    parts += ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
    return "\n\n".join(parts) + "\n"


#: What LaTeX would take for something else.
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$"} | {letter: f"\\{letter}" for letter in "&%$#_{}"}


def to_latex(table: Table) -> str:
    """One tabular for each grid, with the rules of the booktabs package."""
    parts = [f"% {table.title}"]
    for grid in table.grids:
        head, *body = ([grid.corner, *grid.columns], *([row, *cells] for row, cells in grid.rows))
        lines = [rf"% {grid.caption}", rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}", r"\toprule"]
        lines += [_latex(head), r"\midrule", *(_latex(line) for line in body), r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *(["\n".join(f"% {note}" for note in table.notes)] if table.notes else [])]) + "\n"


def _latex(cells: Sequence[str]) -> str:
    texts = ("".join(_LATEX.get(letter, letter) for letter in cell) for cell in cells)
    return " & ".join("--" if text == NOTHING else text for text in texts) + r" \\"
