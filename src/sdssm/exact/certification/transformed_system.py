"""How far a state can be from where the machine's state has its place, after any valid string: proved.

In the coordinates of `geometry` let c be the representative of a state q, phi its functional with phi c = 1, and
x = a (c + e), a > 0, phi e = 0. A word w from q to q' gives A_w x = a (lambda c' + r + A_w e) with
lambda = phi' A_w c and r = A_w c - lambda c', so that

    e' = (r + (A_w e - (phi' A_w e) c')) / (lambda + phi' A_w e).

The length of e is kept for the subspace and for the rest: e1 in the norm of q, e2 in the plain one. With norms n of
the blocks of A_w and eta of phi' A_w, every string obeys

    e1' <= (r1 + n11 e1 + n12 e2) / (lambda - eta1 e1 - eta2 e2),   e2' <= the same with r2, n21, n22.

A label is right while no such e turns the sign of (row of the label - row of another class) (c + e).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sdssm.exact.certification.ball_arithmetic import (
    U32,
    U64,
    Floats,
    MatrixBall,
    frobenius_norm,
    gamma,
    inverse_error,
    round_up,
    spectral_norm,
    vector_norm,
)
from sdssm.exact.certification.coordinates import Coordinates
from sdssm.exact.certification.error_recurrence import ErrorRecurrence
from sdssm.exact.certification.linear_system import DEAD, Ints, LinearSystem

#: Matrices of edges in memory at a time, in numbers.
MOST_NUMBERS = 1 << 22


@dataclass(frozen=True, eq=False)
class TransformedSystem:
    """A system in the coordinates of a geometry, with what is rounded on the way there."""

    system: LinearSystem
    geometry: Coordinates
    A: MatrixBall  # (V, N, N), each divided by its factor: a positive scale changes no label
    x0: MatrixBall  # (N, 1)
    rows: Floats  # (C, N)
    off: Floats  # (C,)
    coarse: Floats  # (C,): at least |coarse back|, for float32
    abrasion: float  #: at least |into| |A| |back|, divided by the factor: what one rounded step may add, times `unit`
    worn: Floats  # (N, N): at least |into| |A|, divided by the factor, of every symbol
    lack: float  #: at most so much of a vector is lost on the way back

    @classmethod
    def of(cls, system: LinearSystem, geometry: Coordinates) -> TransformedSystem | None:
        """None where the coordinates cannot be turned back to within half."""
        into, back = MatrixBall.exactly(geometry.into), MatrixBall.exactly(geometry.back)
        lack = inverse_error(geometry.into, geometry.back)
        if not lack < 0.5:
            return None
        lost = round_up(lack / (1 - lack))
        moved = into @ MatrixBall.exactly(system.A) @ back
        moved = MatrixBall(moved.mid, round_up(moved.rad + moved.size() * lost)).over(
            geometry.factors, geometry.factors
        )
        rows = MatrixBall(system.rows[:, None], system.off) @ back
        worn = np.abs(geometry.into) @ np.abs(system.A) / geometry.factors[:, None, None]
        whole = round_up(worn @ np.abs(geometry.back), 4 * worn.shape[-1])
        return cls(
            system=system,
            geometry=geometry,
            A=moved,
            x0=into @ MatrixBall.exactly(system.x0[:, None]),
            rows=rows.mid[:, 0],
            off=round_up(rows.rad + rows.size() * lost),
            coarse=round_up(vector_norm(system.coarse @ np.abs(geometry.back)) / (1 - lack), 200),
            abrasion=float(round_up(spectral_norm(whole) / (1 - lack)).max()),
            worn=round_up(worn.max(0), 4 * worn.shape[-1]),
            lack=float(lost),
        )

    @property
    def unit(self) -> float:
        """The relative error of one step in float32: a product of N terms, and the rescaling."""
        return gamma(self.A.mid.shape[-1] + 8, U32)

    # -- of each of the machine's states -----------------------------------------------------------------------------

    @cached_property
    def _scales(self) -> MatrixBall:
        """phi divided by phi c: (Q, 1, d)."""
        geometry = self.geometry
        phi = MatrixBall.exactly(geometry.scales[:, None])
        at = phi @ MatrixBall.exactly(self._main[:, :, None])
        near = at.mid[:, 0, 0]
        least = near - round_up(at.rad) * 2
        usable = least > 0
        found = phi.over(np.where(usable, least, 1.0), np.where(usable, near, 1.0))
        return MatrixBall(found.mid, np.where(usable, found.rad, np.inf))

    @property
    def _main(self) -> Floats:
        return self.geometry.centres[:, : self.geometry.dimension]

    @cached_property
    def _flat(self) -> MatrixBall:
        """I - c phi on the subspace: (Q, d, d)."""
        d = self.geometry.dimension
        eye = MatrixBall.exactly(np.broadcast_to(np.eye(d), (len(self._main), d, d)))
        return eye - MatrixBall.exactly(self._main[:, :, None]) @ self._scales

    @cached_property
    def after(self) -> MatrixBall:
        """From plain to the norm of q, along the representative nothing: (Q, d, d)."""
        return MatrixBall.exactly(self.geometry.metrics) @ self._flat

    @cached_property
    def before(self) -> MatrixBall:
        """From the norm of q to plain, for errors with phi e = 0: (Q, d, d)."""
        metrics = self.geometry.metrics
        inverse: Floats = np.linalg.inv(metrics).astype(np.float64)
        lack = inverse_error(metrics, inverse)
        found = self._flat @ MatrixBall.exactly(inverse)
        rad = np.where(lack < 0.5, round_up(found.rad + found.size() * lack / np.maximum(1 - lack, 0.5)), np.inf)
        return MatrixBall(found.mid, rad)

    @cached_property
    def sizes(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Of each state: norms of `after`, `before`, phi, c, and the rest of c; each (Q,)."""
        d, centres = self.geometry.dimension, self.geometry.centres
        return (
            self.after.norm(),
            self.before.norm(),
            self._scales.size(),
            vector_norm(centres),
            vector_norm(centres[:, d:]),
        )

    # -- of words ----------------------------------------------------------------------------------------------------

    def words(self, m: int) -> tuple[MatrixBall, list[float]]:
        """The matrices of all words of m symbols, the last symbol counting most, and the greatest norm at each length
        below m."""
        n = self.A.mid.shape[-1]
        found, norms = MatrixBall.exactly(np.eye(n)[None]), [1.0]
        step = self.A.norm()[:, None]
        for k in range(m):
            if k:
                norms.append(float(found.norm().max()))
            left, right = self.A.mid[:, None], found.mid[None]
            sizes = frobenius_norm(left), frobenius_norm(right)
            # Spectral norms carry an error on; Frobenius norms bound only the new one.
            rad = step * found.rad[None] + self.A.rad[:, None] * (sizes[1] + found.rad[None])
            rad = round_up(rad + gamma(n) * sizes[0] * sizes[1])
            found = MatrixBall((left @ right).reshape(-1, n, n), rad.reshape(-1))
        return found, norms

    def steps(self, m: int, *, rounded: bool) -> ErrorRecurrence:
        """The numbers of the inequality above for words of m symbols, the largest for each pair of states."""
        asked, d = self.system.asked, self.geometry.dimension
        words, norms = self.words(m)
        table = np.arange(len(asked.table))[:, None]
        for _ in range(m):
            ahead = asked.table[table.clip(0)].transpose(0, 2, 1)  # (Q, V, W)
            table = np.where(table[:, None] == DEAD, DEAD, ahead).reshape(len(table), -1)
        here, word = np.nonzero(table != DEAD)
        there = table[here, word]
        fixed, wear = self._wear(m, norms) if rounded else (0.0, 0.0)
        lead, r1, r2 = self._residuals(words, here, word, there)
        n11, eta1 = self._turned(words[:, :d, :d], here, word, there)
        n12, n21, n22 = (words[at].norm()[word] for at in _blocks(d))
        after, before, phi, _, rest = self.sizes
        out = {
            "r1": r1 + after[there] * fixed,
            "r2": r2 + (1 + rest[there] * phi[there]) * fixed,
            "n11": n11 + after[there] * wear * before[here],
            "n12": after[there] * (n12 + wear),
            "n21": n21 * before[here] + rest[there] * eta1 + (1 + rest[there] * phi[there]) * wear * before[here],
            "n22": n22 + rest[there] * phi[there] * n12 + (1 + rest[there] * phi[there]) * wear,
            "eta1": eta1 + phi[there] * wear * before[here],
            "eta2": phi[there] * (n12 + wear),
        }
        lead = lead - round_up(phi[there] * fixed)
        pair = here * len(asked.table) + there
        kept, group = np.unique(pair, return_inverse=True)
        most = {}
        for name, value in out.items():
            value = np.where(lead > 0, round_up(value, 12) / np.where(lead > 0, lead, 1), np.inf)
            largest = np.zeros(len(kept))
            np.maximum.at(largest, group, np.where(np.isnan(value), np.inf, round_up(value)))
            most[name] = largest
        return ErrorRecurrence(m, len(asked.table), kept // len(asked.table), kept % len(asked.table), **most)

    def worn_by(self, x: Floats, off: Floats) -> float:
        """What rounding one step from states x (B, N), known to within `off` (B,), adds at most, divided by `unit`."""
        n = x.shape[-1]
        direct = vector_norm(np.abs(x @ self.geometry.back.T) @ self.worn.T)
        # What `direct` leaves out is as small as float64's rounding, however much it is then magnified.
        return float(
            round_up(direct + self.abrasion * (off + (self.lack + gamma(4 * n)) * vector_norm(x)), 4 * n).max()
        )

    def _wear(self, m: int, norms: list[float]) -> tuple[float, float]:
        """What rounding m steps in float32 adds at most: to a representative, and to an error for each unit of it."""
        asked, A = self.system.asked, self.A
        x, off = self.geometry.centres, np.zeros(len(self.geometry.centres))
        at = np.arange(len(x))
        slip = round_up(A.rad + gamma(A.mid.shape[-1]) * frobenius_norm(A.mid))
        sizes = A.norm()
        worn = []
        for _ in range(m):
            worn.append(self.worn_by(x, off))
            ahead = asked.table[at]  # (B, V)
            row, symbol = np.nonzero(ahead != DEAD)
            off = round_up(sizes[symbol] * off[row] + slip[symbol] * (vector_norm(x) + off)[row])
            x = (x @ np.swapaxes(A.mid, 1, 2))[symbol, row]
            at = ahead[row, symbol]
        return self.worn_after(worn, norms), self.worn_after([self.abrasion * norm for norm in norms[:m]], norms)

    def worn_after(self, worn: list[float], norms: list[float]) -> float:
        """What rounding has added after len(worn) steps that would each add `unit` times so much to exact states."""
        total = [0.0]
        for k in range(1, len(worn) + 1):
            total.append(self.unit * sum(norms[k - 1 - i] * (worn[i] + self.abrasion * total[i]) for i in range(k)))
        return float(round_up(total[-1], 8 * len(worn) + 8))

    def leading(self) -> Floats:
        """At most lambda for each step of one symbol, as in `asked.edges`: (E,)."""
        here, symbol, there = self.system.asked.edges
        return self._residuals(self.A, here, symbol, there)[0]

    def _residuals(self, words: MatrixBall, here: Ints, word: Ints, there: Ints) -> tuple[Floats, Floats, Floats]:
        """At most lambda, at least r1 and r2: (E,) each."""
        centres, d, n = self.geometry.centres, self.geometry.dimension, self.A.mid.shape[-1]
        v = np.swapaxes(words.mid @ centres.T, 1, 2)[word, here]  # (E, N)
        _, _, phi, centre, _ = self.sizes
        off = round_up((words.rad + gamma(n) * frobenius_norm(words.mid))[word] * centre[here])
        scales = self._scales
        size = vector_norm(v)
        lead = (scales.mid[there, 0] * v[:, :d]).sum(1)
        loose = round_up(phi[there] * off + scales.rad[there] * (size + off) + gamma(d + 1) * phi[there] * size)
        r = v - lead[:, None] * centres[there]
        off = round_up(off + loose * centre[there] + 32 * U64 * (size + np.abs(lead) * centre[there]))
        metrics = self.geometry.metrics
        turned = np.einsum("eij,ej->ei", metrics[there], r[:, :d])
        stretch = frobenius_norm(metrics)[there]
        r1 = round_up(vector_norm(turned) + stretch * (off + gamma(d + 1) * vector_norm(r[:, :d])))
        return lead - round_up(loose), r1, round_up(vector_norm(r[:, d:]) + off)

    def _turned(self, main: MatrixBall, here: Ints, word: Ints, there: Ints) -> tuple[Floats, Floats]:
        """n11 and eta1: (E,) each."""
        d = self.geometry.dimension
        n11, eta1 = np.empty(len(here)), np.empty(len(here))
        chunk = max(1, MOST_NUMBERS // max(d * d, 1))
        for first in range(0, len(here), chunk):
            at = slice(first, first + chunk)
            inner = main[word[at]] @ self.before[here[at]]
            n11[at] = (self.after[there[at]] @ inner).norm()
            eta1[at] = (self._scales[there[at]] @ inner).size()
        return n11, eta1

    # -- of the readout ----------------------------------------------------------------------------------------------

    @cached_property
    def leads(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of each state and class: the lead of the right class at c, at least, what e1 and e2 can take from it, and
        what float32 can, for each unit of length: (Q, C) each. The right class itself, and states after which nothing
        is asked, have an infinite lead."""
        labels, centres = self.system.asked.labels, self.geometry.centres
        d, n = self.geometry.dimension, centres.shape[1]
        _, _, _, centre, _ = self.sizes
        shape = len(centres), len(self.rows)
        lead, first, second, slack = (np.empty(shape) for _ in range(4))
        for q, label in enumerate(labels.clip(0)):
            apart = self.rows[label] - self.rows  # (C, N)
            off = round_up(
                self.off[label] + self.off + 2 * gamma(2) * (vector_norm(self.rows[label]) + vector_norm(self.rows))
            )
            lead[q] = apart @ centres[q] - round_up((off + gamma(n + 1) * vector_norm(apart)) * centre[q])
            turned = MatrixBall(apart[:, None, :d], off) @ self.before[[q]]
            first[q] = turned.size()
            second[q] = round_up(vector_norm(apart[:, d:]) + off)
            slack[q] = round_up(self.system.rounding * (self.coarse[label] + self.coarse))
            lead[q, label] = np.inf
        lead[labels < 0] = np.inf
        return lead, first, second, slack

    def right(self, e1: Floats, e2: Floats, *, rounded: bool) -> np.ndarray:
        """Whether every state within e1 and e2 (Q,) of the representatives has the right label: (Q,)."""
        lead, first, second, slack = self.leads
        _, before, _, centre, _ = self.sizes
        taken = first * e1[:, None] + second * e2[:, None]
        if rounded:
            taken = taken + slack * (centre + before * e1 + e2)[:, None]
        return np.asarray((lead > round_up(taken)).all(1))

    @cached_property
    def margin(self) -> float:
        """How far a state may at least be from its representative, in the subspace and in the rest alike."""
        lead, first, second, _ = self.leads
        again = np.isin(np.arange(len(lead)), self.system.asked.table)  # the start may be nowhere but there
        lead = np.where(again[:, None], lead, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.nanmin(np.where(np.isinf(lead), np.inf, lead / (first + second))))


def _blocks(d: int) -> list[tuple[slice, slice, slice]]:
    every, main, rest = slice(None), slice(0, d), slice(d, None)
    return [(every, main, rest), (every, rest, main), (every, rest, rest)]
