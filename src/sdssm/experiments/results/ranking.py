"""All candidates of a search, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.results.cells import CHOSEN, Record, candidates, key_of, worth
from sdssm.experiments.specs.scores import mean
from sdssm.experiments.specs.spec import Spec


def stopped_before(
    plan: Plan, ranking: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Of an earlier ranking the candidates that stopped early in cells that a plan only looks up, but for those of
    `now`."""
    planned = [(run.row, run.column, run.variant) for run in plan.runs if not run.wanted]
    known = [_key(one) for one in now]
    return [one for one in ranking if one["pruned_at"] and _key(one) in planned and _key(one) not in known]


def divided(
    plan: Plan, records: Sequence[Record], pruned: Sequence[Mapping[str, Any]]
) -> tuple[list[Record], list[Mapping[str, Any]]]:
    """The records that count, and the candidates of `pruned` that stopped early indeed: one of which every seed was
    trained to an end is no such. Of the others single seeds that ended, diverged or trained before, do not count: a
    candidate is compared by all of its seeds or not at all."""
    ended = {key_of(record) for record in records}

    def whole(one: Mapping[str, Any]) -> bool:
        runs = [run for run in plan.runs if (run.row, run.column, run.variant) == _key(one)]
        keys = [(run.row, run.column, run.training, run.config.seed, one["steps"]) for run in runs]
        return len(keys) >= one["seeds"] and ended.issuperset(keys)

    early = [one for one in pruned if not whole(one)]
    out = [(*_key(one), one["steps"]) for one in early]
    return [record for record in records if (*_key(record), record["steps"]) not in out], early


def _key(one: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    return one["row"], one["column"], one["variant"]


def ranked(spec: Spec, records: Sequence[Record], pruned: Sequence[Mapping[str, Any]] = ()) -> list[Record]:
    """For each cell that a grid or a search fills, its candidates in the order in which they would be chosen.

    Those that were pruned come last, by the accuracy at which they stopped. Both are as `divided` gives them.
    """
    first = spec.evaluate.scores[0].name
    found = []
    for row, column in spec.cells():
        runs = [record for record in records if (record["row"], record["column"]) == (row, column)]
        early = [one for one in pruned if (one["row"], one["column"]) == (row, column)]
        if not early and not any(record["variant"] for record in runs):
            continue
        finished = [_candidate(spec, first, group) for group in candidates(spec, first, runs)]
        stopped = [_stopped(one) for one in sorted(early, key=lambda one: -one["value"])]
        for place, one in enumerate([*finished, *stopped], start=1):
            found.append({"row": row, "column": column, "place": place, **one, "by": CHOSEN[spec.choose]})
    return found


def _candidate(spec: Spec, score: str, runs: Sequence[Record]) -> Record:
    ended = [record for record in runs if record["status"] == "finished"]
    values = [record["scores"][score] for record in ended if record["scores"].get(score) is not None]
    return {
        "variant": runs[0]["variant"],
        "value": worth(spec.choose, score, runs),
        "within": mean([record["within"] for record in runs]),
        "score": score,
        "max": max(values, default=None),
        "average": mean(values),
        "seeds": len(runs),
        "diverged": len(runs) - len(ended),
        "steps": runs[0]["steps"],
        "pruned_at": None,
    }


def _stopped(one: Mapping[str, Any]) -> Record:
    """Its accuracy is that of the training strings, at the step where it stopped."""
    empty = {"score": None, "max": None, "average": None, "diverged": 0}
    told = {name: one[name] for name in ("variant", "value", "seeds", "steps", "pruned_at")}
    return {**told, "within": one["value"], **empty}
