"""The checkers are checked: what is wrong must fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm.ops import backend
from tests.ops.cases import KINDS, Case, face_reference, relative_error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [0, -1])
def test_a_planted_wrong_gradient_fails_the_comparison(
    kind: str, which: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_fresh_memory_is_poisoned() -> None:
    assert torch.empty(3).isnan().all()
    assert torch.ones(3).new_empty(2).isnan().all()
    assert torch.empty_like(torch.ones(3)).isnan().all()
