"""Tables of experiments, from results.json: our results, published ones, chance and the best constant answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdssm.checksums import FILE_CHECKSUM, ChecksumError
from sdssm.errors import OutputError
from sdssm.files import describe_file_error, format_path, read_regular_file
from sdssm.formatting import count_of, format_chance, format_percent
from sdssm.report.histories import history_grids
from sdssm.report.rendering import NOTHING, Grid, Table, to_csv, to_latex, to_markdown, write_table

CAPTION = "max / average over seeds ± its 95 % band, in %"
PUBLISHED_CAPTION = "; published max / average in brackets"
#: The name of the row or column of an accuracy table that shows what guessing gives.
CHANCE = "chance"
#: The same for the best constant answer.
CONSTANT = "best constant"
#: How the names of scores on strings that are not drawn uniformly start.
MEASURES = ("balanced", "covering")
#: How the name of a score starts that is a length and not an accuracy.
PASSES = "passes "
#: The file of a results folder that tables are made from.
RESULTS_FILE = "results.json"
#: The files of a table, and how each is rendered.
FORMATS = {"table.csv": to_csv, "table.md": to_markdown, "table.tex": to_latex}


def make_table(results: Mapping[str, Any]) -> Table:
    """Return the table of an experiment's results, as results.json holds them.

    A cell without a result of ours is "-": it is never filled with a published number.
    """
    makers = {"accuracy": _accuracy_table, "timing": _timing_table, "claims": _claims_table}
    try:
        return makers[results["kind"]](results)
    except (KeyError, TypeError) as error:
        raise OutputError(f"these are not the results of an experiment: {error!r} is missing or invalid") from None


def write_tables(folder: Path, results: Mapping[str, Any] | None = None) -> Table:
    """Make the table of a results folder, write it there as CSV, Markdown and LaTeX, and return it.

    `results` are those of the folder, if they were read already.
    """
    table = make_table(_read_results(folder) if results is None else results)
    write_table(table, folder, FORMATS)
    return table


def _read_results(folder: Path) -> Mapping[str, Any]:
    path = folder / RESULTS_FILE
    try:
        results: Mapping[str, Any] = FILE_CHECKSUM.verify(read_regular_file(path, follow_links=True))[0]
    except (OSError, ChecksumError) as error:
        reason = describe_file_error(error) if isinstance(error, OSError) else str(error)
        raise OutputError(f"cannot read {format_path(path)}: {reason}; sdssm reproduce writes it") from None
    return results


# -- accuracy ----------------------------------------------------------------------------------------------------------


def _accuracy_table(results: Mapping[str, Any]) -> Table:
    cells, first = results["cells"], results["scores"][0]
    shown_first = {cell["score"] for cell in cells if cell["first"]}  # they are all in the first grid
    has_published = any(_format_published(cell) for cell in cells)
    # The title says what a score of the accuracy is over; that strings are not uniform is always said.
    strings = f", {_describe_score(first)}" if first.startswith(MEASURES) else ""
    captions = {first: CAPTION + strings + (PUBLISHED_CAPTION if has_published else "")}
    captions |= {
        score: _caption(score, first) + ("; published numbers are above" if has_published else "")
        for score in results["scores"]
        if score not in shown_first
    }
    measured, missing = _measured_part(results)
    grids = []
    for score, caption in captions.items():
        shown = [cell for cell in cells if (cell["first"] if score == first else cell["score"] == score)]
        if score != first and all(cell["max"] is None for cell in shown):
            continue  # not measured
        # Published numbers are in the first grid alone: they were published once, not for each score.
        texts = {
            (cell["row"], cell["column"]): _format_accuracy(cell) + (_format_published(cell) if score == first else "")
            for cell in shown
        }
        grid = _make_grid(measured, caption, texts)
        if not score.startswith(PASSES):
            grid = _with_levels(grid, shown, "best_constant", CONSTANT, format_percent)
            grid = _with_levels(grid, cells, "chance", CHANCE, format_chance)
        grids.append(grid)
    grids += history_grids(measured)
    return Table(results["title"], grids, [_facts(cell) for cell in cells], [*_notes(cells, first), *missing])


def _measured_part(results: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """Return the results without rows and columns in which nothing was measured yet, and notes that name these."""
    known = [cell for cell in results["cells"] if cell["max"] is not None or cell["diverged"]]
    if not known:
        return results, []
    part, notes = dict(results), []
    for names, name in (("rows", "row"), ("columns", "column")):
        present = {cell[name] for cell in known}
        missing = [entry for entry in results[names] if entry not in present]
        part[names] = [entry for entry in results[names] if entry in present]
        notes += [f"not trained yet, and left out: {'; '.join(missing)}"] if missing else []
    return part, notes


def _with_levels(
    grid: Grid, cells: Sequence[Mapping[str, Any]], level: str, title: str, form: Callable[[float], str]
) -> Grid:
    """Add the levels of chance, or of the best constant answer, as a last row, or as a last column if rows are tasks.

    Results of older versions have no levels, and the grid is returned as it is.
    """
    known = [cell for cell in cells if cell.get(level) is not None]
    if not known:
        return grid
    by_column = _levels_by(known, level, "column", grid.columns)
    by_row = _levels_by(known, level, "row", [name for name, _ in grid.rows])
    if any(len(set(levels)) > 1 for levels in by_column) and all(len(set(levels)) <= 1 for levels in by_row):
        texts = [_format_range(levels, form) for levels in by_row]
        rows = [(name, [*row, text]) for (name, row), text in zip(grid.rows, texts, strict=True)]
        return replace(grid, columns=[*grid.columns, title], rows=rows)
    texts = [_format_range(levels, form) for levels in by_column]
    return replace(grid, rows=[*grid.rows, (title, texts)])


def _levels_by(cells: Sequence[Mapping[str, Any]], level: str, key: str, names: Sequence[str]) -> list[list[float]]:
    """Return the levels of the cells in each row or column."""
    return [[cell[level] for cell in cells if cell[key] == name] for name in names]


def _notes(cells: Sequence[Mapping[str, Any]], first: str) -> list[str]:
    main = [cell for cell in cells if cell["first"]]
    other_scores = {cell["row"]: cell["score"] for cell in main if cell["score"] != first}
    notes = [f"{row}: mean {_describe_score(score)}, as published" for row, score in other_scores.items()]
    measured = [cell for cell in main if cell["steps"] is not None]
    measured.sort(key=lambda cell: (-cell["steps"], -cell["seeds"]))
    notes += _summarize(measured, _describe_training)
    notes += _summarize(measured, _describe_device) if any(cell.get("trained_on") for cell in measured) else []
    notes += [f"{cell['row']}, {cell['column']}: {cell['choice']}" for cell in main if cell["choice"]]
    diverged = [cell for cell in main if cell["diverged"]]
    notes += [f"{cell['row']}, {cell['column']}: {cell['diverged']} diverged and left out" for cell in diverged]
    return notes


def _summarize(cells: Sequence[Mapping[str, Any]], describe: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Describe cells with one line for each distinct description."""
    groups: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        groups.setdefault(describe(cell), {}).setdefault(cell["row"], []).append(cell["column"])
    if len(groups) == 1:
        return list(groups)
    counts = Counter(row for rows in groups.values() for row in rows)
    return [
        f"{text}: "
        + "; ".join(row if counts[row] == 1 else f"{row} on {', '.join(columns)}" for row, columns in rows.items())
        for text, rows in groups.items()
    ]


def _describe_training(cell: Mapping[str, Any]) -> str:
    return f"{cell['steps']:,} steps, {count_of(cell['seeds'], 'seed')}"


def _describe_device(cell: Mapping[str, Any]) -> str:
    """Describe on which device the runs of a cell were made; results of older versions do not contain it."""
    trained, evaluated = cell.get("trained_on") or "a device not recorded", cell.get("evaluated_on")
    return f"trained on {trained}" + (f", evaluated on {evaluated}" if evaluated not in (None, trained) else "")


def _caption(score: str, first: str) -> str:
    """Return the caption of a grid below the first one, which shows the score `first`."""
    if score.startswith(PASSES):
        return f"the longest length {_describe_score(score)}: least to greatest over seeds"
    is_mean = not score.startswith("at ") and " at " not in score
    uniform = "on uniform strings, " if first.startswith(MEASURES) and not score.startswith(MEASURES) else ""
    return f"the same, {uniform}{'mean ' if is_mean else ''}{_describe_score(score)}"


def _describe_score(score: str) -> str:
    """Describe the lengths of a score.

    >>> [_describe_score(score) for score in ("all", "50..500", "to 5000", "at 5000")]
    ['over all lengths', 'over lengths 50 to 500', 'over every length to 5,000', 'at 5,000']
    >>> [_describe_score(score) for score in ("balanced", "covering at 500", "passes 99")]
    ['on balanced strings', 'on covering strings at 500', 'up to which the accuracy is at least 99 %']
    """
    if score.startswith(PASSES):
        return f"up to which the accuracy is at least {score.removeprefix(PASSES)} %"
    measure, _, length = score.partition(" at ")
    if measure in MEASURES:
        return f"on {measure} strings" + (f" at {int(length):,}" if length else "")
    if score == "all":
        return "over all lengths"
    if score in ("within", "beyond"):
        return "over training lengths" if score == "within" else "beyond training lengths"
    if ".." in score:
        return f"over lengths {score.replace('..', ' to ')}"
    kind, length = score.split(" ")
    return f"{'at' if kind == 'at' else 'over every length to'} {int(length):,}"


def _format_accuracy(cell: Mapping[str, Any]) -> str:
    if cell["max"] is None:
        return NOTHING
    if cell["score"].startswith(PASSES):
        return _format_range([cell["min"], cell["max"]], lambda length: f"{length:,.0f}")
    return f"{format_percent(cell['max'])} / {format_percent(cell['average'])}{_format_band(cell)}"


def _format_published(cell: Mapping[str, Any]) -> str:
    """Format the published numbers of a cell in brackets, after a space; empty if there are none."""
    values = [cell[name] for name in ("published_max", "published_average")]
    if values == [None, None]:
        return ""
    return f" ({' / '.join(NOTHING if value is None else f'{value:g}' for value in values)})"


def _format_band(cell: Mapping[str, Any]) -> str:
    """Format the interval of the average by its longer side, as the other may be clipped at 100."""
    low, high = cell["average_low"], cell["average_high"]
    return "" if low is None else f" ± {max(cell['average'] - low, high - cell['average'], 0.0):.1f}"


def _facts(cell: Mapping[str, Any]) -> dict[str, Any]:
    band = cell.get("max_band") or (None, None)
    statistics = ("row", "column", "score", "max", "average", "min", "average_low", "average_high")
    return {
        **{name: cell[name] for name in statistics},
        "max_low": band[0],
        "max_high": band[1],
        **{name: cell[name] for name in ("seeds", "diverged", "steps", "published_max", "published_average", "source")},
        "choice": cell["choice"],
        "trained_on": cell.get("trained_on"),
        "evaluated_on": cell.get("evaluated_on"),
        "chance": cell.get("chance"),
        **({"best_constant": cell["best_constant"]} if "best_constant" in cell else {}),  # not in older results
    }


# -- timings and claims ------------------------------------------------------------------------------------------------


def _timing_table(results: Mapping[str, Any]) -> Table:
    texts = {}
    for cell in results["cells"]:
        published = "" if cell["published"] is None else f" ({cell['published']:g})"
        texts[cell["row"], cell["column"]] = f"{cell['value']:.3g}{published}"
    grid = _make_grid(results, "milliseconds, and their ratio; published in brackets, on another device", texts)
    return Table(results["title"], [grid], results["cells"])


def _claims_table(results: Mapping[str, Any]) -> Table:
    has_chance = any(cell.get("chance_least") is not None for cell in results["cells"])
    rows = []
    for cell in results["cells"]:
        description = f"{cell['model']}, {cell['task']}: {cell['quantity']}"
        published = f"{cell['value']} {cell['unit']}".strip()
        levels = [cell[name] for name in ("chance_least", "chance_greatest") if cell.get(name) is not None]
        chance = [_format_range(levels, format_chance)] if has_chance else []
        rows.append((cell["id"], [description, published, _format_claim(cell), *chance, _describe_origin(cell)]))
    columns = ["what", "published", "ours", *([CHANCE] if has_chance else []), "from"]
    texts = ("what", "published", "from")
    grid = Grid("numbers in the text of the paper, and ours", results["corner"], columns, rows, texts)
    return Table(results["title"], [grid], results["cells"])


def _format_claim(cell: Mapping[str, Any]) -> str:
    if cell["spec"] is None:
        return "not measured"
    if cell["least"] is None:
        return "never" if cell["never"] else NOTHING
    form = str if cell["figure"] == "first_below_99" else format_percent
    return _format_range([cell["least"], cell["greatest"]], form)


def _describe_origin(cell: Mapping[str, Any]) -> str:
    if cell["spec"] is None:
        return str(cell["note"] or NOTHING)
    steps = "" if cell["steps"] is None else f", {cell['steps']:,} steps"
    return f"{cell['spec']}{steps}" + (f"; {cell['note']}" if cell["note"] else "")


def _format_range(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Format the least and the greatest value, or one of them if they look the same."""
    ends = dict.fromkeys(form(end) for end in (min(values), max(values))) if values else [NOTHING]
    return " to ".join(ends)


def _make_grid(results: Mapping[str, Any], caption: str, texts: Mapping[tuple[str, str], str]) -> Grid:
    columns = results["columns"]
    rows = [(row, [texts.get((row, column), NOTHING) for column in columns]) for row in results["rows"]]
    return Grid(caption, results["corner"], columns, rows)
