"""Random linear scans of every kind, and their comparison with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops import compiled
from tests.ops.tolerances import FLOOR, RELATIVE, VANISHING

KINDS = ("dense", "token", "mixture", "block_diagonal", "diagonal", "diagonal_complex")
Result = tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """The sizes and options of one scan; `lead` are the leading dimensions, the last is B."""

    kind: str
    L: int
    N: int
    b: bool = False
    x0: bool = True
    lengths: bool = False
    rescale: bool = False
    lead: tuple[int, ...] = (2, 3)
    p: float | None = 1.2
    dtype: torch.dtype = torch.float64
    seed: int = 0
    symbols: int = 3  # V of a token scan

    def __str__(self) -> str:
        flags = [name for name in ("b", "x0", "lengths", "rescale") if getattr(self, name)]
        return "-".join([self.kind, f"L{self.L}", f"N{self.N}", *flags])


@dataclasses.dataclass(frozen=True)
class Problem:
    """The tensors of a case, and a function that calls the public scan with them."""

    leaves: dict[str, Tensor]
    scan: Callable[..., Result]

    def fresh(self, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Return copies of the tensors that require gradients."""
        return {
            name: leaf.detach().to(dtype or leaf.dtype).clone().requires_grad_() for name, leaf in self.leaves.items()
        }


def block_size(N: int) -> int:
    """Return a block size for N: the largest of 1..8 that divides it."""
    return max(s for s in range(1, 9) if N % s == 0)


def build(case: Case, device: str | torch.device = "cpu") -> Problem:
    """Draw the tensors of a case."""
    generator = torch.Generator().manual_seed(case.seed + 1000 * case.L + case.N)
    dtype = case.dtype
    if case.kind == "diagonal_complex":
        dtype = torch.complex128 if dtype == torch.float64 else torch.complex64

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        # Drawn in float64 on the CPU, so that the numbers are the same for every dtype and device.
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return (torch.randn(*shape, generator=generator, dtype=wide) * scale).to(dtype).to(device)

    replicas = case.lead[:-1]
    L, N = case.L, case.N
    spread = 0.9 / N**0.5
    leaves: dict[str, Tensor] = {}
    lengths = None
    if case.lengths:
        lengths = torch.randint(0, L + 1, case.lead, generator=generator)
        lengths.flatten()[0], lengths.flatten()[-1] = 0, L
        lengths = lengths.to(device)
    if case.x0:
        leaves["x0"] = draw(*case.lead, N)
    tokens = None
    if case.kind == "token":
        V = case.symbols
        leaves["A"] = draw(*replicas, V, N, N, scale=spread)
        tokens = torch.randint(0, V, (*case.lead, L), generator=generator).to(device)
        if case.b:
            leaves["b"] = draw(*replicas, V, N)
    elif case.kind == "mixture":
        K = 3
        leaves["dictionary"] = draw(*replicas, K, N, N, scale=spread)
        leaves["weights"] = draw(*case.lead, L, K).softmax(-1)
    else:
        form = {"dense": (N, N), "block_diagonal": (N // block_size(N), block_size(N), block_size(N))}.get(
            case.kind, (N,)
        )
        scale = {"dense": spread, "block_diagonal": 0.9 / block_size(N) ** 0.5}.get(case.kind, 0.7)
        leaves["A"] = draw(*case.lead, L, *form, scale=scale)
    if case.b and case.kind != "token":
        leaves["b"] = draw(*case.lead, L, N)

    def scan(tensors: dict[str, Tensor], mode: str = "auto", check_finite: bool = False) -> Result:
        b, x0 = tensors.get("b"), tensors.get("x0")
        options = {"lengths": lengths, "rescale": case.rescale, "mode": mode, "check_finite": check_finite}
        if case.kind == "token":
            assert tokens is not None
            return ops.token_scan(tensors["A"], b, tokens, x0, **options)  # type: ignore[arg-type]
        if case.kind == "mixture":
            return ops.mixture_scan(tensors["dictionary"], tensors["weights"], b, x0, p=case.p, **options)  # type: ignore[arg-type]
        function = getattr(ops, f"{case.kind.removesuffix('_complex')}_scan")
        return function(tensors["A"], b, x0, **options)  # type: ignore[no-any-return]

    return Problem(leaves, scan)


def cotangents(states: Tensor, final: Tensor) -> Result:
    """Return fixed random weights for a loss over both outputs."""
    generator = torch.Generator().manual_seed(7)

    def draw(like: Tensor) -> Tensor:
        wide = torch.complex128 if like.is_complex() else torch.float64
        return torch.randn(like.shape, generator=generator, dtype=wide).to(like.device, like.dtype)

    return draw(states), draw(final)


def outputs_and_gradients(
    problem: Problem, mode: str, *, through: str = "both", dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Return states, final and the gradient of every leaf, for a loss through "states", "final" or "both"."""
    leaves = problem.fresh(dtype)
    states, final = problem.scan(leaves, mode)
    weights = cotangents(states, final)
    loss = torch.zeros((), device=states.device, dtype=states.dtype.to_real())
    for name, output, weight in zip(("states", "final"), (states, final), weights, strict=True):
        if through in (name, "both"):
            loss = loss + (output * weight.conj()).real.sum()
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    results = {"states": states.detach(), "final": final.detach()}
    for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
        results[f"grad {name}"] = torch.zeros_like(leaf) if grad is None else grad
    return results


def relative_error(actual: Tensor, expected: Tensor, floor: float = FLOOR) -> float:
    """Return the largest difference divided by the largest expected value, or by `floor` if that is larger."""
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    if expected.numel() == 0:
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    difference = (actual.to(wide) - expected.to(wide)).abs().max()
    error = difference / expected.to(wide).abs().max().clamp(min=floor)
    return float("inf") if bool(error.isnan()) else float(error)


def largest(values: Tensor) -> float:
    """Return the largest absolute value."""
    return float(values.abs().max()) if values.numel() else 0.0


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype, label: str = "") -> None:
    """Compare tensors by name with the tolerances of `dtype`; the error names the tensor and its relative error."""
    for_outputs, for_gradients = RELATIVE[dtype]
    sizes = {name: largest(reference) for name, reference in expected.items() if name.startswith("grad")}
    most = max(sizes.values(), default=0.0)
    for name, reference in expected.items():
        vanishes = sizes.get(name, most) < VANISHING * most
        error = relative_error(actual[name], reference, max(FLOOR, most) if vanishes else FLOOR)
        allowed = for_gradients if name.startswith("grad") else for_outputs
        if not error <= allowed:
            raise AssertionError(f"{label} {name}: relative error {error:.2e}, allowed {allowed:.0e}")


def compare_with_reference(
    case: Case, backend: str, mode: str, *, device: str = "cpu", through: str = "both", numba: bool = True
) -> None:
    """Compare the results of a backend and mode with the reference."""
    problem = build(case, device)
    with ops.use_backend("reference"):
        expected = outputs_and_gradients(problem, "auto", through=through)
    with ops.use_backend(backend):
        if numba:
            actual = outputs_and_gradients(problem, mode, through=through)
        else:
            with compiled.without_numba():
                actual = outputs_and_gradients(problem, mode, through=through)
    assert_same(actual, expected, case.dtype, f"{case} {backend} {mode}")
