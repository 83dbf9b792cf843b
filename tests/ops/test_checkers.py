"""Tests of the comparisons: wrong results must fail them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm.ops import backend
from tests.ops.cases import KINDS, Case, assert_same, compare_with_reference, relative_error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [0, -1])
def test_a_wrong_gradient_is_detected(kind: str, which: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = backend.run

    def wrong(direction: str, *args: Any, **options: Any) -> Any:
        outputs = list(original(direction, *args, **options))
        if direction == "backward":
            outputs[which] = outputs[which] * (1 + 1e-8)  # the gradient of the first parameter, or of x0
        return tuple(outputs)

    fast = "cpu" if device == "cpu" else "triton"
    compare_with_reference(Case(kind, 5, 3), fast, "recurrent", device=device)
    monkeypatch.setattr(backend, "run", wrong)
    with pytest.raises(AssertionError, match="grad"):
        compare_with_reference(Case(kind, 5, 3), fast, "recurrent", device=device)


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
    expected = {"grad A": zero.double(), "grad b": large.double()}
    assert_same({"grad A": torch.tensor([1.6e-7]).double(), "grad b": expected["grad b"]}, expected, torch.float64)
    with pytest.raises(AssertionError, match="grad A"):
        assert_same({"grad A": torch.tensor([1e-5]).double(), "grad b": expected["grad b"]}, expected, torch.float64)


def test_tolerance_of_a_small_gradient_is_relative_to_itself() -> None:
    expected = {"grad A": torch.tensor([1e-5]).double(), "grad b": torch.tensor([1e4]).double()}
    with pytest.raises(AssertionError, match="grad A"):
        assert_same({**expected, "grad A": expected["grad A"] + 2e-12}, expected, torch.float64)
