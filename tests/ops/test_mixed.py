"""mixed_matrices: every implementation against plain torch, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops import backend
from tests.interpreted import inside
from tests.ops.differentiable import (
    Function,
    Leaves,
    check_compiled,
    check_transforms,
    draws,
    face_reference,
    outputs_and_gradients,
)

#: (leading dimensions, V, K, N): one of everything, odd sizes, several tiles of columns and of the dictionary.
SIZES = [((), 1, 1, 1), ((3,), 2, 6, 7), ((2, 2), 5, 3, 16), ((), 9, 17, 12)]
POWERS = [None, 1.0, 1.2, 2.0, 3.5, "each"]
#: Every power and every size, for the interpreter, which is slow.
SOME = [(SIZES[1 + i % 3], p) for i, p in enumerate(POWERS)] + [(SIZES[0], 1.2), (SIZES[1], "each")]


def problem(
    sizes: tuple[tuple[int, ...], int, int, int],
    p: float | str | None = 1.2,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> tuple[Function, Leaves]:
    lead, V, K, N = sizes
    draw = draws()
    leaves = {"dictionary": draw(*lead, K, N, N), "weights": draw(*lead, V, K)}
    given: Any = p
    if p == "each":  # every replica its own, and exactly 1 and 2 among them
        given = torch.tensor([1.0, 2.0, 1.3, 4.0], dtype=dtype, device=device)[: 3 if lead == (3,) else 4]
        given = given.reshape(lead) if lead else given[2]

    def function(of: Leaves) -> tuple[Tensor, ...]:
        return (ops.mixed_matrices(of["dictionary"], of["weights"], given),)

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


def fast(device: str) -> str:
    return "cpu" if device == "cpu" else "triton"


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("p", POWERS)
def test_faces_the_reference(sizes: Any, p: float | str | None, device: str) -> None:
    face_reference(*problem(sizes, p, device), fast(device), f"{sizes} p={p}")


@pytest.mark.parametrize("p", POWERS)
def test_float32_is_close(p: float | str | None, device: str) -> None:
    face_reference(*problem(((), 2, 16, 64), p, device, torch.float32), fast(device), f"p={p}")


@inside
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(("sizes", "p"), SOME, ids=str)
def test_interpreted(sizes: Any, p: float | str | None) -> None:
    face_reference(*problem(sizes, p), "triton", f"{sizes} p={p}")


@inside
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_interpreted_transforms() -> None:
    with ops.use_backend("triton"):
        check_transforms(*problem(((2,), 3, 2, 4)))


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("p", [None, 1.2, 3.5])
def test_gradcheck(name: str, p: float | None) -> None:
    function, leaves = problem(((2,), 2, 3, 3), p)
    inputs = [leaf.requires_grad_() for leaf in leaves.values()]

    def matrices(*given: Tensor) -> Tensor:
        return function(dict(zip(leaves, given, strict=True)))[0]

    with ops.use_backend(name):
        assert torch.autograd.gradcheck(matrices, inputs, nondet_tol=0.0)


@pytest.mark.parametrize("sizes", [((), 3, 2, 4), ((2,), 3, 2, 4)], ids=str)
def test_transforms(sizes: Any, device: str) -> None:
    check_transforms(*problem(sizes, device=device))
    with ops.use_backend("reference"):
        check_transforms(*problem(sizes, device=device))


def test_p_may_be_mapped(device: str) -> None:
    _, leaves = problem(((), 2, 3, 4), device=device)
    p = torch.tensor([1.0, 1.5, 2.0], device=device)
    mapped = torch.func.vmap(lambda one: ops.mixed_matrices(leaves["dictionary"], leaves["weights"], one))(p)
    for i in range(3):
        wanted = ops.mixed_matrices(leaves["dictionary"], leaves["weights"], float(p[i]))
        torch.testing.assert_close(mapped[i], wanted)


def test_leading_dimensions_broadcast(device: str) -> None:
    draw = draws()
    leaves = {"dictionary": draw(2, 3, 4, 4).to(device), "weights": draw(5, 1, 2, 3).to(device)}
    p = torch.tensor([1.1, 2.2], dtype=torch.float64, device=device)
    face_reference(
        lambda of: (ops.mixed_matrices(of["dictionary"], of["weights"], p),), leaves, fast(device), "broadcast"
    )
    assert ops.mixed_matrices(leaves["dictionary"], leaves["weights"], p).shape == (5, 2, 2, 4, 4)


def test_they_are_the_matrices_of_a_mixture_scan(device: str) -> None:
    draw = draws()
    dictionary, weights = draw(3, 4, 4).to(device), draw(2, 3).to(device)
    tokens, x0 = torch.randint(0, 2, (5, 6)).to(device), draw(5, 4).to(device)
    states = ops.token_scan(ops.mixed_matrices(dictionary, weights, 1.2), None, tokens, x0)[0]
    torch.testing.assert_close(states, ops.mixture_scan(dictionary, weights[tokens], None, x0, p=1.2)[0])


def test_an_entry_of_zero_has_a_finite_gradient(device: str) -> None:
    dictionary = torch.eye(3, dtype=torch.float64, device=device)[None]
    for p in (1.0, 1.2, 2.0):
        face_reference(
            lambda of, p=p: (ops.mixed_matrices(of["dictionary"], of["weights"], p),),  # type: ignore[misc]
            {"dictionary": dictionary, "weights": torch.ones(2, 1, dtype=torch.float64, device=device)},
            fast(device),
            f"p={p}",
        )


def test_a_column_of_zeros_is_nan(device: str) -> None:
    dictionary = torch.eye(2, device=device)[None].clone()
    dictionary[..., 1] = 0
    found = ops.mixed_matrices(dictionary, torch.ones(1, 1, device=device), 1.2)[0]
    assert found[:, 1].isnan().all() and found[:, 0].tolist() == [1, 0]


def test_sixteen_bits_are_mixed_in_float32(device: str) -> None:
    function, leaves = problem(((), 2, 6, 7), device=device, dtype=torch.bfloat16)
    found = function(leaves)[0]
    assert found.dtype == torch.bfloat16
    wanted = function({name: leaf.float() for name, leaf in leaves.items()})[0]
    torch.testing.assert_close(found.float(), wanted, atol=0, rtol=2**-8)


def test_a_planted_wrong_gradient_fails(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = backend.implementation("mixed", fast(device))
    right = module.backward
    for which in range(2):
        monkeypatch.setattr(
            module,
            "backward",
            lambda *args, which=which: tuple(g * (1 + 1e-8 * (i == which)) for i, g in enumerate(right(*args))),
        )
        with pytest.raises(AssertionError, match="grad"):
            face_reference(*problem(((3,), 2, 6, 7), device=device), fast(device), "planted")


def test_compiles_without_graph_break(device: str) -> None:
    check_compiled(*problem(((2,), 3, 2, 4), device=device))


def test_a_second_gradient_is_refused_and_the_reference_has_it(device: str) -> None:
    def twice() -> Any:
        function, leaves = problem(((), 2, 3, 3), device=device)
        weights = leaves["weights"].requires_grad_()
        (grad,) = torch.autograd.grad(function(leaves)[0].square().sum(), weights, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), weights)

    with pytest.raises(ops.OpsError, match=r"mixed_matrices: .*reference"):
        twice()
    with ops.use_backend("reference"):
        twice()


def test_the_same_bits_every_time(device: str) -> None:
    function, leaves = problem(((3,), 5, 17, 12), "each", device)
    first, second = (outputs_and_gradients(function, leaves) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


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


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message[:30] for message, _ in BAD])
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_bad_input_is_named(message: str, call: Callable[[], Any], name: str) -> None:
    with ops.use_backend(name), pytest.raises(ops.OpsError, match=f"mixed_matrices: .*{message}"):
        call()
