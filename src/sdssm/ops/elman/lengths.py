"""Rows of different lengths in a batch (R, B, L, N) on the CPU, for the Elman and LSTM scans."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.layout import merge_replicas
from sdssm.ops.transitions import final_state, is_past_length


def longest_length(lengths: Tensor | None, length: int) -> int:
    """Return the length of the longest row."""
    return length if lengths is None else int(lengths.max())


def past_end_mask(lengths: Tensor, length: int) -> Tensor:
    """Return a mask of the steps past the end of their row: (R, B) -> (R, B, L, 1)."""
    return is_past_length(lengths, length)[..., None]


def last_states(states: Tensor, x0: Tensor | None, lengths: Tensor | None) -> Tensor:
    """Return the state at the end of each row, x0 for a row of length 0: (R, B, L, N) -> (R, B, N)."""
    return final_state(*merge_replicas(states, x0, lengths)).view(*states.shape[:2], -1)
