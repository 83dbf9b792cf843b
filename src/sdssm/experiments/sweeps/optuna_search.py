"""Candidates proposed by Optuna, with the tree-structured Parzen estimator."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from sdssm.errors import format_value
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.search_space import Range, SearchSpace
from sdssm.experiments.sweeps.study import STUDY, Cell, SweepTrial, cell_name, read_study
from sdssm.extras import import_extra
from sdssm.files import format_path

#: Optuna numbers the steps of a trial by integers; here they are thousandths of the training.
PARTS = 1_000
#: Proposals per candidate before random candidates are used instead.
TRIES = 10


def propose(space: SearchSpace, history: Sequence[SweepTrial], count: int, seed: int) -> list[dict[str, Any]]:
    """Return the next `count` candidates, or fewer if the space is exhausted.

    They depend only on the earlier trials and the seed, so that a search can be resumed. Candidates proposed together
    are aware of each other. Each is new: where Optuna only repeats known candidates, random ones are used.
    """
    known, size = [trial.variant for trial in history], space.size()
    with _quiet():
        study = make_study(space, history, seed=seed)
        for _ in range(TRIES * count):
            if len(known) == len(history) + count or (size is not None and len(known) >= size):
                break
            candidate = _decode(space, study.ask(_distributions(space)).params)
            known += [candidate] if candidate not in known else []
    others = (candidate for candidate in space.samples(seed) if candidate not in known)
    return known[len(history) :] + list(islice(others, len(history) + count - len(known)))


def open_study(folder: Path, cell: Cell | None = None) -> Any:
    """Return the search in a results folder as an `optuna.Study`, for Optuna's plots and analysis.

    `cell` is row and column, by default the first cell of the search.
    """
    description, trials = read_study(folder / STUDY)
    if (cell := cell or next(iter(trials), None)) not in trials or cell is None:
        known = ", ".join(map(cell_name, trials))
        raise SpecError(f"{format_path(folder)} has no search for {format_value(cell)}; it has {known or 'none yet'}")
    space = description["space"][cell_name(cell)]
    ranges = {name: Range(**bounds) for name, bounds in space["ranges"].items()}
    with _quiet():
        return make_study(SearchSpace(choices=space["choices"], ranges=ranges), trials[cell])


def make_study(space: SearchSpace, history: Sequence[SweepTrial], seed: int = 0) -> Any:
    """Return the trials so far as an `optuna.Study` in memory."""
    optuna = import_extra("optuna", "--search optuna")
    # The sampler is seeded by the number of trials, so that it has no state that an interruption would lose.
    sampler = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + len(history)) % (1 << 32), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    states = {
        "running": optuna.trial.TrialState.RUNNING,
        "finished": optuna.trial.TrialState.COMPLETE,
        "pruned": optuna.trial.TrialState.PRUNED,
        "refused": optuna.trial.TrialState.FAIL,
    }
    for trial in history:
        params = {name: _encode(value) if name in space.choices else value for name, value in trial.variant.items()}
        study.add_trial(
            optuna.trial.create_trial(
                state=states[trial.state],
                params=params,
                distributions=_distributions(space),
                value=trial.value,
                intermediate_values={round(float(share) * PARTS): value for share, value in trial.rungs.items()},
            )
        )
    return study


def _distributions(space: SearchSpace) -> dict[str, Any]:
    module = import_extra("optuna.distributions", "--search optuna")
    distributions: dict[str, Any] = {
        name: module.CategoricalDistribution([_encode(value) for value in values])
        for name, values in space.choices.items()
    }
    for name, bounds in space.ranges.items():
        kind = module.IntDistribution if bounds.whole else module.FloatDistribution
        low, high = (int(bounds.low), int(bounds.high)) if bounds.whole else (bounds.low, bounds.high)
        distributions[name] = kind(low, high, log=bounds.log)
    return distributions


def _encode(value: Any) -> Any:
    """Return a value as a category of Optuna, which must be a scalar: lists become JSON text."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _decode(space: SearchSpace, params: dict[str, Any]) -> dict[str, Any]:
    """Return the candidate that the parameters of an Optuna trial stand for."""
    chosen = {
        name: next(
            value for value in values if _encode(value) == params[name] and type(_encode(value)) is type(params[name])
        )
        for name, values in space.choices.items()
    }
    return chosen | {name: bounds.round(params[name]) for name, bounds in space.ranges.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log and its warnings about experimental features inside the block."""
    logging = import_extra("optuna.logging", "--search optuna")
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
