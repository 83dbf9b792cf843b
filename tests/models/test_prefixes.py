"""Features after prefixes of strings."""

from __future__ import annotations

import torch

from sdssm.models.prefixes import select_prefixes


def test_selection_copies_the_features_and_their_gradients() -> None:
    features = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ends = torch.tensor([[1, 5], [2, 2], [3, 4]])
    chosen = select_prefixes(features, ends)
    assert torch.equal(chosen, features.gather(1, (ends - 1)[..., None].expand(-1, -1, 2)))
    chosen.sum().backward()  # type: ignore[no-untyped-call]  # untyped in torch
    assert features.grad is not None and features.grad[..., 0].tolist() == [
        [1, 0, 0, 0, 1],
        [0, 2, 0, 0, 0],
        [0, 0, 1, 1, 0],
    ]
