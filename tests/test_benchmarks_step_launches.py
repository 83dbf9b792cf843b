"""The kernels of a training step on a GPU, counted without one: a known count, and bounds that keep them few."""

from __future__ import annotations

import doctest
from collections import Counter

import pytest
import torch

from benchmarks import step_cases, step_launches
from sdssm import ops
from sdssm.ops import backend
from tests.interpreted import interpreted

#: The most kernels of a step. The time of a step of a few replicas grows with them.
MOST = {
    "sd-ssm/paper@a5*3": 14,
    "sd-ssm/paper@arithmetic*9:readout=mlp,hidden=64,dictionary=18": 30,
    "sd-ssm/paper@arithmetic*9:readout=mlp,hidden=64,dictionary=18,dropout=0.1": 33,
    "complex-diagonal/paper@a5*3": 35,
    "complex-diagonal/paper@c2xc30*3:layers=2": 71,
    "regular-lrnn/paper@a5*3": 39,
    "rnn/paper@a5*3": 18,
    "lstm/paper@a5*3": 18,
    "s4d/paper@parity*3": 63,
    "h3/paper@parity*3": 47,
    "hyena/paper@parity*3": 40,
    "transformer/paper@parity*3": 174,
}


def test_doctests_and_cases() -> None:
    assert doctest.testmod(step_cases).attempted and not doctest.testmod(step_cases).failed
    for case, problem in (("sd-ssm@a5", "a case is"), ("sd-ssm@a5*1:state=8,lr", "'lr' .* has no value")):
        with pytest.raises(SystemExit, match=problem):
            step_cases.read_case(case)


@interpreted
def test_the_kernels_of_a_step_of_sd_ssm() -> None:
    """A profile on an H200 has 15 for one model (benchmarks/NOTES.md), of which the drawing of strings is about one."""
    counts = step_launches.count_launches(*step_cases.read_case("sd-ssm/paper@a5*1"))
    kernels = ["mixed_forward", "recurrence_forward", "readout_forward", "totals", "readout_backward"]
    kernels += ["recurrence_backward", "token_weight_gradient", "partial_sums", "mixed_backward", "softmax_gradient"]
    kernels += ["squares", "update"]
    assert counts == {**{f"{name}_kernel": 1 for name in kernels}, "aten::clone": 2}


@interpreted
@pytest.mark.parametrize("case", MOST)
def test_a_step_launches_few_kernels(case: str) -> None:
    counts = step_launches.count_launches(*step_cases.read_case(case))
    assert counts.total() <= MOST[case], counts.most_common()


@interpreted
def test_operations_and_kernels_are_counted() -> None:
    """Each operation that computes something counts once, views and new memory do not."""
    counts = Counter[str]()
    x = torch.ones(2, 3, requires_grad=True)
    with step_launches.counting(counts):
        y = ops.linear_map(x, torch.ones(4, 3)).view(-1).detach().clone()
        torch.empty(3)
        assert backend.is_on_gpu(y)
    assert counts == {"linear_product_kernel": 1, "aten::clone": 1, "aten::ones": 1}
    assert not backend.is_on_gpu(y)
