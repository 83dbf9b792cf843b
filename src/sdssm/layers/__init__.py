"""Sequence mixers: (..., L, D) -> (..., L, N), each with a state that can be carried and a single step."""

from sdssm.layers.selective_dense import SelectiveDense, SelectiveDenseSettings

__all__ = ["SelectiveDense", "SelectiveDenseSettings"]
