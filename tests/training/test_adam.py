"""Adam for replicas side by side. The Triton kernels are compared with it in Triton's interpreter."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.training.adam import adam_step
from tests.interpreted import interpreted

BETAS, EPS = (0.9, 0.999), 1e-8


class AdamState:
    """R sets of P parameters, their moments and their settings."""

    def __init__(self, R: int, P: int, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(0)
        self.p = torch.randn(R, P, generator=generator, dtype=dtype)
        self.m, self.v = torch.zeros_like(self.p), torch.zeros_like(self.p)
        self.lr = torch.logspace(-3, -1, R, dtype=dtype)
        self.decay = torch.linspace(0, 0.1, R, dtype=dtype)
        self.alive = torch.ones(R, dtype=torch.bool)
        self.t = 0

    def step(
        self,
        gradient: Tensor,
        clip: float | None = 1.0,
        loss: Tensor | None = None,
        *,
        triton: bool = False,
        count: int = 2,
        is_packed: bool = True,
    ) -> Tensor:
        self.t += 1
        ones = torch.ones_like(self.lr)
        if triton:
            from sdssm.training import adam_triton

            # The settings are columns of one table, as in training.
            table = torch.stack([self.lr, ones * (1 - BETAS[0] ** self.t), ones * (1 - BETAS[1] ** self.t)], dim=-1)
            lr, bias1, bias2 = table.unbind(-1)
            # Parts of different sizes, the last the largest.
            P = gradient.shape[1]
            edges = [P * i * i // (count * (count + 1)) for i in range(count)] + [P]
            sizes = [edge - last for last, edge in itertools.pairwise(edges)]
            parts = [part.clone() for part in torch.split(gradient, sizes, 1)]
            args = self.p, parts, self.m, self.v, lr, self.decay, bias1, bias2, BETAS, EPS, clip, self.alive
            packed = torch.full_like(self.p, torch.nan).view(-1) if is_packed else None
            norm = adam_triton.adam_step(*args, ones if loss is None else loss, packed)
            if packed is None:
                return norm
            written = torch.cat([part.flatten() for part in torch.split(self.p, sizes, 1)])
            is_written = ~packed.isnan()
            assert is_written.sum() == self.alive.sum() * self.p.shape[1]  # a replica that is not alive keeps its own
            assert torch.equal(packed[is_written], written[is_written])
            return norm
        return adam_step(
            self.p, gradient.clone(), self.m, self.v, lr=self.lr, weight_decay=self.decay,
            bias1=ones * (1 - BETAS[0] ** self.t), bias2=ones * (1 - BETAS[1] ** self.t), betas=BETAS, eps=EPS,
            clip=clip, alive=self.alive, loss=ones if loss is None else loss,
        )  # fmt: skip


def gradients(R: int, P: int, count: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    # Norms from far below to far above 1, so that some are clipped and some are not.
    return [torch.randn(R, P, generator=generator, dtype=dtype) * 10.0 ** (t % 5 - 3) for t in range(count)]


@pytest.mark.parametrize("clip", [1.0, 0.1, None])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_matches_torch_adam(clip: float | None, dtype: torch.dtype, tolerance: float) -> None:
    R, P = 3, 37
    ours = AdamState(R, P, dtype)
    theirs = [[torch.nn.Parameter(part.clone()) for part in (row[:30], row[30:])] for row in ours.p]
    optimizers = [
        torch.optim.Adam(parts, lr=float(lr), weight_decay=float(decay), betas=BETAS, eps=EPS)
        for parts, lr, decay in zip(theirs, ours.lr, ours.decay, strict=True)
    ]
    for gradient in gradients(R, P, 12, dtype):
        norm = ours.step(gradient, clip)
        for r, (parts, optimizer) in enumerate(zip(theirs, optimizers, strict=True)):
            for part, grad in zip(parts, (gradient[r, :30], gradient[r, 30:]), strict=True):
                part.grad = grad.clone()
            expected_norm = torch.nn.utils.clip_grad_norm_(parts, torch.inf if clip is None else clip)
            torch.testing.assert_close(norm[r], expected_norm, rtol=tolerance, atol=0)
            optimizer.step()
    expected = torch.stack([torch.cat([part.detach() for part in parts]) for parts in theirs])
    torch.testing.assert_close(ours.p, expected, rtol=10 * tolerance, atol=10 * tolerance)
    assert ours.alive.all()


def test_update_does_not_depend_on_other_replicas() -> None:
    both = AdamState(2, 1001, torch.float32)
    alone = copy.deepcopy(both)
    for name in ("p", "m", "v", "lr", "decay", "alive"):
        setattr(alone, name, getattr(alone, name)[1:].clone())
    for gradient in gradients(2, 1001, 5, torch.float32):
        norm = both.step(gradient)
        assert torch.equal(norm[1:], alone.step(gradient[1:]))
    assert torch.equal(both.p[1:], alone.p)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("source", ["loss", "gradient"])
def test_replica_that_is_not_finite_stops_for_good_and_the_others_continue(bad: float, source: str) -> None:
    ours, untouched = AdamState(3, 8), AdamState(3, 8)
    good, other, last = gradients(3, 8, 3)
    ours.step(good)
    untouched.step(good)
    before = copy.deepcopy(ours)
    loss, gradient = torch.ones(3, dtype=torch.float64), other.clone()
    if source == "loss":
        loss[1] = bad
    else:
        gradient[1, 5] = bad
    ours.step(gradient, loss=loss)
    untouched.step(other)
    assert ours.alive.tolist() == [True, False, True]
    ours.step(last)
    untouched.step(last)
    assert ours.alive.tolist() == [True, False, True]
    for name in ("p", "m", "v"):
        now, then, expected = (getattr(state, name) for state in (ours, before, untouched))
        assert torch.equal(now[1], then[1])
        assert torch.equal(now[[0, 2]], expected[[0, 2]])


def test_accepts_parameters_that_require_gradients() -> None:
    ours: Any = AdamState(1, 4)
    ours.p.requires_grad_()
    assert not ours.step(torch.ones(1, 4, dtype=torch.float64)).requires_grad


@interpreted
@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize(
    ("P", "count", "is_packed"),
    [(1, 2, True), (1024, 2, True), (2500, 2, False), (600, 5, False), (1500, 6, True)],
)
def test_triton_kernels_match_the_torch_version(
    P: int, count: int, is_packed: bool, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five and six gradients are joined."""
    from sdssm.training import adam_triton

    monkeypatch.setattr(adam_triton, "MOST_PARTS", 4)
    torch_state, triton_state = AdamState(3, P, torch.float32), AdamState(3, P, torch.float32)
    for t, gradient in enumerate(gradients(3, P, 6, torch.float32)):
        loss = torch.ones(3)
        if t == 3:
            gradient[1, P // 2] = torch.nan
        if t == 4:
            loss[2] = torch.inf
        expected = torch_state.step(gradient, clip, loss)
        norm = triton_state.step(gradient, clip, loss, triton=True, count=count, is_packed=is_packed)
        torch.testing.assert_close(norm, expected, rtol=2e-6, atol=0, equal_nan=True)
        assert torch.equal(torch_state.alive, triton_state.alive)
    assert torch_state.alive.tolist() == [True, False, False]
    for name in ("p", "m", "v"):
        torch.testing.assert_close(getattr(torch_state, name), getattr(triton_state, name), rtol=1e-5, atol=1e-6)
