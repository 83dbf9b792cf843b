"""A program without complex numbers computes what the original computes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sdssm.errors import ModelError
from sdssm.exporting.real_program import RealProgram


class ComplexArithmetic(nn.Module):
    """Every operator on complex numbers that the models use, and some more."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, 3, 2, generator=generator))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        W, z = torch.view_as_complex(self.weight), torch.complex(x, y)  # (3, 3), (B, 3)
        powers = W.exp().log1p()  # depends on the weights alone
        product = (W @ z[..., None])[..., 0] - 2 * z.conj() / (3 + powers[0])
        turned = torch.polar(x.abs(), y) * z.exp().reciprocal() + x
        joined = torch.cat([product, -turned], -1).reshape(-1, 2, 3).sum(1)
        real = (x > 0).to(joined.dtype) * joined
        order = torch.sort(torch.hypot(x, y), stable=True).indices
        return torch.view_as_real(real), joined.imag, joined.real.contiguous(), joined.abs(), order


def test_complex_arithmetic_becomes_real() -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(5, 3, generator=generator), torch.randn(5, 3, generator=generator)
    module = ComplexArithmetic()
    with torch.no_grad():
        program = RealProgram(torch.export.export(module, (x, y), strict=False))
        for actual, expected in zip(program(x, y), module(x, y), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert not any(value.is_complex() for value in program.buffers())


def test_an_operator_without_a_real_form_is_named() -> None:
    class Tangent(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.view_as_complex(x).tanh().real

    example = (torch.ones(3, 2),)
    program = RealProgram(torch.export.export(Tangent(), example, strict=False))
    with pytest.raises(ModelError, match="the operator aten.tanh.default on complex numbers cannot be expressed"):
        program(*example)
