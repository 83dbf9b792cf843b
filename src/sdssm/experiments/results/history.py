"""Histories: the accuracy of a run at several of its steps, if it was evaluated during training (`evaluate_every`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: The values of an entry of a history after its step: mean accuracy over all lengths, training lengths, longer ones.
VALUES = ("all", "within", "beyond")


def read_history(events: Iterable[Mapping[str, Any]]) -> list[list[float | None]]:
    """Return the step and the `VALUES`, in percent, of each evaluation in the event log of a run.

    >>> read_history([{"step": 1, "loss": 0.5}, {"step": 2, "all": 99.2001, "within": 100.0, "beyond": 99.1234}])
    [[2, 99.2, 100.0, 99.123]]
    """
    return [
        [event["step"], *(None if event.get(name) is None else round(event[name], 3) for name in VALUES)]
        for event in events
        if "beyond" in event
    ]
