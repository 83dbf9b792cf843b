"""The checkers are checked: what is wrong must fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm.ops import backend
from tests.ops.cases import KINDS, Case, assert_same, face_reference, relative_error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [0, -1])
def test_a_wrong_gradient_is_detected(kind: str, which: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = backend.run

    def wrong(direction: str, *args: Any, **options: Any) -> Any:
        found = list(right(direction, *args, **options))
        if direction == "backward":
            found[which] = found[which] * (1 + 1e-8)  # of the first parameter, or of x0
        return tuple(found)

    chosen = "cpu" if device == "cpu" else "triton"
    face_reference(Case(kind, 5, 3), chosen, "recurrent", device=device)
    monkeypatch.setattr(backend, "run", wrong)
    with pytest.raises(AssertionError, match="grad"):
        face_reference(Case(kind, 5, 3), chosen, "recurrent", device=device)


def test_nan_is_an_infinite_error() -> None:
    nan = torch.tensor([1.0, float("nan")])
    assert relative_error(nan, torch.ones(2)) == float("inf")


@pytest.mark.usefixtures("poisoned_memory")
def test_new_memory_is_filled_with_nan() -> None:
    assert torch.empty(3).isnan().all()
    assert torch.ones(3).new_empty(2).isnan().all()
    assert torch.empty_like(torch.ones(3)).isnan().all()


def test_tolerance_of_a_gradient_that_is_zero_in_theory() -> None:
    zero, large = torch.tensor([1e-13]), torch.tensor([1e4])
    wanted = {"grad A": zero.double(), "grad b": large.double()}
    assert_same({"grad A": torch.tensor([1.6e-7]).double(), "grad b": wanted["grad b"]}, wanted, torch.float64)
    with pytest.raises(AssertionError, match="grad A"):
        assert_same({"grad A": torch.tensor([1e-5]).double(), "grad b": wanted["grad b"]}, wanted, torch.float64)


def test_tolerance_of_a_small_gradient_is_relative_to_itself() -> None:
    wanted = {"grad A": torch.tensor([1e-5]).double(), "grad b": torch.tensor([1e4]).double()}
    with pytest.raises(AssertionError, match="grad A"):
        assert_same({**wanted, "grad A": wanted["grad A"] + 2e-12}, wanted, torch.float64)
