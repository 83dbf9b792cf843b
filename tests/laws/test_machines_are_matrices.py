"""The paper's mapping, for every machine of the library: its 0/1 matrices, scanned, are the machine."""

from __future__ import annotations

import pytest
import torch

from sdssm import ops
from sdssm.tasks import BEYOND, PAPER, task

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("rescale", [False, True], ids=["plain", "rescaled"])
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*PAPER, *BEYOND])
def test_scanning_gives_the_labels_at_length_10_000(name: str, device: str, mode: str, rescale: bool) -> None:
    machine = task(name).machine
    table = torch.tensor(machine.table)
    A = torch.nn.functional.one_hot(table, machine.n_states).permute(1, 2, 0).float()  # (V, Q, Q): column q is e_{q a}
    x0 = torch.eye(machine.n_states)[machine.start]
    tokens = torch.randint(machine.n_symbols, (2, 10_000), generator=torch.Generator().manual_seed(0))
    states, final = ops.token_scan(A.to(device), None, tokens.to(device), x0.to(device), rescale=rescale, mode=mode)
    assert ((states == 0) | (states == 1)).all()
    for row, found in zip(tokens, states.argmax(-1).cpu(), strict=True):
        assert found.tolist() == machine.trace(row.numpy()).tolist()
    assert torch.equal(final, states[:, -1])
