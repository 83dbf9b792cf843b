"""The lines that say what was chosen for a task by rule, and why: the preset, its targets, and the state size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdssm.tasks import Task


def list_choices(tasks: Sequence[str], model: str, preset: str | None, settings: Mapping[str, Any]) -> list[str]:
    """Return lines that say what the rules chose for each task, with the reasons."""
    from sdssm.tasks import get_task

    return [
        f"{task.name}: {line}"
        for task in map(get_task, tasks)
        for line in describe_choices(task, model, preset, settings)
    ]


def describe_choices(task: Task, model: str, preset: str | None, settings: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for the preset and one for the state size, each only if it matters to the model.

    >>> from sdssm.tasks import get_task
    >>> print(*describe_choices(get_task("a5"), "sd-ssm", None, {"state": 64}))
    preset=scale-free (auto): trained on labels, which distinguish all 60 states of the automaton
    """
    from sdssm.models.catalogue import DEFAULT_MODEL, get_preset
    from sdssm.runs.schema import choose_preset, chooses_state_size
    from sdssm.tasks.state_size import choose_state_size

    chosen = preset or choose_preset(model, task, settings.get("train_length"))
    stated = {**get_preset(chosen, model, task.name), **settings}
    if model == DEFAULT_MODEL:
        rule = "auto" if preset is None else "as set"
        yield f"preset={chosen} ({rule}): {_describe_targets(task, stated, is_chosen=preset is None)}"
    if chooses_state_size(model, stated):
        yield str(choose_state_size(task, stated.get("targets", "label")))


def _describe_targets(task: Task, settings: Mapping[str, Any], *, is_chosen: bool) -> str:
    """Return what a model is trained on: the labels of strings, or the states of the automaton.

    Training on states uses more than labelled strings, so this is always said.
    """
    from sdssm.tasks.coverage import choose_sampling

    machine = task.minimal
    states, labels = machine.n_states, len(set(machine.labels.tolist()))
    covered = choose_sampling(task, settings.get("train_length") or task.train_length).sampling == "uniform"
    if settings.get("targets") == "state":
        text = "trained on the states of the automaton as targets, not on its labels"
        if not is_chosen:
            return text
        if labels == states or covered:
            because = f", since {states:,} states are too many for labels alone"
        else:
            because = f", since the labels do not distinguish all {states:,} states"
            because += " and uniform strings do not cover the automaton"
        return f"{text}{because}; --preset scale-free trains on labels"
    if labels == states:
        return f"trained on labels, which distinguish all {states:,} states of the automaton"
    hidden = f"trained on labels, which do not distinguish all {states:,} states of the automaton"
    return f"{hidden}, but uniform strings cover it; --preset states trains on its states" if covered else hidden
