"""Initial values of parameters. All random numbers come from the generator that is passed."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from sdssm.ops.layer_norm import layer_norm
from sdssm.ops.linear import linear_map


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> nn.Parameter:
    """Return a parameter with entries uniform on (-bound, bound)."""
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)


def normal(shape: tuple[int, ...], generator: torch.Generator, *, std: float = 1.0) -> nn.Parameter:
    """Return a parameter with entries N(0, std^2)."""
    return nn.Parameter(torch.randn(shape, generator=generator) * std)


def orthogonal_rows(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Return rows of length 1 in random directions; the first `columns` of them are orthogonal."""
    directions = torch.randn(rows, columns, generator=generator)
    first = min(rows, columns)
    directions[:first] = torch.linalg.qr(directions[:first].mT)[0].mT
    return nn.Parameter(nn.functional.normalize(directions, dim=-1))


class Linear(nn.Linear):
    """`nn.Linear` with the kernels of `sdssm.ops.linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear_map(x, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` over the last dimension, with the kernels of `sdssm.ops.layer_norm`."""

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, epsilon=self.eps)


class Mlp(nn.Sequential):
    """Linear(inputs, hidden) -> ReLU or GELU -> Linear(hidden, outputs), the activation in the kernel of the first."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        generator: torch.Generator,
        *,
        activation: Literal["relu", "gelu"] = "relu",
        bias: bool = True,
    ) -> None:
        first = linear(inputs, hidden, generator, bias=bias)
        second = linear(hidden, outputs, generator, bias=bias)
        super().__init__(first, nn.ReLU() if activation == "relu" else nn.GELU(), second)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        first, _, second = self
        assert isinstance(first, nn.Linear)
        out: Tensor = second(linear_map(x, first.weight, first.bias, self.activation))
        return out


def linear(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> Linear:
    """Return a linear map initialised as in torch: weight and bias uniform on +-1/sqrt(inputs)."""
    layer = Linear(inputs, outputs, bias=bias, device="meta")  # so that torch draws no random numbers
    layer.weight = uniform((outputs, inputs), inputs**-0.5, generator)
    if bias:
        layer.bias = uniform((outputs,), inputs**-0.5, generator)
    return layer


def embedding(kind: str, symbols: int, width: int, generator: torch.Generator) -> nn.Parameter:
    """Return an embedding table (symbols, width).

    It is N(0, 1) ("normal"), N(0, 0.02^2) ("small"), or initialised as a linear map ("linear").
    """
    if kind == "linear":
        return uniform((symbols, width), symbols**-0.5, generator)
    return normal((symbols, width), generator, std=0.02 if kind == "small" else 1.0)


def inverse_softplus(y: Tensor) -> Tensor:
    """Return x with softplus(x) = y, accurate for small y as well.

    >>> nn.functional.softplus(inverse_softplus(torch.tensor([0.001, 2.0])))
    tensor([1.0000e-03, 2.0000e+00])
    """
    return y + torch.log(-torch.expm1(-y))  # log(exp(y) - 1)


def scalar_buffer(value: float) -> Tensor:
    """Return a scalar for a buffer: training may change it, and it is saved with the weights."""
    return torch.tensor(float(value))
