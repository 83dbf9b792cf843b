"""Measure the gain of each state and symbol at training lengths, and how fast the error of a state can grow."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdssm.automata.refinement import Floats
from sdssm.exact.measurement.cycle_means import find_heaviest_cycle
from sdssm.exact.measurement.word_matrices import is_matrix_product
from sdssm.models import Classifier, TokenModel
from sdssm.models.gains import log_gains
from sdssm.models.reading import reading_mode
from sdssm.tasks import Task

#: Strings of each length that are read, and the most lengths, up to the training length.
STRINGS, LENGTHS = 64, 12
#: The longest strings that are read.
LONGEST = 256
#: Limit on pairs of states times symbols: larger machines are not measured.
MOST_EDGES = 1 << 23
#: The relative rounding error of float32.
ROUNDING = 2.0**-24
#: Factors per symbol below this are not distinguished from 1: the directions of the states are averages.
SMALLEST_GROWTH = 1.0005
#: Symbols of a string that is shown.
MOST_SHOWN = 12


@dataclass(frozen=True, eq=False)
class MeasuredGains:
    """The gain of each state of a task's minimal machine with each symbol, and the growth of an error.

    A symbol multiplies the direction of a state by its gain. An error of a state points into the directions of other
    states, and a symbol multiplies it, in relation to the state, by the ratio of the two gains. `growth` is the
    greatest factor per symbol of such a ratio along any string that is repeated: exp of the greatest mean, over the
    cycles of pairs of different states, of the difference of log gains. It does not depend on the lengths of the
    vectors that represent the states. It is at least 1 if there is such a cycle: with the two states exchanged, the
    ratio is the inverse.

    Attributes:
        log_gains: (Q, V); NaN for states that strings of training length do not reach.
        growth: the greatest factor per symbol; None if every pair of states is merged by every long string.
        state, other: the string stays in the cycle of `state`, the error is in the direction of `other`.
        word: the symbols that are repeated.
        symbols: the names of all symbols, or None.
    """

    log_gains: Floats
    growth: float | None
    state: int | None = None
    other: int | None = None
    word: tuple[int, ...] = ()
    symbols: tuple[str, ...] | None = None

    @property
    def spread(self) -> float | None:
        """The root mean square, over the symbols, of the standard deviation of the log gain over the states.

        None if no state has a gain with every symbol.
        """
        known = self.log_gains[np.isfinite(self.log_gains).all(1)]
        return float(np.sqrt(known.var(0).mean())) if len(known) else None

    @property
    def rounding_length(self) -> float | None:
        """The symbols after which a rounding error of float32 is as large as the state; None if it never is."""
        if self.growth is None or self.growth < SMALLEST_GROWTH:
            return None
        return math.log(1 / ROUNDING) / math.log(self.growth)

    def describe(self) -> str:
        """Return the growth of an error in one line."""
        if self.spread is None:
            return "no gain is known: the model's state is 0, or not finite, after every string"
        spread = f"the log gain varies over the states by {self.spread:.2g} (standard deviation)"
        if self.growth is None:
            return f"{spread}; long strings merge every pair of states, so no error can last"
        if self.rounding_length is None:
            return f"{spread}; no error grows by more than {100 * (SMALLEST_GROWTH - 1):.2g} % a symbol"
        names = [str(k) if self.symbols is None else self.symbols[k] for k in self.word[:MOST_SHOWN]]
        word = " ".join(names) + (" ..." if len(self.word) > MOST_SHOWN else "")
        return (
            f"{spread}; an error can grow by {self.growth:.4g} a symbol (state {self.state}, towards {self.other}, "
            f"while {word} is repeated): float32 rounding becomes as large as the state in {self.rounding_length:,.0f} "
            "symbols"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the measurement as plain values."""
        return {
            "log_gains": [[None if math.isnan(gain) else gain for gain in row] for row in self.log_gains.tolist()],
            "spread": self.spread,
            "growth": self.growth,
            "state": self.state,
            "other": self.other,
            "word": list(self.word),
            "rounding_length": self.rounding_length,
        }


def measure_gains(model: TokenModel, task: Task, *, seed: int = 0) -> MeasuredGains | None:
    """Measure the gains of an SD-SSM on covering strings of at most its training length.

    Returns None for a model that has no gains (see `is_matrix_product`), and for machines with too many states.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> gains = measure_gains(compile("parity"), get_task("parity"))
    >>> gains.log_gains.round(6).tolist(), round(gains.growth, 4)
    ([[0.0, 0.0], [0.0, 0.0]], 1.0)
    """
    table = task.minimal.table
    if not is_matrix_product(model) or len(table) ** 2 * table.shape[1] > MOST_EDGES:
        return None
    directions = _mean_directions(model, task, seed)
    matrices = model.symbol_matrices()
    assert matrices is not None
    gains = log_gains(matrices.detach().cpu().double(), torch.from_numpy(directions)).T.numpy()
    return replace(growth_of_errors(table, gains), symbols=task.machine.symbols)


def growth_of_errors(table: NDArray[np.int64], gains: Floats) -> MeasuredGains:
    """Compute how fast errors can grow in a machine with the table (Q, V), from log gains (Q, V).

    >>> loops = np.array([[0, 1], [1, 1]])  # symbol 0 loops in both states, symbol 1 leads to state 1
    >>> result = growth_of_errors(loops, np.log([[0.5, 1.0], [0.6, 1.0]]))
    >>> round(result.growth, 4), result.state, result.other, result.word
    (1.2, 0, 1, (0,))
    """
    n = len(table)
    known = np.asarray(~np.isnan(gains).any(1))
    state, other = (part.reshape(-1) for part in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    after, other_after = table[state], table[other]  # (Q^2, V)
    lasts = known[after] & known[other_after] & (after != other_after)
    lasts &= ((state != other) & known[state] & known[other])[:, None]
    weights = np.where(lasts, gains[other] - gains[state], 0.0)
    cycle = find_heaviest_cycle(np.where(lasts, after * n + other_after, -1), weights)
    if cycle is None:
        return MeasuredGains(gains, None)
    return MeasuredGains(gains, math.exp(cycle.mean), int(state[cycle.node]), int(other[cycle.node]), cycle.edges)


def _mean_directions(model: Classifier, task: Task, seed: int) -> Floats:
    """Return the mean direction (Q, N) of the model's states in each state of the minimal machine; NaN if none.

    All prefixes of the strings count.
    """
    generator = torch.Generator().manual_seed(seed)
    table, start, _ = task.minimal
    longest = min(task.train_length, LONGEST)
    lengths = sorted({round(length) for length in np.linspace(1, longest, LENGTHS)})
    sums, counts = np.zeros((len(table), model.outputs)), np.zeros(len(table))
    with reading_mode(model):
        symbols = model.symbol_parts()._replace(skip=None)
        for length in filter(task.has_length, lengths):
            tokens = task.sample(STRINGS, length, generator=generator, sampling="covering").tokens
            states = model.mixers[0].mix_symbols(symbols, tokens.to(model.device))[0].double().cpu()
            directions = torch.nn.functional.normalize(states, dim=-1).numpy()  # (B, L, N)
            ends = np.full(len(tokens), start)
            for t, column in enumerate(tokens.numpy().T):
                ends = table[ends, column]
                np.add.at(sums, ends, directions[:, t])
                np.add.at(counts, ends, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts[:, None]
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))
