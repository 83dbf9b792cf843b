"""selected_matrices: its cases for the laws of `test_function_laws`, and its own properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from tests.interpreted import interpreted
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, compare_with_reference, draws
from tests.ops.test_mixed import POWERS, SIZES, Mixed


def build(case: Mixed, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    lead = case.lead
    draw = draws()
    leaves = {
        "dictionary": draw(*lead, case.K, case.N, case.N),
        "selection": draw(*lead, case.K, case.V) * 2,
        "bias": draw(*lead, case.K),
    }
    p: Any = case.p
    if p == "each":
        p = torch.linspace(1, 3, 4, dtype=dtype, device=device)[: 3 if lead == (3,) else 4]
        p = p.reshape(lead) if lead else p[2]

    def function(leaves: Leaves) -> tuple[Tensor, ...]:
        return (ops.selected_matrices(leaves["dictionary"], leaves["selection"], leaves["bias"], p),)

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


def test_equals_mixed_matrices_with_the_softmax(device: str) -> None:
    function, leaves = build(Mixed((3,), 2, 6, 7), device)
    weights = torch.softmax(leaves["selection"].mT + leaves["bias"][:, None], -1)
    torch.testing.assert_close(function(leaves)[0], ops.mixed_matrices(leaves["dictionary"], weights, 1.2))


@interpreted
def test_large_logits_do_not_overflow() -> None:
    function, leaves = build(Mixed((), 2, 5, 4))
    leaves["selection"] = leaves["selection"] * 1e3
    compare_with_reference(function, leaves, "triton", "large")


D = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"dictionary has shape \(3, 3\); it needs", lambda: ops.selected_matrices(D(3, 3), D(3, 2), D(3), 1.2)),
    (r"selection has shape \(2,\); it needs", lambda: ops.selected_matrices(D(3, 2, 2), D(2), D(3), 1.2)),
    (r"selection .*K=3", lambda: ops.selected_matrices(D(3, 2, 2), D(2, 3), D(3), 1.2)),
    (r"bias has shape \(2,\).*K=3", lambda: ops.selected_matrices(D(3, 2, 2), D(3, 2), D(2), 1.2)),
    (r"bias has dtype torch.float64", lambda: ops.selected_matrices(D(3, 2, 2), D(3, 2), D(3).double(), 1.2)),
    (r"p is 0.5; .*at least 1", lambda: ops.selected_matrices(D(3, 2, 2), D(3, 2), D(3), 0.5)),
]


def _use_few_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.selected import triton

    monkeypatch.setattr(triton, "WEIGHTS", 8)  # several iterations over the symbols
    monkeypatch.setattr(triton, "PARTS", 2)  # and over the parts


SELECTED = Operation(
    name="selected",
    other_name="selected_matrices",
    build=build,
    cases=[*SIZES, *(Mixed((3,), 2, 6, 7, p) for p in POWERS)],
    alone=[],
    wide=[Mixed((), 2, 16, 64, p) for p in (None, 1.2)],
    small=[Mixed((2,), 2, 3, 3)],
    mapped=[Mixed((), 3, 2, 4), Mixed((2,), 3, 2, 4)],
    tiny=[Mixed((2,), 3, 2, 4)],
    full=[Mixed((3,), 2, 6, 7), Mixed((2,), 3, 2, 4)],
    many=Mixed((3,), 5, 17, 12, "each"),
    bad=BAD,
    tunings=[Tuning("few weights at a time", _use_few_weights, [(Mixed((2,), 9, 3, 20), 0)])],
    sixteen=False,
)
