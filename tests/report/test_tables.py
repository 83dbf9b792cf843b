"""Tables in every format, compared with the expected text."""

from __future__ import annotations

import ast
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import OutputError
from sdssm.experiments.results.chance import fill_constants
from sdssm.report import tables
from sdssm.report.rendering import to_csv, to_latex, to_markdown, to_text
from sdssm.report.tables import make_table, write_tables


def cell(row: str, column: str, score: str, ours: tuple[float, float] | None, **more: Any) -> dict[str, Any]:
    return {
        "score": score,
        "first": score == "all",
        "row": row,
        "column": column,
        "max": None if ours is None else ours[0],
        "average": None if ours is None else ours[1],
        "min": None if ours is None else 2 * ours[1] - ours[0],
        "average_low": None,
        "average_high": None,
        "max_band": None,
        "seeds": 0 if ours is None else 2,
        "diverged": 0,
        "steps": None if ours is None else 1000,
        "choice": None,
        "published_max": None,
        "published_average": None,
        "source": None,
        "chance": {"a5": 100 / 60, "even_pairs": 50.0}[column],
        **more,
    }


def results() -> dict[str, Any]:
    published = {"published_max": 100.0, "published_average": 98.5, "source": "Table 1"}
    band = {"average_low": 97.0, "average_high": 100.0, "max_band": [99.5, 100.0]}
    return {
        "name": "tiny",
        "kind": "accuracy",
        "title": "A tiny one",
        "corner": "model",
        "rows": ["SD-SSM", "S_4 & more"],
        "columns": ["a5", "even_pairs"],
        "scores": ["all", "beyond"],
        "cells": [
            cell("SD-SSM", "a5", "all", (99.99999, 98.5), **published, **band),
            cell("S_4 & more", "a5", "all", None, **published),
            cell("S_4 & more", "even_pairs", "all", (50.0, 49.995), choice="best of 3 by x: lr 1", diverged=1),
            cell("SD-SSM", "a5", "beyond", (98.0, 97.0), **published),
            cell("S_4 & more", "a5", "beyond", None),
            cell("S_4 & more", "even_pairs", "beyond", (50.0, 50.0)),
        ],
        "runs": [],
    }


def test_text() -> None:
    assert to_text(make_table(results())) == (
        "A tiny one\n\n"
        "max / average over seeds ± its 95 % band, in %; published max / average in brackets\n"
        "model       a5                                even_pairs\n"
        "SD-SSM      99.99 / 98.50 ± 1.5 (100 / 98.5)  -\n"
        "S_4 & more  - (100 / 98.5)                    50.00 / 49.99\n"
        "chance      1.67                              50\n\n"
        "the same, mean beyond training lengths; published numbers are above\n"
        "model       a5             even_pairs\n"
        "SD-SSM      98.00 / 97.00  -\n"
        "S_4 & more  -              50.00 / 50.00\n"
        "chance      1.67           50\n\n"
        "1,000 steps, 2 seeds\n"
        "S_4 & more, even_pairs: best of 3 by x: lr 1\n"
        "S_4 & more, even_pairs: 1 diverged and left out\n"
    )


def test_columns_that_do_not_fit_are_moved_below() -> None:
    data = results()
    data["cells"], data["scores"] = data["cells"][:3], ["all"]
    assert (
        "chance      1.67\n\nmodel       even_pairs\nSD-SSM      -\nS_4 & more  50.00 / 49.99\nchance      50\n"
    ) in to_text(make_table(data), 45)


def test_markdown() -> None:
    data = results()
    data["cells"] = data["cells"][:2]
    data["scores"] = ["all"]
    assert to_markdown(make_table(data)) == (
        "# A tiny one\n\n"
        "max / average over seeds ± its 95 % band, in %; published max / average in brackets\n\n"
        "| model | a5 |\n"
        "| --- | --- |\n"
        "| SD-SSM | 99.99 / 98.50 ± 1.5 (100 / 98.5) |\n"
        "| chance | 1.67 |\n\n"
        "- 1,000 steps, 2 seeds\n"
        "- not trained yet, and left out: S_4 & more\n"
        "- not trained yet, and left out: even_pairs\n"
    )


def test_rows_and_columns_without_results_are_left_out_and_named() -> None:
    data = results()
    data["cells"][:3] = [cell("SD-SSM", "a5", "all", (99.0, 98.0)), cell("S_4 & more", "a5", "all", None)]
    data["cells"] = data["cells"][:2]
    table = make_table(data)
    assert table.grids[0].columns == ["a5"] and [name for name, _ in table.grids[0].rows] == ["SD-SSM", "chance"]
    assert len(table.facts) == 2  # the CSV file has every cell
    data["cells"] = [{**entry, "max": None} for entry in data["cells"]]
    assert make_table(data).grids[0].columns == ["a5", "even_pairs"]  # nothing at all was measured
    diverged = cell("S_4 & more", "even_pairs", "all", None, diverged=2, steps=1000)
    assert [name for name, _ in make_table({**data, "cells": [diverged]}).grids[0].rows] == ["S_4 & more", "chance"]


def test_published_numbers_are_shown_once() -> None:
    """They were published for one score."""
    first, second = make_table(results()).grids
    assert first.caption.endswith("published max / average in brackets") and "(100 / 98.5)" in first.rows[0][1][0]
    assert second.caption.endswith("published numbers are above")
    assert not any("(" in text for _, cells in second.rows for text in cells)
    data = results()
    data["cells"] = [{**entry, "published_max": None, "published_average": None} for entry in data["cells"]]
    assert not any("published" in grid.caption for grid in make_table(data).grids)


def test_latex() -> None:
    data = results()
    data["cells"] = data["cells"][:3]
    data["scores"] = ["all"]
    assert to_latex(make_table(data)) == (
        "% A tiny one\n\n"
        "% max / average over seeds ± its 95 % band, in %; published max / average in brackets\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "model & a5 & even\\_pairs \\\\\n"
        "\\midrule\n"
        "SD-SSM & 99.99 / 98.50 $\\pm$ 1.5 (100 / 98.5) & -- \\\\\n"
        "S\\_4 \\& more & - (100 / 98.5) & 50.00 / 49.99 \\\\\n"
        "chance & 1.67 & 50 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n\n"
        "% 1,000 steps, 2 seeds\n"
        "% S_4 & more, even_pairs: best of 3 by x: lr 1\n"
        "% S_4 & more, even_pairs: 1 diverged and left out\n"
    )


def test_csv() -> None:
    lines = to_csv(make_table(results())).splitlines()
    assert lines[0] == (
        "row,column,score,max,average,min,average_low,average_high,max_low,max_high,seeds,diverged,steps,"
        "published_max,published_average,source,choice,trained_on,evaluated_on,chance"
    )
    assert lines[1] == "SD-SSM,a5,all,100.0,98.5,97.0,97.0,100.0,99.5,100.0,2,0,1000,100.0,98.5,Table 1,,,,1.6667"
    assert lines[2] == "S_4 & more,a5,all,,,,,,,,0,0,,100.0,98.5,Table 1,,,,1.6667"
    assert len(list(csv.DictReader(io.StringIO("\n".join(lines))))) == 6


def test_row_with_another_score_and_other_steps() -> None:
    data = results()
    data["scores"], data["columns"] = ["all", "50..500"], ["a5"]
    other = cell("S_4 & more", "a5", "50..500", (52.0, 51.0), first=True, steps=10, seeds=1)
    data["cells"] = [data["cells"][0], {**data["cells"][1], "first": False}, other]
    text = to_text(make_table(data))
    assert "S_4 & more  52.00 / 51.00" in text
    assert text.count("model  ") == 1  # the score of a single row has no separate grid
    assert text.endswith(
        "S_4 & more: mean over lengths 50 to 500, as published\n"
        "1,000 steps, 2 seeds: SD-SSM\n10 steps, 1 seed: S_4 & more\n"
    )


def test_timings() -> None:
    times = {"recurrent": (2.5, 1820.0), "parallel": (1.25, None)}
    cells = [
        {"row": row, "column": "64", "value": value, "unit": "ms", "published": published, "source": None}
        for row, (value, published) in times.items()
    ]
    head = {"kind": "timing", "title": "Runtime", "corner": "mode", "rows": list(times), "columns": ["64"]}
    text = to_text(make_table({**head, "cells": cells, "runs": []}))
    assert "recurrent  2.5 (1820)\nparallel   1.25\n" in text


def test_claims() -> None:
    base = {"model": "mamba", "task": "arithmetic", "quantity": "accuracy", "value": "91.6", "unit": "%", "note": ""}
    measured = {
        "spec": "table1",
        "figure": "within",
        "least": 90.129,
        "greatest": 91.0,
        "never": False,
        "steps": 50_000,
    }
    measured |= {"chance_least": 20.0, "chance_greatest": 50.0}
    missing = {
        **measured,
        "least": None,
        "greatest": None,
        "steps": None,
        "chance_least": None,
        "chance_greatest": None,
    }
    cells = [
        {"id": "C1", **base, **measured},
        {"id": "C2", **base, **missing},
        {"id": "C3", **base, **missing, "never": True},
        {"id": "C4", **base, **missing, "spec": None, "note": "a setting"},
        {"id": "C5", **base, **measured, "figure": "first_below_99", "least": 22, "greatest": 22, "chance_least": None},
    ]
    head = {"kind": "claims", "title": "Claims", "corner": "claim", "rows": [], "columns": []}
    table = make_table({**head, "cells": cells, "runs": []})
    for width in (60, 80, 120):  # sentences are wrapped, and numbers are not
        lines = to_text(table, width).splitlines()
        assert max(map(len, lines)) <= width and any("90.12 to 91.00" in line for line in lines)
    [grid] = table.grids
    assert [cells[2:] for _, cells in grid.rows] == [
        ["90.12 to 91.00", "20 to 50", "table1, 50,000 steps"],
        ["-", "-", "table1"],
        ["never", "-", "table1"],
        ["not measured", "-", "a setting"],
        ["22", "50", "table1, 50,000 steps"],
    ]


def test_chance_is_a_column_if_rows_are_tasks() -> None:
    data = results()
    data |= {"rows": ["a5", "even_pairs"], "columns": ["SD-SSM"], "scores": ["all"]}
    data["cells"] = [{**cell("-", row, "all", (99.0, 98.0)), "row": row, "column": "SD-SSM"} for row in data["rows"]]
    [grid] = make_table(data).grids
    assert grid.columns == ["SD-SSM", "chance"]
    assert [row for _, row in grid.rows] == [["99.00 / 98.00", "1.67"], ["99.00 / 98.00", "50"]]


def test_results_without_chance_are_tabulated() -> None:
    """Version 0.1.0 did not write chance levels."""
    data = results()
    data["cells"] = [{name: value for name, value in old.items() if name != "chance"} for old in data["cells"]]
    [first, _] = make_table(data).grids
    assert [name for name, _ in first.rows] == ["SD-SSM", "S_4 & more"]


def test_files(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot read"):
        write_tables(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(results()))
    table = write_tables(tmp_path)
    assert (tmp_path / "table.csv").read_text() == to_csv(table)
    assert (tmp_path / "table.md").read_text() == to_markdown(table)
    assert (tmp_path / "table.tex").read_text() == to_latex(table)
    with pytest.raises(OutputError, match="not the results of an experiment"):
        make_table({"kind": "accuracy"})


def test_tables_import_only_the_foundation_and_rendering() -> None:
    tree = ast.parse(Path(tables.__file__).read_text())
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in names if name.startswith("sdssm")} == {
        "sdssm.checksums",
        "sdssm.errors",
        "sdssm.files",
        "sdssm.formatting",
        "sdssm.report.histories",
        "sdssm.report.rendering",
    }


RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    "path", sorted(RESULTS.rglob("table.csv")), ids=lambda path: str(path.parent.relative_to(RESULTS))
)
def test_no_stored_accuracy_stands_without_the_best_constant_answer(path: Path) -> None:
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    scored = [row for row in rows if row.get("max") and not row["score"].startswith("passes")]
    assert all(float(row["best_constant"]) > 0 for row in scored)
    page = path.with_suffix(".md").read_text()
    assert "best constant" in page or not scored


def test_results_of_older_versions_get_the_best_constant_answer_of_their_task() -> None:
    old = results()
    run = {"row": "SD-SSM", "column": "a5", "task": "tomita4", "train_length": 40, "max_length": 500, "settings": {}}
    table = make_table(fill_constants({**old, "runs": [run]}))
    assert [fact["best_constant"] for fact in table.facts if (fact["row"], fact["score"]) == ("SD-SSM", "all")] == [
        pytest.approx(98.35, abs=0.01)
    ]
    assert all(fact.get("best_constant") is None for fact in table.facts if fact["row"] != "SD-SSM")
