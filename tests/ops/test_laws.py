"""Mathematical laws that hold for every implementation."""

from __future__ import annotations

import pytest
import torch

from sdssm import ops
from tests.ops.machines import assert_scan_gives_labels, random_table

MODES = ["recurrent", "parallel", "auto"]


@pytest.mark.parametrize("p", [1.0, 1.1, 1.2, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_induced_one_norm_of_a_column_normalised_matrix(n: int, p: float) -> None:
    A = torch.randn(20, n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    A[0] = 1  # the constant matrix attains the bound
    normed = ops.column_norm(A, p)
    induced = normed.abs().sum(-2).amax(-1)
    bound = n ** (1 - 1 / p)
    assert (induced <= bound * (1 + 1e-12)).all()
    assert float(induced[0]) == pytest.approx(bound)
    if p == 1:
        torch.testing.assert_close(induced, torch.ones_like(induced))


def test_each_replica_can_have_its_own_p() -> None:
    A = torch.randn(2, 3, 3, dtype=torch.float64)
    both = ops.column_norm(A, torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(both[1], ops.column_norm(A[1], 2.0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("states", [1, 2, 7, 30])
def test_scan_over_the_matrices_of_a_machine_gives_its_labels(states: int, mode: str, device: str) -> None:
    table, outputs = random_table(states, 3, seed=states)
    assert_scan_gives_labels(table, 0, outputs, length=2000, mode=mode, device=device)
