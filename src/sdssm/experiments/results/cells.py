"""From runs to the cells of a table: the best, the mean and the worst seed, and how sure the mean is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sdssm.evaluation.description import changed_settings
from sdssm.experiments.execution.runner import curve_of
from sdssm.experiments.planning.plan import Plan, PlannedRun
from sdssm.experiments.specs.catalogue import Published, published_numbers
from sdssm.experiments.specs.scores import Score, mean
from sdssm.experiments.specs.spec import Spec
from sdssm.runs import ENDED, RunFolder

#: Student's t for a band of 95 % by the degrees of freedom, one less than there are seeds; beyond, the last.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)

Record = dict[str, Any]
#: How the best of a grid was chosen, in words.
CHOSEN = {"within": "accuracy at training lengths", "score": "the score itself, at test lengths"}
#: What a record must have to stand beside others; results of another version may lack some of it.
KEYS = frozenset(
    ("row", "column", "seed", "variant", "training", "max_length", "status", "steps", "scores", "bands", "within")
)


def records_of(plan: Plan) -> list[Record]:
    """One record for each run of a plan that has ended and was evaluated, whoever trained it."""
    found = (_record(plan.spec, run) for run in plan.runs if run.status in ENDED)
    return [record for record in found if record is not None]


def _record(spec: Spec, run: PlannedRun) -> Record | None:
    asked = spec.evaluate
    curve, listed = curve_of(run.folder, run.task, asked)
    folder, config = RunFolder.open(run.folder), run.config
    at = folder.progress
    if curve is None and at.status != "diverged":
        return None
    longest = asked.max_length or run.task.test_length
    record: Record = {
        "row": run.row,
        "column": run.column,
        "task": config.task,
        "model": config.model.name,
        "preset": config.preset,
        "seed": config.seed,
        "variant": dict(run.variant),
        "training": run.training,
        "digest": config.digest,
        "settings": changed_settings(config.settings, config.preset, config.task),
        "train_length": config.train_length,
        "max_length": longest,
        "status": at.status,
        "steps": config.train.steps,
        "seconds": round(at.seconds, 1),
        "trained_on": at.device,
        "versions": dict(config.versions),
        "evaluated_on": None if curve is None else curve.get("device"),
        "scores": {},
        "bands": {},
        "within": None,
        "first_below_99": None,
        "accuracy": None,
    }
    if curve is not None:
        for score in asked.scores:
            far = score.named is not None
            record["scores"][score.name] = score.far(listed) if far else score.of(curve, longest)
            record["bands"][score.name] = score.far_band(listed) if far else score.band(curve, longest)
        below = curve.get("first_below_99")
        record["within"] = Score("within").of(curve, longest)
        record["first_below_99"] = below if below is None or below <= longest else None
        values = curve["accuracy"][:longest]
        record["accuracy"] = [None if value is None else round(value, 2) for value in values]
    return record


def key_of(record: Record) -> tuple[Any, ...]:
    """What tells a record from all others of its results."""
    return record["row"], record["column"], record["training"], record["seed"], record["steps"]


def merged(plan: Plan, before: Sequence[Record], now: Sequence[Record]) -> list[Record]:
    """Records of this and of earlier commands: of each cell those with the most steps, in the order of the plan.

    What was trained or tested for a cell as the spec no longer says it is left out.
    """
    asked = plan.spec.evaluate.max_length
    planned = {(run.row, run.column, run.training, asked or run.task.test_length) for run in plan.runs}
    kept: dict[tuple[Any, ...], Record] = {}
    for record in (*before, *now):
        if (record["row"], record["column"], record["training"], record["max_length"]) in planned:
            kept[key_of(record)] = record
    most: dict[tuple[str, str], int] = {}
    for record in kept.values():
        cell = (record["row"], record["column"])
        most[cell] = max(most.get(cell, 0), record["steps"] if not record["variant"] else 0)
    place = {key: number for number, key in enumerate(dict.fromkeys((r.row, r.column, r.training) for r in plan.runs))}
    found = [
        record
        for record in kept.values()
        if record["variant"] or record["steps"] == most[record["row"], record["column"]]
    ]
    return sorted(found, key=lambda r: (place[r["row"], r["column"], r["training"]], r["seed"], r["steps"]))


def cells_of(spec: Spec, records: Sequence[Record]) -> list[Record]:
    """A record for each cell of each score, ours and what was published; None where there is nothing."""
    published = published_numbers(spec)
    scores = {row.label: row.score for row in spec.rows}
    found = []
    for score in spec.evaluate.scores:
        for row, column in spec.cells():
            runs = [record for record in records if (record["row"], record["column"]) == (row, column)]
            chosen, choice = _choice(spec, score.name, runs)
            # A published number stands beside the score it was published as, and beside others to compare; nothing was
            # published of lengths that are named one by one.
            known = published.get((row, column)) if score.named is None else None
            first = scores[row] or spec.evaluate.scores[0].name
            cell = {"score": score.name, "first": score.name == first, "row": row, "column": column}
            found.append({**cell, **_numbers(chosen, score.name), "choice": choice, **_beside(known)})
    return found


def chosen_runs(spec: Spec, records: Sequence[Record]) -> list[Record]:
    """The runs that the cells show: all of them, or of a grid those of the best choice."""
    first = spec.evaluate.scores[0].name
    return [
        record
        for cell in spec.cells()
        for record in _choice(spec, first, [r for r in records if (r["row"], r["column"]) == cell])[0]
    ]


def _choice(spec: Spec, score: str, runs: Sequence[Record]) -> tuple[list[Record], str | None]:
    """Of the choices of a grid the best, and how it was chosen."""
    if not any(record["variant"] for record in runs):
        return list(runs), None
    groups = candidates(spec, score, runs)
    words = ", ".join(f"{name} {value}" for name, value in groups[0][0]["variant"].items())
    return list(groups[0]), f"best of {len(groups)} by {CHOSEN[spec.choose]}: {words}"


def candidates(spec: Spec, score: str, runs: Sequence[Record]) -> list[list[Record]]:
    """The runs of one cell by what its grid chose, best first: those with the most steps, then by their worth. A choice
    with which every seed diverged comes behind all that came to an end."""
    groups: dict[str, list[Record]] = {}
    for record in runs:
        groups.setdefault(json.dumps([record["variant"], record["steps"]], sort_keys=True), []).append(record)

    def place(of: Sequence[Record]) -> tuple[bool, int, float]:
        # Where the grid itself is about steps, fewer of them are as good.
        steps = 0 if "steps" in of[0]["variant"] else of[0]["steps"]
        value = worth(spec.choose, score, of)
        return any(record["status"] == "finished" for record in of), steps, -1.0 if value is None else value

    return sorted(groups.values(), key=place, reverse=True)


def worth(choose: str, score: str, runs: Sequence[Record]) -> float | None:
    """What the runs of one choice are worth: their mean accuracy at training lengths, or their best score."""
    values = [run["scores"].get(score) if choose == "score" else run["within"] for run in runs]
    known = [value for value in values if value is not None]
    return max(known, default=None) if choose == "score" else mean(known)


def _numbers(runs: Sequence[Record], score: str) -> Record:
    ended = [record for record in runs if record["status"] == "finished"]
    known = [(record["scores"].get(score), record) for record in ended]
    values = [value for value, _ in known if value is not None]
    low, high = t_band(values)
    best = max((pair for pair in known if pair[0] is not None), key=lambda pair: pair[0], default=(None, None))[1]
    return {
        "max": max(values, default=None),
        "average": mean(values),
        "min": min(values, default=None),
        "average_low": low,
        "average_high": high,
        "max_band": None if best is None else best["bands"].get(score),
        "seeds": len(values),
        "diverged": sum(record["status"] == "diverged" for record in runs),
        "steps": runs[0]["steps"] if runs else None,
        **{name: _all_of(record.get(name) for record in ended) for name in ("trained_on", "evaluated_on")},
    }


def _all_of(names: Iterable[str | None]) -> str | None:
    """Names, each once; None where one of them is not known, as in results of another version."""
    found = list(dict.fromkeys(names))
    return None if None in found or not found else ", ".join(sorted(map(str, found)))


def t_band(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The band of 95 % for the mean over seeds, if seeds are like draws of a normal distribution, within 0..100.

    >>> t_band([90.0, 92.0, 94.0])
    (87.03, 96.97)
    >>> t_band([90.0])
    (None, None)
    """
    if len(values) < 2:
        return None, None
    middle = sum(values) / len(values)
    spread = math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))
    half = T95[min(len(values) - 1, len(T95)) - 1] * spread
    return round(max(0.0, middle - half), 2), round(min(100.0, middle + half), 2)


def _beside(known: Published | None) -> Mapping[str, Any]:
    return {
        "published_max": None if known is None else known.max,
        "published_average": None if known is None else known.average,
        "source": None if known is None else known.source,
    }
