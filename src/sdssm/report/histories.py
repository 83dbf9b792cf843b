"""How steady the accuracy of runs is during training, from the evaluations at several of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from sdssm.formatting import format_percent
from sdssm.report.rendering import NOTHING, Grid

#: An evaluation counts as solved from this accuracy beyond training lengths on, in percent.
SOLVED = 99.9
#: The paper reports averages over this many seeds.
PUBLISHED_SEEDS = 3
#: Quantiles of the averages over seeds.
QUANTILES = (0.05, 0.5, 0.95)
SHARES = (
    f"evaluations during training with at least {SOLVED:g} % beyond training lengths, in % of them: all / those in the "
    "second half of the steps"
)
AVERAGES = (
    f"the average over {PUBLISHED_SEEDS} seeds, over all lengths, if training ended at one of the evaluations in its "
    "second half: 5 %, 50 % and 95 % quantile over these and over all sets of seeds; published average in brackets"
)


@dataclass(frozen=True, eq=False)
class Histories:
    """The accuracy of several seeds at the same steps of their training, in percent; NaN if unknown."""

    steps: np.ndarray  # (S,)
    everywhere: np.ndarray  # (R, S), the mean over all lengths
    beyond: np.ndarray  # (R, S), the mean over those that are longer than the training lengths

    @property
    def is_late(self) -> np.ndarray:
        """Whether a step is in the second half of the training."""
        return np.asarray(self.steps > self.steps[-1] / 2)

    def averages(self, seeds: int = PUBLISHED_SEEDS) -> np.ndarray:
        """Return the average over each set of this many seeds, over all lengths, at each step of the second half.

        >>> values = np.array([[0.0, 100.0], [0.0, 70.0], [0.0, 40.0], [0.0, 100.0]])
        >>> Histories(np.array([1, 2]), values, values).averages().round(1).tolist()
        [70.0, 90.0, 80.0, 70.0]
        """
        late = self.everywhere[:, self.is_late]
        sets = list(combinations(range(len(late)), seeds))
        return np.concatenate([late[list(rows)].mean(0) for rows in sets]) if sets else np.empty(0)


def collect_histories(runs: Sequence[Mapping[str, Any]]) -> Histories | None:
    """Return the histories of the runs that were evaluated at the same steps as the first; None if there are none.

    >>> first = [[10, 60.0, 99.0, 50.0], [20, 99.96, 100.0, 99.95]]
    >>> collect_histories([{"history": first}, {"history": first[:1]}]).beyond.tolist()
    [[50.0, 99.95]]
    """
    histories = [run["history"] for run in runs if run.get("history")]
    if not histories:
        return None
    steps = [entry[0] for entry in histories[0]]
    complete = [history for history in histories if [entry[0] for entry in history] == steps]
    values = np.array([[entry[1:] for entry in history] for history in complete], dtype=float)
    return Histories(np.array(steps), values[:, :, 0], values[:, :, 2])


def history_grids(results: Mapping[str, Any]) -> list[Grid]:
    """Return the part of a table that says how steady trainings are; empty if no run was evaluated during training."""
    shares, averages = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    published = {
        (cell["row"], cell["column"]): cell["published_average"]
        for cell in results["cells"]
        if cell["published_average"] is not None
    }
    for row in results["rows"]:
        for column in results["columns"]:
            runs = [run for run in results.get("runs", []) if (run["row"], run["column"]) == (row, column)]
            histories = collect_histories(runs)
            if histories is not None:
                shares[row, column] = f"{_share(histories.beyond)} / {_share(histories.beyond[:, histories.is_late])}"
                averages[row, column] = _format_quantiles(histories.averages())
                if (row, column) in published:
                    averages[row, column] += f" ({published[row, column]:g})"
    return [
        Grid(
            caption,
            results["corner"],
            results["columns"],
            [(row, [texts.get((row, column), NOTHING) for column in results["columns"]]) for row in results["rows"]],
        )
        for caption, texts in ((SHARES, shares), (AVERAGES, averages))
        if texts
    ]


def _share(accuracy: np.ndarray) -> str:
    return format_percent(100 * float(np.mean(accuracy >= SOLVED)))


def _format_quantiles(values: np.ndarray) -> str:
    return " / ".join(map(format_percent, np.quantile(values, QUANTILES).tolist())) if len(values) else NOTHING
