"""Figures that README.md and the pages in results/ state, compared with the records that are stored beside them.

A sentence is found by its words and its figures are computed from the records: the test fails if either changes alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.languages import HELD_OUT, STUDIED
from sdssm.experiments.mlregtest.records import LanguageRecord, RecordStore
from sdssm.experiments.mlregtest.summary import (
    BALANCED_TARGET,
    EQUAL_TARGET,
    count_unnamed,
    least_share,
    summarise_classes,
)
from sdssm.experiments.mlregtest.tables import split_parts, write_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def read_words(path: str) -> str:
    """Return the text of a page with single spaces, so that a sentence is found wherever its lines are broken."""
    return re.sub(r"\s+", " ", (ROOT / path).read_text(encoding="utf-8"))


# -- MLRegTest -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records() -> list[LanguageRecord]:
    return list(RecordStore(RESULTS / "mlregtest").load_all(Configuration().fingerprint).values())


@pytest.fixture(scope="module")
def held_out(records: list[LanguageRecord]) -> list[LanguageRecord]:
    return split_parts(records)[HELD_OUT]


def is_balanced(record: LanguageRecord) -> bool:
    return (record.score("balanced", 500) or 0) >= 99.9


def is_covered(record: LanguageRecord) -> bool:
    return (record.score("covering", 500) or 0) >= 99.9


def is_proved(record: LanguageRecord) -> bool:
    return record.verdict == "equal"


def test_the_tables_of_mlregtest_are_those_of_its_records(records: list[LanguageRecord], tmp_path: Path) -> None:
    write_results(records, tmp_path, command="sdssm reproduce mlregtest --data DIR", settings={})
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["classes.csv", "failures.csv", "languages.csv", "summary.md"]
    for name in written:
        assert (tmp_path / name).read_text() == (RESULTS / "mlregtest" / name).read_text(), name


def test_the_shares_of_mlregtest_that_pages_state(held_out: list[LanguageRecord]) -> None:
    count = len(held_out) - count_unnamed()
    balanced, proved = least_share(held_out, is_balanced), least_share(held_out, is_proved)
    readme = read_words("README.md")
    assert f"Of {count} languages of MLRegTest" in readme
    assert f"at least {balanced} % are at 99.9 % or more at length 500" in readme
    assert f"for at least {proved} % the automaton read back from the weights is proved equal" in readme
    queue = read_words("results/QUEUE.md")
    assert f"at least {balanced} % of the {count} languages that were never looked at" in queue
    assert f"at least {proved} % proved equal" in queue
    assert f"on {balanced:.0f} % of {count} languages" in read_words("docs/explanation/gains.md")


def test_the_table_of_mlregtest_in_the_results_page(
    records: list[LanguageRecord], held_out: list[LanguageRecord]
) -> None:
    untuned = held_out + split_parts(records)[STUDIED]
    total = summarise_classes(untuned)[-1]
    count, unnamed = len(held_out) - count_unnamed(), count_unnamed()
    properties = {
        "balanced accuracy of at least 99.9 %": (is_balanced, total.balanced_share, f"{BALANCED_TARGET:g}"),
        "covering accuracy of at least 99.9 %": (is_covered, total.covering_share, ""),
        "automaton read from the weights proved": (is_proved, total.equal_share, f"{EQUAL_TARGET:g}"),
        "and not one error": (lambda record: record.is_followed, total.followed_share, ""),
        "proved exact at every length": (lambda record: record.is_snapped, total.snapped_share, ""),
    }
    lines = (RESULTS / "languages.md").read_text(encoding="utf-8").splitlines()
    headers = ("of the languages outside of tuning", f"share of {len(untuned)}", f"share of the {count} never")
    assert any(all(header in line for header in headers) for line in lines)
    for name, (has_property, share, target) in properties.items():
        (line,) = (line for line in lines if line.startswith(f"| {name}"))
        _, stated, known, least, stated_target = (cell.strip() for cell in line.strip("|").split("|"))
        assert (stated, least, stated_target) == (f"{share:.1f}", str(least_share(held_out, has_property)), target)
        # The names behind this column are lost: it can only be bounded, by none of the unnamed with the property.
        assert float(least) <= float(known) <= 100 * min(1, sum(map(has_property, held_out)) / count)
    assert f"Only {len(split_parts(records)[STUDIED])} of the {len(untuned) - count} names" in read_words(
        "results/languages.md"
    )
    assert unnamed == len(untuned) - count - len(split_parts(records)[STUDIED])


def test_the_failures_of_mlregtest_that_the_results_page_counts(records: list[LanguageRecord]) -> None:
    page = read_words("results/languages.md")
    symbols, states = ({getattr(record, name) for record in records} for name in ("symbols", "states"))
    assert sorted(symbols) == [4, 16, 64] and "4, 16 or 64 symbols" in page
    assert f"has {len(records)} languages of MLRegTest" in page and f"{min(states)} to {max(states)} states" in page
    seconds, proving = sum(record.device_seconds for record in records), fmean(r.proof_seconds for r in records)
    assert f"in {seconds:.0f} s of training and measuring" in page and f"on average {proving:.1f} s of a core" in page
    failed = [record for record in records if record.reason]
    untrained = [record.states for record in failed if str(record.reason).startswith("not learned at training")]
    drifting = [record.states for record in failed if str(record.reason).startswith("learned at training lengths")]
    assert f"{len(untrained)} languages have {min(untrained)} to {max(untrained)} states" in page
    assert f"{len(drifting)} languages of {min(drifting)} to {max(drifting)} states" in page
    others = len(failed) - len(untrained) - len(drifting)
    assert f"{others} more make errors on test strings of length 500" in page


# -- experiments with cells --------------------------------------------------------------------------------------------


def read_cells(name: str) -> list[dict[str, Any]]:
    """Return the cells with a result of a results folder."""
    cells: list[dict[str, Any]] = json.loads((RESULTS / name / "results.json").read_text())["cells"]
    return [cell for cell in cells if cell["min"] is not None]


def lowest(cells: list[dict[str, Any]], *scores: str) -> dict[str, Any]:
    """Return the cell with the lowest accuracy among those of these scores, each of which must be there."""
    assert set(scores) <= {cell["score"] for cell in cells}
    return min((cell for cell in cells if cell["score"] in scores), key=lambda cell: float(cell["min"]))


def test_regular_21_is_as_the_results_page_says() -> None:
    page, cells = read_words("results/languages.md"), read_cells("regular-21")
    rows = {cell["row"] for cell in cells}
    assert lowest(cells, "balanced at 500", "covering at 500", "all")["min"] == 100
    far = [cell for cell in cells if cell["score"].endswith("50000")]
    failed = {cell["row"] for cell in far if cell["min"] < 100}
    assert f"{len(rows - failed)} of the {len(rows)} languages have 100.00 by all measures in every seed" in page
    for row in failed:
        stated = [
            ", ".join(f"{int(100 * cell[name]) / 100:.2f}" for name in ("max", "average", "min"))
            for score in ("balanced at 50000", "to 50000")
            for cell in far
            if (cell["row"], cell["score"]) == (row, score)
        ]
        assert f" | {stated[0]} | {stated[1]} |" in page.split(f"| `{row}` |")[1][:80], row
    assert {(cell["seeds"], cell["trained_on"]) for cell in cells} == {(16, "NVIDIA H200")}
    assert f"all of the {16 * len(rows)} runs have 100.00" in page
    steps = Counter(cell["steps"] for cell in cells if cell["score"] == "balanced at 500")
    assert steps == {5_000: 14, 40_000: 6, 4_000: 1}
    assert "5,000 for 14 languages, 40,000 for six, 4,000 for `prefix:4x4`" in page


def test_the_other_automata_by_balanced_and_covering_accuracy_are_as_the_results_page_says() -> None:
    page, cells = read_words("results/languages.md"), read_cells("beyond")
    balanced = [f"balanced at {length}" for length in (500, 5_000)]
    assert {(cell["seeds"], cell["steps"], cell["trained_on"]) for cell in cells} == {(4, 40_000, "NVIDIA H200")}
    assert lowest(cells, *balanced, "covering at 500", "all", "to 5000")["min"] == 100
    constants = [int(100 * cell["best_constant"]) / 100 for cell in cells if cell["score"] in balanced]
    count = len({cell["row"] for cell in cells})
    assert f"all {4 * count} runs have 100.00 on balanced strings at 500 and at 5,000" in page
    assert f"(best constant {min(constants):.2f} to {max(constants):.2f})" in page
    long = [cell for cell in cells if cell["score"] == "covering at 5000"]
    assert f"On covering strings at 5,000 {sum(cell['min'] == 100 for cell in long)} of the {count} automata do" in page
    worst = lowest(cells, "covering at 5000")
    best, least = (int(100 * worst[name]) / 100 for name in ("max", "min"))
    stated = f"`{worst['row']}` has {best:.2f} in the best seed and {least:.2f} in the worst there"
    assert f"{stated} (best constant {worst['best_constant']:.2f})" in page


def test_the_word_problems_are_as_the_results_page_says() -> None:
    page, cells = read_words("results/languages.md"), read_cells("word-problem")
    small = [cell for cell in cells if cell["row"] in ("c2:all", "c6:all", "s3:all")]
    assert {(cell["seeds"], cell["steps"], cell["trained_on"]) for cell in small} == {(4, 40_000, "NVIDIA H200")}
    count = 4 * len({(cell["row"], cell["column"]) for cell in small})
    assert f"All {count} runs of C2, C6 and S3 have 100.00" in page
    assert lowest(small, "129..512", "all", "to 50000", "at 50000")["min"] == 100
    assert lowest(small, "passes 99")["min"] == 1_000
    large = {(cell["row"], cell["column"]): cell for cell in cells if cell["score"] == "129..512"}
    for column in ("SD-SSM", "32 matrices"):
        stated = [
            " / ".join(f"{int(100 * large[row, column][name]) / 100:.2f}" for name in ("max", "average"))
            for row in ("a5:all", "s5:all")
        ]
        assert re.search(rf"\| {stated[0]}[^|]*\| {stated[1]} \|", page), (column, stated)
    runs = re.findall(
        r"a5:all +sd-ssm +\d +512 +([\d.]+) +([\d.]+) +([\d.]+) ", (RESULTS / "word-problem/a5-states.txt").read_text()
    )
    assert runs == [("100.00",) * 3] * 4


# -- the loss near zero ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["d4", "a5"])
@pytest.mark.parametrize("row", ["as published", "exact gradient"])
def test_histories_of_the_exact_gradient(task: str, row: str) -> None:
    runs = json.loads((RESULTS / "cpu/exact-gradient/results.json").read_text(encoding="utf-8"))["runs"]
    late = [
        beyond
        for run in runs
        if (run["column"], run["row"]) == (task, row)
        for step, _, _, beyond in run["history"]
        if step > run["steps"] / 2
    ]
    share = 100 * sum(beyond >= 99.9 for beyond in late) / len(late)
    assert f"| `{task}`, {row} | {int(share * 100) / 100:.2f} |" in read_words("results/loss-near-zero.md")


def test_the_default_recipe_with_the_exact_gradient_makes_no_error() -> None:
    cells = read_cells("cpu/exact-gradient-default")
    assert {(cell["seeds"], cell["steps"], cell["trained_on"]) for cell in cells} == {(2, 40_000, "CPU")}
    assert lowest(cells, "all", "beyond", "to 5000", "to 50000", "at 5000", "at 50000")["min"] == 100
    runs = 2 * len({cell["column"] for cell in cells})
    assert f"All {runs} runs have 100.00" in read_words("results/loss-near-zero.md")
    assert f"all {runs} runs at 100.00 to length 50,000" in read_words("results/QUEUE.md")
