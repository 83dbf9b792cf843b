"""The cases of the scripts that look into a training step: `MODEL[/PRESET]@TASK*REPLICAS[:NAME=VALUE,...]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sdssm
from sdssm.cli.options import parse_value, split_assignment
from sdssm.models import default_preset
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import Task

CASE = re.compile(
    r"(?P<model>[\w-]+)(/(?P<preset>[\w-]+))?@(?P<task>[^*]+)\*(?P<replicas>\d+)(:(?P<settings>[^=]+=.*))?"
)
EXAMPLE = "sd-ssm/paper@arithmetic*9:readout=mlp,hidden=64"


def read_case(case: str, changes: Mapping[str, Any] | None = None) -> tuple[Task, list[RunConfig]]:
    """Return task and runs of a case; `changes` are further settings.

    >>> task, runs = read_case("sd-ssm/paper@a5*2:state=8,lr=1e-3")
    >>> task.name, len(runs), runs[1].model.mixer.state, runs[1].train.lr
    ('a5', 2, 8, 0.001)
    """
    match = CASE.fullmatch(case)
    if match is None:
        raise SystemExit(
            f"a case is MODEL[/PRESET]@TASK*REPLICAS[:NAME=VALUE,...], got {case!r}; for example {EXAMPLE}"
        )
    task, model = sdssm.task(match["task"]), match["model"]
    preset = match["preset"] or default_preset(model)
    values = dict(changes or {})
    for item in (match["settings"] or "").split(",") if match["settings"] else ():
        name, value = split_assignment(item)
        if value is None:
            raise SystemExit(f"{item!r} in the case {case!r} has no value; write NAME=VALUE")
        values[name] = parse_value(value)
    settings = resolve_settings(model, preset, task.name, values)
    return task, [create_config(task, seed, settings, preset) for seed in range(int(match["replicas"]))]
