"""The Triton kernels against the reference without a GPU, in Triton's interpreter.

Triton decides when it is imported whether its kernels are interpreted, so these cases run in a process of their own:
without TRITON_INTERPRET=1 this file starts pytest on itself with the variable set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from sdssm import ops
from tests.ops.cases import KINDS, Case, face_reference

pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1")

#: Lengths below, at and above a chunk of 16; sizes that are padded and that are not.
SHAPES: list[tuple[int, int, dict[str, Any]]] = [
    (1, 1, {"b": True}),
    (16, 4, {"b": True, "x0": False, "lengths": True}),
    (33, 3, {"rescale": True, "lengths": True}),
    (37, 6, {"b": True, "lengths": True}),
]
CASES = [Case(kind, L, N, **options) for kind in KINDS for L, N, options in SHAPES]


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
@pytest.mark.timeout(1200)
def test_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@inside
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_faces_the_reference(case: Case, mode: str) -> None:
    face_reference(case, "triton", mode)


@inside
@pytest.mark.parametrize("through", ["states", "final"])
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
def test_one_output_alone(mode: str, through: str) -> None:
    face_reference(Case("token", 20, 3, b=True, lengths=True), "triton", mode, through=through)


@inside
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
def test_a_block_large_enough_for_a_matrix_product(mode: str) -> None:
    face_reference(Case("dense", 20, 17, rescale=True, lead=(1,)), "triton", mode)
    face_reference(Case("dense", 20, 65, b=True, lead=(1,)), "triton", mode)


@inside
@pytest.mark.parametrize("p", [1.0, 2.0, 9.0, None])
def test_mixture_at_every_p(p: float | None) -> None:
    face_reference(Case("mixture", 5, 3, p=p), "triton", "recurrent")


@inside
def test_many_symbols_are_sorted() -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(20, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(20, (2, 9), generator=generator)

    def gradient(backend: str) -> Any:
        with ops.use_backend(backend):
            states, _ = ops.token_scan(A, None, tokens, x0=torch.ones(3, dtype=torch.float64))
            return torch.autograd.grad(states.square().sum(), A)[0]

    torch.testing.assert_close(gradient("triton"), gradient("reference"))
