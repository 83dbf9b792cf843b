"""rotary_attention: cases for `test_function_laws`, torch's attention, lengths, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sdssm import ops
from sdssm.ops.attention import rotary_attention
from tests.interpreted import interpreted
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, draws, together

COUNT = 50


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """Sizes and options of one attention."""

    lead: tuple[int, ...] = (4,)
    L: int = 7
    H: int = 2
    S: int = 4
    lengths: bool = True
    causal: bool = False
    end: bool = False
    shared: bool = False  # all rows have the same positions


CASES = [
    AttentionCase(),
    AttentionCase(causal=True),
    AttentionCase((3,), 21, 3, 6, lengths=False, shared=True),
    AttentionCase((2, 3), 18, 3, 2, causal=True, shared=True),
    AttentionCase((9,), end=True),
    AttentionCase((2, 3), 19, 3, 6, causal=True, lengths=False, end=True),
    AttentionCase((1,), 1, 1, 2, lengths=False),
    AttentionCase((4,), 5, 1, 16, causal=True, lengths=False),
]
TINY = AttentionCase((3,), 3, 1, 4)


def build(case: AttentionCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    generator = torch.Generator().manual_seed(1)
    lead = () if case.shared else case.lead
    positions = torch.rand(*lead, COUNT, generator=generator).argsort(-1)[..., : case.L].sort(-1).values.to(device)
    rows = torch.arange(torch.Size(case.lead).numel()).reshape(case.lead)
    lengths = (case.L - rows % (case.L + 1)).to(device) if case.lengths else None  # one is 0 if there are many rows
    leaves = {"qkv": draws()(*case.lead, case.L, 3, case.H, case.S).to(device, dtype)}

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        return together(
            rotary_attention(inputs["qkv"], positions, lengths, count=COUNT, causal=case.causal, end=case.end)
        )

    return function, leaves


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_torch(causal: bool, device: str) -> None:
    """All positions are equal, so the rotations of queries and keys cancel."""
    qkv = draws()(3, 9, 3, 2, 4).to(device)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
    positions = torch.full((9,), 5, device=device)
    for leaf in (qkv, qkv.requires_grad_()):
        torch.testing.assert_close(rotary_attention(leaf, positions, count=9, causal=causal), expected)


def test_only_differences_of_positions_count(device: str) -> None:
    qkv, positions = draws()(3, 9, 3, 2, 4).to(device), torch.arange(9, device=device) ** 2
    first = rotary_attention(qkv, positions, count=2_000)
    torch.testing.assert_close(rotary_attention(qkv, positions + 1_900, count=2_000), first)
    assert not torch.allclose(rotary_attention(qkv, positions * 2, count=2_000), first, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_inputs_past_the_end_are_ignored(causal: bool, device: str) -> None:
    qkv, positions = draws()(4, 9, 3, 2, 4).to(device).requires_grad_(), torch.arange(9, device=device)
    lengths = torch.tensor([9, 4, 1, 0], device=device)
    y = rotary_attention(qkv, positions, lengths, count=9, causal=causal)
    for row, length in enumerate(lengths.tolist()):
        assert not y[row, length:].any()
        if length:
            cut = rotary_attention(qkv[row, :length], positions[:length], count=9, causal=causal)
            torch.testing.assert_close(y[row, :length], cut)
    (gradient,) = torch.autograd.grad(y.square().sum(), qkv)
    assert all(not gradient[row, length:].any() for row, length in enumerate(lengths.tolist()))


def test_empty_batch(device: str) -> None:
    qkv = torch.zeros(0, 5, 3, 2, 4, device=device, requires_grad=True)
    y = rotary_attention(qkv, torch.arange(5, device=device), count=5)
    assert y.shape == (0, 5, 2, 4)
    assert torch.autograd.grad(y.sum(), qkv)[0].shape == qkv.shape


@interpreted
@pytest.mark.parametrize("L", [19, 41, 70])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("S", [6, 16])
def test_products_of_split_numbers_agree(L: int, causal: bool, S: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter computes products of tensor cores in float32; one, two or more blocks of keys."""
    from sdssm.ops.attention import triton

    qkv, positions = draws()(2, L, 3, 2, S).float().requires_grad_(), torch.arange(L)
    lengths, weights = torch.tensor([L, L // 2]), draws()(2, L, 2, S).float()
    expected = rotary_attention(qkv, positions, lengths, count=L, causal=causal)
    (gradient,) = torch.autograd.grad((expected * weights).sum(), qkv)
    monkeypatch.setattr(triton, "has_tensor_cores", lambda x: True)
    with ops.use_backend("triton"):
        y = rotary_attention(qkv, positions, lengths, count=L, causal=causal)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.autograd.grad((y * weights).sum(), qkv)[0], gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("L", "H", "S", "dtype", "causal"),
    [
        (41, 8, 8, torch.float32, False),
        (70, 8, 8, torch.float32, True),
        (41, 3, 6, torch.float32, True),
        (41, 2, 128, torch.float64, False),
    ],
)
def test_compiles_ahead_of_time(
    capability: int, L: int, H: int, S: int, dtype: torch.dtype, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.attention import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    qkv, positions, lengths = torch.zeros(4, L, 3, H, S, dtype=dtype), torch.zeros(4, L).long(), torch.zeros(4).long()
    outputs = triton.forward(qkv, positions, lengths, causal, False, 99)
    triton.backward(outputs[0], qkv, positions, lengths, *outputs, causal, False, 99)
    assert launched == ["attention_forward_kernel", "attention_backward_kernel"]


QKV, POSITIONS = torch.ones(2, 4, 3, 2, 6), torch.arange(4)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"qkv has shape \(3, 2, 6\); it needs at least 4", lambda: rotary_attention(QKV[0, 0], POSITIONS, count=9)),
    (r"qkv has shape \(2, 4, 2, 2, 6\).*even S", lambda: rotary_attention(QKV[:, :, :2], POSITIONS, count=9)),
    (r"qkv has shape \(2, 4, 3, 2, 5\).*even S", lambda: rotary_attention(QKV[..., :5], POSITIONS, count=9)),
    (r"positions has shape \(3,\).*4\)", lambda: rotary_attention(QKV, POSITIONS[:3], count=9)),
    (r"positions.*2", lambda: rotary_attention(QKV, POSITIONS, count=2)),
    (r"lengths.*4", lambda: rotary_attention(QKV, POSITIONS, torch.tensor([5, 1]), count=9)),
    (r"lengths of shape .*broadcast", lambda: rotary_attention(QKV, POSITIONS, torch.tensor([1, 1, 1]), count=9)),
]


def use_other_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.attention import triton

    monkeypatch.setattr(triton, "FORWARD", (16, 16))
    monkeypatch.setattr(triton, "BACKWARD", (16, 32))


ATTENTION = Operation(
    name="attention",
    build=build,
    cases=CASES,
    alone=[],
    wide=[AttentionCase((6,), 41, 8, 8)],
    small=[TINY, AttentionCase((2,), 3, 2, 2, causal=True, lengths=False)],
    mapped=[CASES[0], CASES[2], CASES[3], CASES[4]],
    tiny=[TINY],
    full=[CASES[0], CASES[1], CASES[5]],
    many=AttentionCase((40,), 9, 2, 4),
    bad=BAD,
    tunings=[Tuning("other tiles", use_other_tiles, [(case, 0) for case in CASES[:6]])],
    other_name="rotary_attention",
)
