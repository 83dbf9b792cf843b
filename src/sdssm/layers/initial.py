"""How parameters begin. Every draw comes from the generator that is given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdssm.ops import products


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> nn.Parameter:
    """A parameter with entries uniform on (-bound, bound)."""
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)


def normal(shape: tuple[int, ...], generator: torch.Generator) -> nn.Parameter:
    """A parameter with entries N(0, 1)."""
    return nn.Parameter(torch.randn(shape, generator=generator))


class Linear(nn.Linear):
    """torch's own, with the gradients of `sdssm.ops.products`."""

    def forward(self, x: Tensor) -> Tensor:
        return products.linear(x, self.weight, self.bias)


def linear(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> Linear:
    """A linear map as torch starts one: weight and bias uniform on +-1/sqrt(inputs)."""
    layer = Linear(inputs, outputs, bias=bias, device="meta")  # no draw of its own
    layer.weight = uniform((outputs, inputs), inputs**-0.5, generator)
    if bias:
        layer.bias = uniform((outputs,), inputs**-0.5, generator)
    return layer


def embedding(kind: str, symbols: int, width: int, generator: torch.Generator) -> nn.Parameter:
    """A table (symbols, width): N(0, 1) ("normal"), N(0, 0.02^2) ("small"), or a linear map's start ("linear")."""
    if kind == "linear":
        return uniform((symbols, width), symbols**-0.5, generator)
    table = normal((symbols, width), generator)
    return nn.Parameter(table.detach() * 0.02) if kind == "small" else table


def scalar_buffer(value: float) -> Tensor:
    """A number that training may change and that is saved with the weights."""
    return torch.tensor(float(value))
