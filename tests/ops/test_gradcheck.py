"""Gradients of the linear scans compared with finite differences, without the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.ops.cases import KINDS, Case, build

#: Two chunks in parallel mode, the last one short.
CASES = [
    Case(kind, 5, 3, lead=(2,), b=not rescale, rescale=rescale, lengths=lengths)
    for kind in KINDS
    for rescale in (False, True)
    for lengths in (False, True)
]


@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradcheck(case: Case, mode: str, device: str) -> None:
    problem = build(case, device)
    leaves = problem.fresh()

    def scan(*values: Tensor) -> tuple[Tensor, Tensor]:
        return problem.scan(dict(zip(leaves, values, strict=True)), mode)

    assert torch.autograd.gradcheck(scan, tuple(leaves.values()), nondet_tol=0.0)
