"""Bad input to the linear scans is rejected before any kernel starts, with a message that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.errors import SdssmError
from sdssm.ops.checks import can_read_values

D = torch.ones


def tokens(*values: int) -> Tensor:
    return torch.tensor([values])


BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"A has shape \(3, 3\); it needs at least 3 dimensions", lambda: ops.dense_scan(D(3, 3))),
    (r"A has shape \(4, 2, 3\).*equal, got 2 and 3", lambda: ops.dense_scan(D(4, 2, 3))),
    (r"b has shape \(5, 3\).*L=4, N=3.*A of shape \(4, 3, 3\)", lambda: ops.dense_scan(D(4, 3, 3), D(5, 3))),
    (r"x0 has shape \(2,\).*N=3.*\(4, 3, 3\)", lambda: ops.dense_scan(D(4, 3, 3), x0=D(2))),
    (r"dimension L must be at least 1", lambda: ops.dense_scan(D(0, 3, 3))),
    (r"leading dimensions \(5,\).*broadcast.*\(2,\)", lambda: ops.dense_scan(D(2, 4, 3, 3), x0=D(5, 3))),
    (r"x0 has dtype torch.float64 and A torch.float32", lambda: ops.dense_scan(D(4, 3, 3), x0=D(3).double())),
    (r"A has dtype torch.int64", lambda: ops.dense_scan(D(4, 3, 3).long())),
    (r"x0 is on meta and A on cpu", lambda: ops.dense_scan(D(4, 3, 3), x0=D(3, device="meta"))),
    (r"mode is 'paralel'; did you mean 'parallel'", lambda: ops.dense_scan(D(4, 3, 3), mode="paralel")),
    (r"b was given with rescale=True", lambda: ops.dense_scan(D(4, 3, 3), D(4, 3), rescale=True)),
    (r"lengths\[1\] is 5; .* 0..4", lambda: ops.dense_scan(D(2, 4, 3, 3), lengths=torch.tensor([4, 5]))),
    (r"lengths\[0\] is -1", lambda: ops.dense_scan(D(2, 4, 3, 3), lengths=torch.tensor([-1, 2]))),
    (r"lengths has dtype torch.float32", lambda: ops.dense_scan(D(4, 3, 3), lengths=D(()))),
    (r"tokens\[0, 0, 1\] is 2; A has 2 matrices.*0..1", lambda: ops.token_scan(D(2, 3, 3), None, tokens(0, 2))),
    (r"tokens\[0, 0, 0\] is -1", lambda: ops.token_scan(D(2, 3, 3), None, tokens(-1, 0))),
    (r"tokens has shape \(2,\); it needs at least 2", lambda: ops.token_scan(D(2, 3, 3), None, torch.tensor([0, 1]))),
    (r"tokens has dtype torch.float32", lambda: ops.token_scan(D(2, 3, 3), None, D(1, 4))),
    (r"b has shape \(3, 3\).*V=2, N=3", lambda: ops.token_scan(D(2, 3, 3), D(3, 3), tokens(0))),
    (r"weights has shape \(1, 4, 3\).*K=2", lambda: ops.mixture_scan(D(2, 3, 3), D(1, 4, 3), p=1.2)),
    (r"p is 0.5; .*at least 1", lambda: ops.mixture_scan(D(2, 3, 3), D(1, 4, 2), p=0.5)),
    (r"p is inf", lambda: ops.mixture_scan(D(2, 3, 3), D(1, 4, 2), p=float("inf"))),
    (r"p holds 0.5", lambda: ops.mixture_scan(D(2, 3, 3), D(1, 4, 2), p=torch.tensor(0.5))),
    (r"b has shape \(1, 5, 3\).*L=4", lambda: ops.mixture_scan(D(2, 3, 3), D(1, 4, 2), D(1, 5, 3), p=1.2)),
    (r"it needs at least 4 dimensions", lambda: ops.block_diagonal_scan(D(4, 3, 3))),
    (r"x0 has dtype torch.complex64", lambda: ops.diagonal_scan(D(4, 3), x0=D(3, dtype=torch.complex64))),
    (r"x has shape \(2,\)", lambda: ops.dense_step(D(3, 3), D(2))),
    (r"p is 0.9", lambda: ops.column_norm(D(3, 3), 0.9)),
    (r"A is a list; it must be a tensor", lambda: ops.dense_scan([1.0])),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message[:30] for message, _ in BAD])
def test_bad_input_raises_a_descriptive_error(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(SdssmError, match=message):
        call()


def test_the_reference_rejects_a_bad_token() -> None:
    with ops.use_backend("reference"), pytest.raises(ops.OpsError, match="tokens"):
        ops.token_scan(D(2, 3, 3), None, tokens(7))


def test_unchecked_accepts_valid_values() -> None:
    with ops.unchecked():
        ops.dense_scan(D(2, 4, 3, 3), lengths=torch.tensor([4, 2]))


def test_an_unknown_backend_suggests_the_nearest_name() -> None:
    with pytest.raises(ops.OpsError, match="did you mean 'triton'"), ops.use_backend("tritn"):
        pass


def test_triton_rejects_a_state_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ops.use_backend("triton"), pytest.raises(ops.OpsError, match="257 entries; .* at most 256"):
        ops.diagonal_scan(D(2, 257))


def test_triton_rejects_tensors_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with ops.use_backend("triton"), pytest.raises(ops.OpsError, match="on cpu"):
        ops.diagonal_scan(D(2, 3))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_check_finite_names_the_first_bad_step(backend: str) -> None:
    A = D(2, 9, 1, 1)
    A[1, 4] = float("inf")
    with ops.use_backend(backend):
        ops.dense_scan(A, x0=D(1))  # not checked by default
        with pytest.raises(ops.NonFiniteError, match=r"not finite from step 4 on.*row \(1,\)"):
            ops.dense_scan(A, x0=D(1), check_finite=True)
        A[1, 2] = 0
        with pytest.raises(ops.NonFiniteError, match="exactly zero from step 2"):
            ops.dense_scan(A, x0=D(1), check_finite=True)
        ops.dense_scan(A, x0=D(1), check_finite=True, lengths=torch.tensor([9, 2]))


def test_values_are_checked_again_after_blocks_of_several_threads() -> None:
    first, second = ops.unchecked(), ops.unchecked()
    first.__enter__()
    second.__enter__()  # of another thread, which leaves later
    first.__exit__(None, None, None)
    assert not can_read_values(torch.zeros(1))
    second.__exit__(None, None, None)
    assert can_read_values(torch.zeros(1))
