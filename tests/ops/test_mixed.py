"""mixed_matrices: its cases for the laws of `test_function_laws`, and its own properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from tests.ops.differentiable import Function, Leaves, Operation, compare_with_reference, draws, fast


@dataclasses.dataclass(frozen=True)
class Mixed:
    """The sizes of one call, and p: None, a number, or "each" for a different one in every replica."""

    lead: tuple[int, ...] = ()
    V: int = 2
    K: int = 6
    N: int = 7
    p: float | str | None = 1.2


#: Everything of size 1, odd sizes, several tiles of columns and of the dictionary.
SIZES = [Mixed((), 1, 1, 1), Mixed((3,), 2, 6, 7), Mixed((2, 2), 5, 3, 16), Mixed((), 9, 17, 12)]
POWERS = [None, 1.0, 1.2, 2.0, 3.5, "each"]
CASES = [dataclasses.replace(case, p=p) for case in SIZES for p in POWERS]
#: Every power and every size at least once, for the interpreter, which is slow.
INTERPRETED = [dataclasses.replace(SIZES[1 + i % 3], p=p) for i, p in enumerate(POWERS)] + [
    dataclasses.replace(SIZES[0], p=1.2),
    dataclasses.replace(SIZES[1], p="each"),
]


def build(case: Mixed, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    lead = case.lead
    draw = draws()
    leaves = {"dictionary": draw(*lead, case.K, case.N, case.N), "weights": draw(*lead, case.V, case.K)}
    p: Any = case.p
    if p == "each":  # exactly 1 and 2 among them
        p = torch.tensor([1.0, 2.0, 1.3, 4.0], dtype=dtype, device=device)[: 3 if lead == (3,) else 4]
        p = p.reshape(lead) if lead else p[2]

    def function(leaves: Leaves) -> tuple[Tensor, ...]:
        return (ops.mixed_matrices(leaves["dictionary"], leaves["weights"], p),)

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


def test_p_can_be_mapped(device: str) -> None:
    _, leaves = build(Mixed((), 2, 3, 4), device)
    powers = torch.tensor([1.0, 1.5, 2.0], device=device)
    mapped = torch.func.vmap(lambda p: ops.mixed_matrices(leaves["dictionary"], leaves["weights"], p))(powers)
    for i in range(3):
        expected = ops.mixed_matrices(leaves["dictionary"], leaves["weights"], float(powers[i]))
        torch.testing.assert_close(mapped[i], expected)


def test_leading_dimensions_broadcast(device: str) -> None:
    draw = draws()
    leaves = {"dictionary": draw(2, 3, 4, 4).to(device), "weights": draw(5, 1, 2, 3).to(device)}
    p = torch.tensor([1.1, 2.2], dtype=torch.float64, device=device)

    def function(leaves: Leaves) -> tuple[Tensor, ...]:
        return (ops.mixed_matrices(leaves["dictionary"], leaves["weights"], p),)

    compare_with_reference(function, leaves, fast(device), "broadcast")
    assert function(leaves)[0].shape == (5, 2, 2, 4, 4)


def test_mixed_matrices_are_the_matrices_of_a_mixture_scan(device: str) -> None:
    draw = draws()
    dictionary, weights = draw(3, 4, 4).to(device), draw(2, 3).to(device)
    tokens, x0 = torch.randint(0, 2, (5, 6)).to(device), draw(5, 4).to(device)
    states = ops.token_scan(ops.mixed_matrices(dictionary, weights, 1.2), None, tokens, x0)[0]
    torch.testing.assert_close(states, ops.mixture_scan(dictionary, weights[tokens], None, x0, p=1.2)[0])


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0])
def test_a_zero_entry_has_a_finite_gradient(p: float, device: str) -> None:
    dictionary = torch.eye(3, dtype=torch.float64, device=device)[None]
    compare_with_reference(
        lambda leaves: (ops.mixed_matrices(leaves["dictionary"], leaves["weights"], p),),
        {"dictionary": dictionary, "weights": torch.ones(2, 1, dtype=torch.float64, device=device)},
        fast(device),
        f"p={p}",
    )


def test_a_zero_column_gives_nan(device: str) -> None:
    dictionary = torch.eye(2, device=device)[None].clone()
    dictionary[..., 1] = 0
    matrix = ops.mixed_matrices(dictionary, torch.ones(1, 1, device=device), 1.2)[0]
    assert matrix[:, 1].isnan().all() and matrix[:, 0].tolist() == [1, 0]


def test_16_bit_dtypes_are_computed_in_float32(device: str) -> None:
    function, leaves = build(Mixed(), device, torch.bfloat16)
    matrices = function(leaves)[0]
    assert matrices.dtype == torch.bfloat16
    expected = function({name: leaf.float() for name, leaf in leaves.items()})[0]
    torch.testing.assert_close(matrices.float(), expected, atol=0, rtol=2**-8)


D = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"dictionary has shape \(3, 3\); it needs at least 3", lambda: ops.mixed_matrices(D(3, 3), D(2, 3), 1.2)),
    (r"dictionary has shape \(2, 3, 4\).*equal, got 3 and 4", lambda: ops.mixed_matrices(D(2, 3, 4), D(2, 2), 1.2)),
    (r"weights has shape \(2, 4\).*K=3", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 4), 1.2)),
    (r"weights has shape \(3,\); it needs", lambda: ops.mixed_matrices(D(3, 2, 2), D(3), 1.2)),
    (r"weights has dtype torch.float64", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 3).double(), 1.2)),
    (r"weights is on meta", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 3, device="meta"), 1.2)),
    (r"p is 0.5; .*at least 1", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 3), 0.5)),
    (r"p is nan", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 3), float("nan"))),
    (r"p holds 0.5", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 3), torch.tensor(0.5))),
    (r"weights of shape.*broadcast", lambda: ops.mixed_matrices(D(5, 3, 2, 2), D(4, 2, 3), 1.2)),
    (r"p of shape \(3,\).*broadcast", lambda: ops.mixed_matrices(D(3, 2, 2), D(2, 2, 3), D(3))),
    (r"dictionary is a list", lambda: ops.mixed_matrices([1.0], D(2, 3), 1.2)),  # type: ignore[arg-type]
    (r"weights is a list", lambda: ops.mixed_matrices(D(3, 2, 2), [1.0], 1.2)),  # type: ignore[arg-type]
]

MIXED = Operation(
    name="mixed",
    other_name="mixed_matrices",
    build=build,
    cases=CASES,
    alone=[],
    wide=[Mixed((), 2, 16, 64, p) for p in POWERS],
    small=[Mixed((2,), 2, 3, 3, p) for p in (None, 1.2, 3.5)],
    mapped=[Mixed((), 3, 2, 4), Mixed((2,), 3, 2, 4)],
    tiny=[Mixed((2,), 3, 2, 4)],
    full=[Mixed((3,), 2, 6, 7), Mixed((2,), 3, 2, 4), Mixed((), 2, 3, 3)],
    many=Mixed((3,), 5, 17, 12, "each"),
    bad=BAD,
    slow=[case for case in CASES if case not in INTERPRETED],
    sixteen=False,  # its own test has a smaller tolerance
)
