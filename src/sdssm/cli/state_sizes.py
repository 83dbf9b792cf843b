"""The line that says which state size `state=auto` has chosen for a task, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.cli.output import print_text


def show_state_sizes(tasks: Sequence[str], model: str, preset: str | None, settings: Mapping[str, Any]) -> None:
    """Print the state size of each task and the reason for it, if it is chosen by the rule."""
    from sdssm.models.catalogue import default_preset, get_preset
    from sdssm.runs.schema import chooses_state_size
    from sdssm.tasks import get_task
    from sdssm.tasks.state_size import choose_state_size

    for task in map(get_task, tasks):
        stated = {**get_preset(preset or default_preset(model), model, task.name), **settings}
        if chooses_state_size(model, stated):
            print_text(f"{task.name}: {choose_state_size(task)}")
