"""The methods that are compared: each computes the same last state of the SD-SSM recurrence, forward and backward.

dictionary (R, K, N, N), weights (R, B, L, K), b (R, B, L, N) -> the last state (R, B, N): a dictionary per replica.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import scan
from benchmarks import scan_baselines as baselines
from sdssm import ops

#: The dictionary size, and the norm of the columns.
K, P = 8, 1.2
Recurrence = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclasses.dataclass(frozen=True, order=True)
class Point:
    """A method and the shape at which it is measured."""

    method: str
    replicas: int = 1
    batch: int = 1
    length: int = 256
    size: int = 64

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"no method is called {self.method!r}; choose one of {', '.join(METHODS)}")
        if min(self.replicas, self.batch, self.length, self.size) < 1:
            raise ValueError(f"replicas, batch, length and size must be at least 1, got {self}")

    def shrink(self) -> Point:
        """Return the point at which the result is compared with the loop in float64, which is slow."""
        return dataclasses.replace(
            self, replicas=min(self.replicas, 2), batch=min(self.batch, 2), length=min(self.length, 9)
        )


def mix(dictionary: Tensor, weights: Tensor) -> Tensor:
    """Return the matrix of each step with normalised columns: (R, K, N, N), (R, ..., K) -> (R, ..., N, N)."""
    A = torch.einsum("r...k,rkij->r...ij", weights, dictionary)
    return A / A.abs().pow(P).sum(-2, keepdim=True).pow(1 / P)


def eager_loop(dictionary: Tensor, weights: Tensor, b: Tensor) -> Tensor:
    """Compute the recurrence as published: mix, normalise and multiply at each step.

    Steps are taken with `unbind`: the gradient of an index would be a tensor of the length L for each of L steps.
    """
    x = torch.zeros_like(b[:, :, 0])
    for weights_t, b_t in zip(weights.unbind(2), b.unbind(2), strict=True):
        x = (mix(dictionary, weights_t) @ x[..., None])[..., 0] + b_t
    return x


def mixture(dictionary: Tensor, weights: Tensor, b: Tensor) -> Tensor:
    """Compute the recurrence with `mixture_scan`, which stores no matrix of a step."""
    return ops.mixture_scan(dictionary, weights, b, p=P)[1]


def dense(dictionary: Tensor, weights: Tensor, b: Tensor) -> Tensor:
    """Mix the matrices of all steps in torch, then `dense_scan`."""
    return ops.dense_scan(mix(dictionary, weights), b)[1]


def associative(dictionary: Tensor, weights: Tensor, b: Tensor) -> Tensor:
    """Mix the matrices of all steps in torch, then torch's associative_scan."""
    A = mix(dictionary, weights)
    return baselines.associative(A.flatten(0, 1), b.flatten(0, 1))[:, -1].view(*b.shape[:2], -1)


#: The methods in the order of the figure; torch-slices is a layer of its own (`slices_problem`).
METHODS: dict[str, Recurrence | None] = {
    "mixture_scan": mixture,
    "dense_scan": dense,
    "eager loop": eager_loop,
    "associative_scan": associative,
    "torch-slices": None,
}


def why_not(point: Point) -> str | None:
    """Return why a point cannot be measured here, or None."""
    if point.method != "torch-slices":
        return None
    if importlib.util.find_spec("slices") is None:
        return "torch-slices is not installed (it is imported as slices)"
    return "a layer of torch-slices has one replica" if point.replicas > 1 else None


def make_problem(point: Point, device: str) -> tuple[scan.Loss, scan.Leaves]:
    """Return the loss of a method at a point, and its inputs."""
    benchmark = scan.Benchmark(device, 0.0)
    R, B, L, N = point.replicas, point.batch, point.length, point.size
    recurrence = METHODS[point.method]
    if recurrence is None:
        return slices_problem(point, benchmark)
    leaves = {
        "dictionary": benchmark.draw(R, K, N, N, scale=N**-0.5),
        "weights": benchmark.draw(R, B, L, K, seed=1).softmax(-1),
        "b": benchmark.draw(R, B, L, N, seed=2),
    }
    weight = benchmark.draw(R, B, N, seed=3)

    def loss(inputs: scan.Leaves) -> Tensor:
        final = recurrence(inputs["dictionary"], inputs["weights"], inputs["b"])
        return (final * weight.to(final)).sum()

    return loss, {name: leaf.requires_grad_() for name, leaf in leaves.items()}


def slices_problem(point: Point, benchmark: scan.Benchmark) -> tuple[scan.Loss, scan.Leaves]:
    """Return the loss of a dense SLiCE layer with states of the same size, in its faster mode.

    The layer makes its matrices from N inputs rather than from K weights, so its numbers are not ours.
    """
    layer = baselines.torch_slices(point.size, parallel=benchmark.device != "cpu").to(benchmark.device)
    x = benchmark.draw(point.batch, point.length, point.size, seed=1)

    def loss(_: scan.Leaves) -> Tensor:
        states: Tensor = layer(x)
        return states[:, -1].square().mean()

    return loss, dict(layer.named_parameters())


def check_point(point: Point, device: str) -> float | None:
    """Compare a method with the loop in float64 at a small size; return the error, or raise WrongResultError."""
    small = point.shrink()
    loss, leaves = make_problem(small, device)
    if METHODS[point.method] is None:
        torch.autograd.grad(loss(leaves), list(leaves.values()))  # nothing to compare with
        return None
    reference, _ = make_problem(dataclasses.replace(small, method="eager loop"), device)
    return scan.check(point.method, loss, leaves, reference)
