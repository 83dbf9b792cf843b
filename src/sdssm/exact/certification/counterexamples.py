"""Looking for a string that a model gets wrong: random ones, and words said over and over, which drift the most."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sdssm.exact.certification.linear_system import DEAD, TrimMachine
from sdssm.models import Classifier
from sdssm.models.stack import State

#: Strings read together, of which half are repeated words of up to so many symbols; symbols of a piece.
STRINGS, LONGEST_WORD, PIECE = 256, 12, 64


def find_counterexample(
    model: Classifier, asked: TrimMachine, longest: int, generator: torch.Generator
) -> tuple[int, ...] | None:
    """The shortest such prefix among some hundreds of valid strings, as the model itself reads them, or None."""
    tokens, states = _strings(asked, longest, generator)
    labels = torch.tensor(asked.labels)[states]  # (B, L)
    device = model.readout.weight.device
    state: State = None
    with torch.inference_mode():
        for first in range(0, longest, PIECE):
            piece = tokens[:, first : first + PIECE]
            logits, state = model.advance(piece.to(device), state)
            wanted = labels[:, first : first + PIECE].to(device)
            wrong = (logits.argmax(-1) != wanted) & (wanted >= 0)
            if wrong.any():
                place = int(wrong.any(0).float().argmax())
                row = int(wrong[:, place].float().argmax())
                return tuple(tokens[row, : first + place + 1].tolist())
    return None


def _strings(asked: TrimMachine, longest: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Valid prefixes (B, L) and the machine's state after each symbol (B, L)."""
    count, n_symbols = STRINGS, asked.table.shape[1]
    wished = torch.randint(n_symbols, (count, longest), generator=generator)
    for row in range(count // 2):  # half of them say a word over and over
        word = wished[row, : 1 + row % min(LONGEST_WORD, longest)]
        wished[row] = word.repeat(longest // len(word) + 1)[:longest]
    table = asked.table
    choices = [np.flatnonzero(row != DEAD) for row in table]
    usable = np.array([len(row) for row in choices])
    nearest = np.stack(
        [row[np.arange(n_symbols) % len(row)] if len(row) else row.repeat(0) for row in choices if len(row)]
    )
    index = np.cumsum(usable > 0) - 1
    q, states, tokens = np.full(count, asked.start), [], []
    for wish in wished.T.numpy():
        if (usable[q] == 0).any():  # some valid strings end here
            break
        allowed = table[q, wish] != DEAD
        symbol = np.where(allowed, wish, nearest[index[q], wish])
        q = table[q, symbol]
        tokens.append(symbol)
        states.append(q)
    return torch.from_numpy(np.stack(tokens, 1)), torch.from_numpy(np.stack(states, 1))
