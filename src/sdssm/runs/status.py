"""The status of a run: the contents of status.json, or what the other files say if it is missing or damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sdssm.runs.events import LogLines

EndStatus = Literal["finished", "stopped", "diverged"]
#: The statuses of runs that are not trained further, the better one first.
FINAL_STATUSES = ("finished", "diverged")


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The contents of status.json, with the accuracy in percent.

    While the run is running they are a few seconds old, and its last checkpoint may be older: see `RunFolder.step`.
    Loss and accuracy are moving averages over the last steps.
    """

    status: Literal["running"] | EndStatus = "running"
    step: int = 0
    steps: int
    seconds: float = 0.0
    loss: float | None = None
    accuracy: float | None = None
    device: str | None = None  #: the device on which it was last trained


def derive_status(
    steps: int, checkpoints: Sequence[int], events: Sequence[Mapping[str, Any]], *, has_model: bool
) -> RunStatus:
    """Return the status of a run from its other files.

    A run whose model was written is finished if a checkpoint or an event is of the last step, and stopped otherwise.
    Seconds, loss and accuracy are those of the last events: means of one window, not moving averages.

    >>> derive_status(20, [20, 10], [{"step": 20, "loss": 0.5}], has_model=True).status
    'finished'
    """
    newest = max(checkpoints, default=0)
    logged = max((event_step(event) for event in events), default=0)
    status: Literal["running"] | EndStatus = "running"
    if events and events[-1].get("diverged") is True:
        status = "diverged"
    elif has_model:
        status = "finished" if max(newest, logged) >= steps else "stopped"
    last = {name: _last_number(events, name) for name in ("seconds", "loss", "accuracy")}
    return RunStatus(
        status=status,
        step=steps if status == "finished" else newest,
        steps=steps,
        seconds=last["seconds"] or 0.0,
        loss=last["loss"],
        accuracy=last["accuracy"],
    )


def describe_log_gap(log: LogLines, *, status: str, step: int, steps: int, log_every: int | None) -> str | None:
    """Return in words what the log of an ended run lacks, or None; that of a running one may end within a line.

    A finished run has logged its last step. Any other has logged something once it was trained for `log_every` steps;
    None is the default, of which this knows an upper bound.
    """
    if status == "running":
        return None
    if log.is_cut_off:
        return "its last line is incomplete"
    last = max((event_step(event) for event in log.events), default=0)
    if status == "finished" and last < steps:
        return f"it ends at step {last} of {steps}"
    if last == 0 and step >= (log_every or max(10, steps // 200)):
        return f"it has no event, but the run was trained for {step} steps"
    return None


def event_step(event: Mapping[str, Any]) -> int:
    """Return the step of an event, 0 if it has none."""
    step = event.get("step")
    return step if isinstance(step, int) else 0


def _last_number(events: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the last value of this name that is a number."""
    numbers = (event[name] for event in reversed(events) if isinstance(event.get(name), float | int))
    number = next(numbers, None)
    return None if number is None else float(number)
