"""Optuna's proposals: the tree-structured Parzen estimator, told of every candidate so far."""

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
from sdssm.experiments.specs.search_space import Range, Space
from sdssm.experiments.sweeps.trials import STUDY, Cell, Trial, cell_name, read_study
from sdssm.extras import import_extra
from sdssm.files import format_path

#: Optuna counts the steps of a trial in whole numbers: ours are thousandths of the training.
PARTS = 1_000
#: How often it is asked for each candidate before chance takes its place.
TRIES = 10


def proposed(space: Space, history: Sequence[Trial], count: int, seed: int) -> list[dict[str, Any]]:
    """The next candidates: a function of those before and of the seed, so that a search can go on anywhere.

    Those proposed at once know of each other and lie apart. Each is new: what Optuna proposes again and again, among
    few values, gives way to one at random, until there are no others.
    """
    known, size = [one.variant for one in history], space.size()
    with _quiet():
        study = study_of(space, history, seed=seed)
        for _ in range(TRIES * count):
            if len(known) == len(history) + count or (size is not None and len(known) >= size):
                break
            one = _variant(space, study.ask(_distributions(space)).params)
            known += [one] if one not in known else []
    others = (one for one in space.draws(seed) if one not in known)
    return known[len(history) :] + list(islice(others, len(history) + count - len(known)))


def open_study(folder: Path, cell: Cell | None = None) -> Any:
    """The search of a results folder as an `optuna.Study`, for Optuna's own plots; of one cell, if it has several."""
    told, trials = read_study(folder / STUDY)
    if (cell := cell or next(iter(trials), None)) not in trials or cell is None:
        known = ", ".join(map(cell_name, trials))
        raise SpecError(f"{format_path(folder)} has no search for {format_value(cell)}; it has {known or 'none yet'}")
    space = told["space"][cell_name(cell)]
    ranges = {name: Range(**of) for name, of in space["ranges"].items()}
    with _quiet():
        return study_of(Space(choices=space["choices"], ranges=ranges), trials[cell])


def study_of(space: Space, history: Sequence[Trial], seed: int = 0) -> Any:
    """The search so far as an `optuna.Study` in memory."""
    optuna = import_extra("optuna", "--search optuna")
    # A sampler of its own for each number of trials: it holds no memory that would be lost with the process.
    sampler = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + len(history)) % (1 << 32), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    states = {
        "running": optuna.trial.TrialState.RUNNING,
        "finished": optuna.trial.TrialState.COMPLETE,
        "pruned": optuna.trial.TrialState.PRUNED,
        "refused": optuna.trial.TrialState.FAIL,
    }
    for one in history:
        params = {name: _told(value) if name in space.choices else value for name, value in one.variant.items()}
        study.add_trial(
            optuna.trial.create_trial(
                state=states[one.state],
                params=params,
                distributions=_distributions(space),
                value=one.value,
                intermediate_values={round(float(share) * PARTS): value for share, value in one.rungs.items()},
            )
        )
    return study


def _distributions(space: Space) -> dict[str, Any]:
    kinds = import_extra("optuna.distributions", "--search optuna")
    found: dict[str, Any] = {
        name: kinds.CategoricalDistribution([_told(value) for value in values])
        for name, values in space.choices.items()
    }
    for name, of in space.ranges.items():
        kind = kinds.IntDistribution if of.whole else kinds.FloatDistribution
        found[name] = kind(int(of.low) if of.whole else of.low, int(of.high) if of.whole else of.high, log=of.log)
    return found


def _told(value: Any) -> Any:
    """Optuna's categories are plain values: a list is told as its text."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _variant(space: Space, params: dict[str, Any]) -> dict[str, Any]:
    """As it is tried: our own values in the place of Optuna's."""
    chosen = {
        name: next(
            value for value in values if _told(value) == params[name] and type(_told(value)) is type(params[name])
        )
        for name, values in space.choices.items()
    }
    return chosen | {name: of.rounded(params[name]) for name, of in space.ranges.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log and its words on what is new in it; a user's own studies keep theirs."""
    logging = import_extra("optuna.logging", "--search optuna")
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
