"""Cells: statistics over seeds, the best candidate of a grid, published numbers and chance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sdssm.experiments.results.chance import BestConstants, chance_by_cell
from sdssm.experiments.results.records import Record
from sdssm.experiments.specs.catalogue import PublishedCell, published_numbers
from sdssm.experiments.specs.scores import Score
from sdssm.experiments.specs.spec import Spec
from sdssm.means import mean_of_known

#: Student's t for a 95 % confidence interval, by degrees of freedom (seeds - 1); the last value is used beyond.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)


def make_cells(spec: Spec, records: Sequence[Record]) -> list[Record]:
    """Return a dictionary for each cell and score: statistics, published numbers and chance.

    Missing numbers are None.
    """
    published, chance, constants = published_numbers(spec), chance_by_cell(spec), BestConstants()
    row_scores = {row.label: row.score for row in spec.rows}
    cells = []
    for score in spec.evaluate.scores:
        for row, column in spec.cells():
            runs = [record for record in records if (record["row"], record["column"]) == (row, column)]
            chosen, choice = _choose(spec, score.name, runs)
            # Published numbers are repeated with every score for comparison, except scores of listed lengths and of
            # other measures, for which nothing was published.
            numbers = published.get((row, column)) if _is_published(score) else None
            first = row_scores[row] or spec.evaluate.scores[0].name
            cell = {"score": score.name, "first": score.name == first, "row": row, "column": column}
            cell |= _statistics(chosen, score.name, is_percent=score.threshold is None)
            if cell["best_constant"] is None and cell["max"] is not None:
                cell["best_constant"] = constants.compute(score, chosen[0])
            cells.append({**cell, "choice": choice, **_published_fields(numbers), "chance": chance[row, column]})
    return cells


def shown_runs(spec: Spec, records: Sequence[Record]) -> list[Record]:
    """Return the runs that the cells show: all runs, or of a grid the runs of the best candidate."""
    first = spec.evaluate.scores[0].name
    return [
        record
        for cell in spec.cells()
        for record in _choose(spec, first, [r for r in records if (r["row"], r["column"]) == cell])[0]
    ]


def _choose(spec: Spec, score: str, runs: Sequence[Record]) -> tuple[list[Record], str | None]:
    """Return the runs of the best candidate of a cell, and how it was chosen (None without a grid)."""
    if not any(record["variant"] for record in runs):
        return list(runs), None
    candidates = rank_candidates(spec, score, runs)
    words = ", ".join(f"{name} {value}" for name, value in candidates[0][0]["variant"].items())
    return list(candidates[0]), f"best of {len(candidates)} by {choice_words(spec)}: {words}"


def rank_candidates(spec: Spec, score: str, runs: Sequence[Record]) -> list[list[Record]]:
    """Group the runs of one cell by candidate, best candidate first.

    Candidates are ordered by steps, then by value. Candidates of which every seed diverged come last.
    """
    groups: dict[str, list[Record]] = {}
    for record in runs:
        groups.setdefault(json.dumps([record["variant"], record["steps"]], sort_keys=True), []).append(record)

    def rank(group: Sequence[Record]) -> tuple[bool, int, float]:
        # If the grid varies the steps themselves, more steps are not preferred.
        steps = 0 if "steps" in group[0]["variant"] else group[0]["steps"]
        value = candidate_value(spec, score, group)
        return any(record["status"] == "finished" for record in group), steps, -1.0 if value is None else value

    return sorted(groups.values(), key=rank, reverse=True)


def choice_words(spec: Spec) -> str:
    """Return how the best candidate of a grid is chosen, in words."""
    if spec.choose == "score":
        return "the score itself, at test lengths"
    measure = spec.evaluate.scores[0].measure
    return f"{'' if measure is None else f'{measure} '}accuracy at training lengths"


def candidate_value(spec: Spec, score: str, runs: Sequence[Record]) -> float | None:
    """Return the value by which candidates are compared.

    If the spec chooses by "score", it is the best score of a seed. If it chooses "within", it is the mean over seeds of
    the accuracy at training lengths, by the measure of the first score: on uniform strings a constant answer may be
    nearly always right.
    """
    if spec.choose == "score":
        return max((value for run in runs if (value := run["scores"].get(score)) is not None), default=None)
    return mean_of_known([judged_within(run) for run in runs])


def judged_within(record: Record) -> float | None:
    """Return the accuracy at training lengths by which a run is judged; older records have that of uniform strings."""
    judged: float | None = record.get("judged_within")
    return record["within"] if judged is None else judged


def _statistics(runs: Sequence[Record], score: str, *, is_percent: bool) -> Record:
    finished = [record for record in runs if record["status"] == "finished"]
    scored = [(record["scores"].get(score), record) for record in finished]
    values = [value for value, _ in scored if value is not None]
    low, high = t_band(values) if is_percent else (None, None)
    best = max((pair for pair in scored if pair[0] is not None), key=lambda pair: pair[0], default=(None, None))[1]
    return {
        "max": max(values, default=None),
        "average": mean_of_known(values),
        "min": min(values, default=None),
        "average_low": low,
        "average_high": high,
        "max_band": None if best is None else best["bands"].get(score),
        "best_constant": mean_of_known([record.get("constants", {}).get(score) for record in finished]),
        "seeds": len(values),
        "diverged": sum(record["status"] == "diverged" for record in runs),
        "steps": runs[0]["steps"] if runs else None,
        **{name: _join_names(record.get(name) for record in finished) for name in ("trained_on", "evaluated_on")},
    }


def _join_names(names: Iterable[str | None]) -> str | None:
    """Join distinct names; None if one of them is unknown, as in results of an older version."""
    distinct = list(dict.fromkeys(names))
    return None if None in distinct or not distinct else ", ".join(sorted(map(str, distinct)))


def t_band(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % confidence interval of the mean over seeds by Student's t, clipped to 0..100.

    It assumes that the values of seeds are normally distributed.

    >>> t_band([90.0, 92.0, 94.0])
    (87.03, 96.97)
    >>> t_band([90.0])
    (None, None)
    """
    if len(values) < 2:
        return None, None
    mean = sum(values) / len(values)
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    half = T95[min(len(values) - 1, len(T95)) - 1] * error
    return round(max(0.0, mean - half), 2), round(min(100.0, mean + half), 2)


def _is_published(score: Score) -> bool:
    """Whether the published numbers of a cell can be compared with a score: mean accuracies over a range of lengths."""
    return score.listed_length is None and score.measure is None and score.threshold is None


def _published_fields(numbers: PublishedCell | None) -> Mapping[str, Any]:
    return {
        "published_max": None if numbers is None else numbers.max,
        "published_average": None if numbers is None else numbers.average,
        "source": None if numbers is None else numbers.source,
    }
