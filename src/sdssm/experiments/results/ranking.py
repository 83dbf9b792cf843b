"""The ranking of a search: all candidates of each cell, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.results.cells import candidate_value, choice_words, judged_within, rank_candidates
from sdssm.experiments.results.records import Record, record_key
from sdssm.experiments.specs.spec import Spec
from sdssm.means import mean_of_known

#: A candidate that a search stopped early: row, column, variant, value, seeds, steps and pruned_at.
PrunedCandidate = Mapping[str, Any]


def previously_pruned(
    plan: Plan, ranking: Sequence[Mapping[str, Any]], pruned: Sequence[PrunedCandidate]
) -> list[PrunedCandidate]:
    """Return the pruned candidates of an earlier ranking, in cells that the plan does not select.

    Candidates that are in `pruned` already are left out.
    """
    unselected = [(run.row, run.column, run.variant) for run in plan.runs if not run.selected]
    known = [_candidate_key(candidate) for candidate in pruned]
    return [
        entry
        for entry in ranking
        if entry["pruned_at"] and _candidate_key(entry) in unselected and _candidate_key(entry) not in known
    ]


def split_pruned(
    plan: Plan, records: Sequence[Record], pruned: Sequence[PrunedCandidate]
) -> tuple[list[Record], list[PrunedCandidate]]:
    """Return the records that count, and the candidates that were really pruned.

    A candidate of which every seed was trained to the end, maybe by another command, is not pruned. Of a pruned
    candidate single seeds may have ended; they do not count, as candidates are compared by all of their seeds.
    """
    ended = {record_key(record) for record in records}

    def is_complete(candidate: PrunedCandidate) -> bool:
        runs = [run for run in plan.runs if (run.row, run.column, run.variant) == _candidate_key(candidate)]
        keys = [(run.row, run.column, run.training, run.config.seed, candidate["steps"]) for run in runs]
        return len(keys) >= candidate["seeds"] and ended.issuperset(keys)

    stopped = [candidate for candidate in pruned if not is_complete(candidate)]
    excluded = [(*_candidate_key(candidate), candidate["steps"]) for candidate in stopped]
    return [record for record in records if (*_candidate_key(record), record["steps"]) not in excluded], stopped


def _candidate_key(candidate: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    return candidate["row"], candidate["column"], candidate["variant"]


def make_ranking(spec: Spec, records: Sequence[Record], pruned: Sequence[PrunedCandidate] = ()) -> list[Record]:
    """Return the candidates of each cell that has a grid or a search, best first.

    Pruned candidates come last, ordered by the accuracy at which they were stopped. `records` and `pruned` are as
    `split_pruned` returns them.
    """
    first = spec.evaluate.scores[0].name
    ranking = []
    for row, column in spec.cells():
        runs = [record for record in records if (record["row"], record["column"]) == (row, column)]
        stopped = [candidate for candidate in pruned if (candidate["row"], candidate["column"]) == (row, column)]
        if not stopped and not any(record["variant"] for record in runs):
            continue
        entries = [_finished_entry(spec, first, group) for group in rank_candidates(spec, first, runs)]
        entries += [_pruned_entry(candidate) for candidate in sorted(stopped, key=lambda entry: -entry["value"])]
        for place, entry in enumerate(entries, start=1):
            ranking.append({"row": row, "column": column, "place": place, **entry, "by": choice_words(spec)})
    return ranking


def _finished_entry(spec: Spec, score: str, runs: Sequence[Record]) -> Record:
    finished = [record for record in runs if record["status"] == "finished"]
    values = [record["scores"][score] for record in finished if record["scores"].get(score) is not None]
    return {
        "variant": runs[0]["variant"],
        "value": candidate_value(spec, score, runs),
        "within": mean_of_known([judged_within(record) for record in runs]),
        "constant_within": mean_of_known([record.get("constant_within") for record in runs]),
        "score": score,
        "max": max(values, default=None),
        "average": mean_of_known(values),
        "seeds": len(runs),
        "diverged": len(runs) - len(finished),
        "steps": runs[0]["steps"],
        "pruned_at": None,
    }


def _pruned_entry(candidate: PrunedCandidate) -> Record:
    """Return the entry of a pruned candidate, with its training accuracy when it stopped."""
    empty = {"score": None, "max": None, "average": None, "diverged": 0}
    fields = {name: candidate[name] for name in ("variant", "value", "seeds", "steps", "pruned_at")}
    return {**fields, "within": candidate["value"], **empty}
