"""A token scan over the 0/1 matrices of a machine computes its states: a law for any transition table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdssm import ops


def matrices_of(table: NDArray[np.int64]) -> Tensor:
    """Return matrices A[v] that map e_q to e_table[q, v]: table (Q, V) -> (V, Q, Q)."""
    states, symbols = table.shape
    A = torch.zeros(symbols, states, states)
    for state in range(states):
        for symbol in range(symbols):
            A[symbol, table[state, symbol], state] = 1
    return A


def labels_of(
    table: NDArray[np.int64], start: int, outputs: Sequence[int], tokens: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the output after every prefix: tokens (B, L) -> (B, L)."""
    labels = np.empty_like(tokens)
    state = np.full(len(tokens), start)
    for t in range(tokens.shape[1]):
        state = table[state, tokens[:, t]]
        labels[:, t] = np.asarray(outputs)[state]
    return labels


def assert_scan_gives_labels(
    table: NDArray[np.int64],
    start: int,
    outputs: Sequence[int],
    *,
    length: int,
    mode: str,
    rows: int = 2,
    rescale: bool = False,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Scan random strings with the matrices of a machine and compare with its labels at every prefix, exactly."""
    states, symbols = table.shape
    tokens = np.random.default_rng(seed).integers(0, symbols, size=(rows, length))
    x0 = torch.nn.functional.one_hot(torch.tensor(start), states).float().to(device)
    scanned, final = ops.token_scan(
        matrices_of(table).to(device), None, torch.from_numpy(tokens).to(device), x0, rescale=rescale, mode=mode
    )
    labels = labels_of(table, start, outputs, tokens)
    assert ((scanned == 0) | (scanned == 1)).all(), "a state is not one-hot"
    assert torch.equal(final, scanned[:, -1])
    assert (np.asarray(outputs)[scanned.argmax(-1).cpu().numpy()] == labels).all()
    assert (np.asarray(outputs)[final.argmax(-1).cpu().numpy()] == labels[:, -1]).all()


def random_table(states: int, symbols: int, *, seed: int) -> tuple[NDArray[np.int64], list[int]]:
    """Return a random machine: transition table (Q, V) and outputs."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, states, size=(states, symbols)), rng.integers(0, 2, size=states).tolist()
