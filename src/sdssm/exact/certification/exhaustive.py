"""Every valid string, while they are few enough to look at: what is said of each, and how far its state has gone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.exact.certification.ball_arithmetic import U64, Floats, frobenius_norm, gamma, round_up, vector_norm
from sdssm.exact.certification.linear_system import DEAD, Ints
from sdssm.exact.certification.transformed_system import TransformedSystem

#: Strings followed together.
TOGETHER = 1 << 13


@dataclass(eq=False)
class ExhaustiveResult:
    """What all valid strings of each length 0, 1, .. up to some length showed.

    `errors[t]` (Q, 2) bounds e1 and e2 of the strings of length t in each state, -1 where there is none; `right[t]`
    says whether every label after t symbols is proved right. `wrong` is a string that is told wrong, for certain.
    """

    errors: list[Floats]
    right: list[bool]
    wrong: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """The length up to which every valid string was looked at and is told right."""
        first = next((t for t, right in enumerate(self.right) if not right), len(self.right))
        return first - 1


def affordable_length(frame: TransformedSystem, strings: int) -> int:
    """The greatest length of which all valid strings, and all their prefixes, are not more than so many."""
    table = frame.system.asked.table
    counts = np.zeros(len(table), dtype=object)
    counts[frame.system.asked.start] = 1
    total, reached = 0, 0
    while True:
        new = np.zeros(len(table), dtype=object)
        for symbol in range(table.shape[1]):
            alive = table[:, symbol] != DEAD
            np.add.at(new, table[alive, symbol], counts[alive])
        total += sum(new)
        if total > strings or reached >= 64 or not sum(new):
            return reached
        counts, reached = new, reached + 1


@dataclass(eq=False)
class ExhaustiveSearch:
    """Depth first in bundles of strings: what they share is computed once.

    What holds in exact arithmetic and what holds with float32 rounding is found side by side.
    """

    frame: TransformedSystem
    longest: int
    norms: list[float]  # the greatest norm of a word of each length below `longest`, for what rounding adds

    def __post_init__(self) -> None:
        n_states = len(self.frame.system.asked.table)
        self._ends = dict.fromkeys((False, True), self.longest)
        self.found = {
            rounded: ExhaustiveResult(
                [np.full((n_states, 2), -1.0) for _ in range(self.longest + 1)], [True] * (self.longest + 1)
            )
            for rounded in self._ends
        }
        A = self.frame.A
        self._sizes = A.norm(), round_up(A.rad + gamma(A.mid.shape[-1]) * frobenius_norm(A.mid))

    def run(self) -> dict[bool, ExhaustiveResult]:
        """All of them: in exact arithmetic (False) and with rounding (True)."""
        frame = self.frame
        x, start = frame.x0.mid.T, np.array([frame.system.asked.start])
        off = np.reshape(frame.x0.rad, 1)
        self._go(x, off, start, np.zeros((1, 0), dtype=np.int64), [])
        for rounded, end in self._ends.items():  # past a label that is not proved nothing was looked at in full
            del self.found[rounded].errors[end + 1 :], self.found[rounded].right[end + 1 :]
        return self.found

    def _go(self, x: Floats, off: Floats, states: Ints, strings: Ints, worn: list[float]) -> None:
        """x (B, N) known to within `off` (B,), the machine's states (B,), the strings (B, t), and what rounding each
        step so far adds at most."""
        self._look(x, off, states, strings, worn)
        if strings.shape[1] >= max(self._ends.values()):
            return
        norms, slips = self._sizes
        parts = []
        for symbol, matrix in enumerate(self.frame.A.mid):
            ahead = self.frame.system.asked.table[states, symbol]
            alive = ahead != DEAD
            if not alive.any():
                continue
            before = x[alive]
            new = round_up(norms[symbol] * off[alive] + slips[symbol] * (vector_norm(before) + off[alive]))
            spelt = np.concatenate([strings[alive], np.full((len(before), 1), symbol)], axis=1)
            parts.append((before @ matrix.T, new, ahead[alive], spelt))
        if not parts:
            return
        worn = [*worn, self.frame.worn_by(x, off)]
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        for first in range(0, len(joined[0]), TOGETHER):
            a, b, c, d = (column[first : first + TOGETHER] for column in joined)
            self._go(a, b, c, d, worn)

    def _look(self, x: Floats, off: Floats, states: Ints, strings: Ints, worn: list[float]) -> None:
        """Labels and errors of strings that all have the same length.

        x = f (c + e) for any f > 0 and the e that is left; then the part of e along c is taken out, as in `bounds`.
        """
        frame, place = self.frame, strings.shape[1]
        d = frame.geometry.dimension
        after, _, phi, centre, rest = (value[states] for value in frame.sizes)
        scales, own = frame.geometry.scales[states], frame.geometry.centres[states]
        at = (scales * own[:, :d]).sum(1)
        factor = (scales * x[:, :d]).sum(1) / at
        usable = (factor > 0) & np.isfinite(factor)
        factor = np.where(usable, factor, 1)
        e = x / factor[:, None] - own
        main = np.einsum("bij,bj->bi", frame.after.mid[states], e[:, :d])
        size = vector_norm(e[:, :d])
        moved = round_up((frame.after.rad[states] + gamma(d + 1) * frobenius_norm(frame.after.mid)[states]) * size)
        # `at` is rounded too, the more so the less phi and c point the same way.
        along = round_up(np.abs((scales * e[:, :d]).sum(1) / at) + gamma(3 * d + 16) * phi * size * (1 + phi * centre))
        rounding = 8 * U64 * (vector_norm(x) / factor + centre)
        for rounded, end in self._ends.items():
            if place > end:
                continue
            known = round_up(off + self.frame.worn_after(worn, self.norms)) if rounded else off
            if place:
                self._labels(x, known, states, strings, rounded)
            slip = round_up(known / factor + rounding)
            aside = round_up(along + phi * slip)
            good = usable & (aside < 1)
            left = np.where(good, 1 - aside, 1)
            e1 = round_up(vector_norm(main) + moved + after * slip) / left
            e2 = round_up(vector_norm(e[:, d:]) + slip + rest * aside) / left
            for column, value in enumerate((e1, e2)):
                np.maximum.at(
                    self.found[rounded].errors[place][:, column], states, np.where(good, round_up(value), np.inf)
                )

    def _labels(self, x: Floats, off: Floats, states: Ints, strings: Ints, rounded: bool) -> None:
        frame, labels, place = self.frame, self.frame.system.asked.labels[states], strings.shape[1]
        asked = np.flatnonzero(labels >= 0)
        if not len(asked) or len(frame.rows) == 1:
            return
        x, off, labels = x[asked], off[asked], labels[asked]
        logits, rows, widest = x @ frame.rows.T, np.arange(len(x)), vector_norm(frame.rows).max()
        size = round_up(vector_norm(x) + off)
        spare = round_up(widest * off + (frame.off.max() + gamma(x.shape[1] + 4) * widest) * size)
        if rounded:
            spare = round_up(spare + frame.system.rounding * frame.coarse.max() * size)
        own = logits[rows, labels].copy()
        logits[rows, labels] = -np.inf
        gap = own - logits.max(1)
        if (gap > 2 * round_up(spare)).all():
            return
        self.found[rounded].right[place] = False
        self._ends[rounded] = min(self._ends[rounded], place)
        surely = np.flatnonzero(gap < -2 * round_up(spare))
        wrong = self.found[rounded].wrong
        if len(surely) and (wrong is None or len(wrong) > place):
            self.found[rounded].wrong = tuple(strings[asked[surely[0]]].tolist())
