"""Scanning the 0/1 transition matrices of a machine gives its states, for every machine of the library."""

from __future__ import annotations

import pytest
import torch

from sdssm.tasks import EXAMPLE_TASKS, PAPER_TASKS, get_task
from tests.ops.machines import assert_scan_gives_labels

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("rescale", [False, True], ids=["plain", "rescaled"])
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*PAPER_TASKS, *EXAMPLE_TASKS])
def test_scanning_gives_the_states_at_length_10_000(name: str, device: str, mode: str, rescale: bool) -> None:
    machine = get_task(name).machine
    states = range(machine.n_states)  # the state itself, which is more than its output
    assert_scan_gives_labels(
        machine.table, machine.start, states, length=10_000, mode=mode, rescale=rescale, device=device
    )
