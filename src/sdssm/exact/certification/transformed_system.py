"""Rigorous bounds on the distance of the model's state from its representative, after any string.

In the coordinates of `coordinates` let c be the representative of a machine state q and phi its functional, phi c = 1.
Write a state of the model as x = a (c + e) with a > 0 and phi e = 0. A word w from q to q' gives
A_w x = a (lambda c' + r + A_w e) with lambda = phi' A_w c and r = A_w c - lambda c', so that

    e' = (r + (A_w e - (phi' A_w e) c')) / (lambda + phi' A_w e).

The norm of e is bounded separately in the subspace, by e1 in the norm of q, and in the complement, by e2 in the
standard norm. With the norms n of the blocks of A_w and eta of phi' A_w, every string satisfies

    e1' <= (r1 + n11 e1 + n12 e2) / (lambda - eta1 e1 - eta2 e2),   e2' <= the same with r2, n21, n22.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.ball_arithmetic import (
    U32,
    U64,
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
from sdssm.exact.certification.linear_system import LinearSystem
from sdssm.exact.certification.trim_machine import DEAD
from sdssm.exact.watch import UNWATCHED, Watch

#: Limit on the numbers in memory at a time for the matrices of the machine's transitions.
MOST_NUMBERS = 1 << 22


class StateNorms(NamedTuple):
    """Upper bounds for each machine state: (Q,) each."""

    to_metric: Floats
    from_metric: Floats
    functional: Floats
    centre: Floats
    complement: Floats  #: the part of the representative outside the subspace


@dataclass(frozen=True, eq=False)
class TransformedSystem:
    """A linear system in new coordinates, with bounds on the rounding errors of changing them."""

    system: LinearSystem
    coordinates: Coordinates
    A: MatrixBall  # (V, N, N), each divided by its factor: a positive scale changes no label
    x0: MatrixBall  # (N, 1)
    rows: Floats  # (R, N)
    row_errors: Floats  # (R,)
    row_magnitudes: Floats  # (R,): at least |row_magnitudes backward|, for float32
    #: At least |forward| |A| |backward| over the factor. Times `step_unit` it bounds the rounding of one step.
    step_rounding: float
    rounding_matrix: Floats  # (N, N): at least |forward| |A| over the factor, for every symbol
    backward_error: float  #: upper bound on the relative error of a vector that is transformed back
    watch: Watch = UNWATCHED

    @classmethod
    def build(
        cls, system: LinearSystem, coordinates: Coordinates, watch: Watch = UNWATCHED
    ) -> TransformedSystem | None:
        """Transform a system, or return None if `backward` inverts `forward` too inaccurately."""
        forward, backward = MatrixBall.exact(coordinates.forward), MatrixBall.exact(coordinates.backward)
        error = inverse_error(coordinates.forward, coordinates.backward)
        if not error < 0.5:
            return None
        relative = round_up(error / (1 - error))
        A = forward @ MatrixBall.exact(system.A) @ backward
        A = MatrixBall(A.centre, round_up(A.radius + A.frobenius_norm() * relative))
        A = A.divide(coordinates.factors, coordinates.factors)
        rows = MatrixBall(system.rows[:, None], system.row_errors) @ backward
        magnitudes = np.abs(coordinates.forward) @ np.abs(system.A) / coordinates.factors[:, None, None]
        both_sides = round_up(magnitudes @ np.abs(coordinates.backward), 4 * magnitudes.shape[-1])
        row_magnitudes = vector_norm(system.row_magnitudes @ np.abs(coordinates.backward))
        return cls(
            system=system,
            coordinates=coordinates,
            A=A,
            x0=forward @ MatrixBall.exact(system.x0[:, None]),
            rows=rows.centre[:, 0],
            row_errors=round_up(rows.radius + rows.frobenius_norm() * relative),
            row_magnitudes=round_up(row_magnitudes / (1 - error), 200),
            step_rounding=float(round_up(spectral_norm(both_sides) / (1 - error)).max()),
            rounding_matrix=round_up(magnitudes.max(0), 4 * magnitudes.shape[-1]),
            backward_error=float(relative),
            watch=watch,
        )

    @property
    def step_unit(self) -> float:
        """The relative error of one step in float32: a product of N terms, and the rescaling."""
        return gamma(self.A.centre.shape[-1] + 8, U32)

    # -- for each state of the machine -------------------------------------------------------------------------------

    @cached_property
    def _unit_functionals(self) -> MatrixBall:
        """phi divided by phi c: (Q, 1, d)."""
        phi = MatrixBall.exact(self.coordinates.functionals[:, None])
        product = phi @ MatrixBall.exact(self._subspace_centres[:, :, None])
        approximate = product.centre[:, 0, 0]
        lower = approximate - round_up(product.radius) * 2
        positive = lower > 0
        unit = phi.divide(np.where(positive, lower, 1.0), np.where(positive, approximate, 1.0))
        return MatrixBall(unit.centre, np.where(positive, unit.radius, np.inf))

    @property
    def _subspace_centres(self) -> Floats:
        return self.coordinates.centres[:, : self.coordinates.dimension]

    @cached_property
    def _off_centre(self) -> MatrixBall:
        """The projection I - c phi on the subspace: (Q, d, d)."""
        d = self.coordinates.dimension
        identity = MatrixBall.exact(np.broadcast_to(np.eye(d), (len(self._subspace_centres), d, d)))
        return identity - MatrixBall.exact(self._subspace_centres[:, :, None]) @ self._unit_functionals

    @cached_property
    def to_metric(self) -> MatrixBall:
        """Map from the standard norm to the norm of q, without the direction of c: (Q, d, d)."""
        return MatrixBall.exact(self.coordinates.metrics) @ self._off_centre

    @cached_property
    def from_metric(self) -> MatrixBall:
        """Map from the norm of q to the standard norm, for errors with phi e = 0: (Q, d, d)."""
        metrics = self.coordinates.metrics
        inverse: Floats = np.linalg.inv(metrics).astype(np.float64)
        error = inverse_error(metrics, inverse)
        product = self._off_centre @ MatrixBall.exact(inverse)
        radius = round_up(product.radius + product.frobenius_norm() * error / np.maximum(1 - error, 0.5))
        return MatrixBall(product.centre, np.where(error < 0.5, radius, np.inf))

    @cached_property
    def state_norms(self) -> StateNorms:
        d, centres = self.coordinates.dimension, self.coordinates.centres
        return StateNorms(
            to_metric=self.to_metric.spectral_norm(),
            from_metric=self.from_metric.spectral_norm(),
            functional=self._unit_functionals.frobenius_norm(),
            centre=vector_norm(centres),
            complement=vector_norm(centres[:, d:]),
        )

    # -- for words ---------------------------------------------------------------------------------------------------

    def word_matrices(self, m: int) -> tuple[MatrixBall, list[float]]:
        """Return the matrices of all words of m symbols, and the largest norm at each length below m.

        The index of a word counts its last symbol most.
        """
        n = self.A.centre.shape[-1]
        words, norms = MatrixBall.exact(np.eye(n)[None]), [1.0]
        symbol_norms = self.A.spectral_norm()[:, None]
        for k in range(m):
            if k:
                norms.append(float(words.spectral_norm().max()))
            left, right = self.A.centre[:, None], words.centre[None]
            left_norm, right_norm = frobenius_norm(left), frobenius_norm(right)
            # Spectral norms propagate the error of the previous step; Frobenius norms bound only the new one.
            radius = symbol_norms * words.radius[None] + self.A.radius[:, None] * (right_norm + words.radius[None])
            radius = round_up(radius + gamma(n) * left_norm * right_norm)
            words = MatrixBall((left @ right).reshape(-1, n, n), radius.reshape(-1))
        return words, norms

    def error_recurrence(self, m: int, *, rounded: bool) -> ErrorRecurrence:
        """Compute the coefficients of the inequality above for words of m symbols.

        For each pair of states the largest coefficients are kept. With `rounded`, the steps are rounded to float32.
        """
        machine, d = self.system.machine, self.coordinates.dimension
        words, norms = self.word_matrices(m)
        table = np.arange(len(machine.table))[:, None]
        for _ in range(m):
            successors = machine.table[table.clip(0)].transpose(0, 2, 1)  # (Q, V, W)
            table = np.where(table[:, None] == DEAD, DEAD, successors).reshape(len(table), -1)
        source, word = np.nonzero(table != DEAD)
        target = table[source, word]
        # Rounding adds `absolute`, and `relative` for each unit of error.
        absolute, relative = self._word_rounding(m, norms) if rounded else (0.0, 0.0)
        growth, r1, r2 = self._residuals(words, source, word, target)
        n11, eta1 = self._subspace_norms(words[:, :d, :d], source, word, target)
        n12, n21, n22 = (words[block].spectral_norm()[word] for block in _blocks(d))
        state = self.state_norms
        to_metric, phi, rest = state.to_metric[target], state.functional[target], state.complement[target]
        from_metric = state.from_metric[source]
        coefficients = {
            "r1": r1 + to_metric * absolute,
            "r2": r2 + (1 + rest * phi) * absolute,
            "n11": n11 + to_metric * relative * from_metric,
            "n12": to_metric * (n12 + relative),
            "n21": n21 * from_metric + rest * eta1 + (1 + rest * phi) * relative * from_metric,
            "n22": n22 + rest * phi * n12 + (1 + rest * phi) * relative,
            "eta1": eta1 + phi * relative * from_metric,
            "eta2": phi * (n12 + relative),
        }
        growth = growth - round_up(phi * absolute)
        pair = source * len(machine.table) + target
        pairs, group = np.unique(pair, return_inverse=True)
        largest = {}
        for name, values in coefficients.items():
            values = np.where(growth > 0, round_up(values, 12) / np.where(growth > 0, growth, 1), np.inf)
            maxima = np.zeros(len(pairs))
            np.maximum.at(maxima, group, np.where(np.isnan(values), np.inf, round_up(values)))
            largest[name] = maxima
        n_states = len(machine.table)
        return ErrorRecurrence(m, n_states, pairs // n_states, pairs % n_states, **largest)

    def rounding_of_step(self, x: Floats, errors: Floats) -> float:
        """Bound the rounding, over `step_unit`, of a step from states x (B, N) known up to `errors` (B,)."""
        n = x.shape[-1]
        direct = vector_norm(np.abs(x @ self.coordinates.backward.T) @ self.rounding_matrix.T)
        # The rounding of `direct` itself is as small as float64's, so the coarse bound suffices for it.
        indirect = self.step_rounding * (errors + (self.backward_error + gamma(4 * n)) * vector_norm(x))
        return float(round_up(direct + indirect, 4 * n).max())

    def _word_rounding(self, m: int, norms: list[float]) -> tuple[float, float]:
        """Bound the rounding of m steps in float32: of a representative, and of an error for each unit of it."""
        machine, A = self.system.machine, self.A
        x, errors = self.coordinates.centres, np.zeros(len(self.coordinates.centres))
        q = np.arange(len(x))
        product_errors = round_up(A.radius + gamma(A.centre.shape[-1]) * frobenius_norm(A.centre))
        symbol_norms = A.spectral_norm()
        per_step = []
        for _ in range(m):
            per_step.append(self.rounding_of_step(x, errors))
            successors = machine.table[q]  # (B, V)
            row, symbol = np.nonzero(successors != DEAD)
            errors = round_up(
                symbol_norms[symbol] * errors[row] + product_errors[symbol] * (vector_norm(x) + errors)[row]
            )
            x = (x @ np.swapaxes(A.centre, 1, 2))[symbol, row]
            q = successors[row, symbol]
        absolute = self.accumulated_rounding(per_step, norms)
        return absolute, self.accumulated_rounding([self.step_rounding * norm for norm in norms[:m]], norms)

    def accumulated_rounding(self, per_step: list[float], norms: list[float]) -> float:
        """Bound the total rounding after len(per_step) steps.

        Step i, applied to exact states, adds at most `step_unit` times per_step[i]; `norms` bounds the words by length.
        """
        total = [0.0]
        for k in range(1, len(per_step) + 1):
            added = (norms[k - 1 - i] * (per_step[i] + self.step_rounding * total[i]) for i in range(k))
            total.append(self.step_unit * sum(added))
        return float(round_up(total[-1], 8 * len(per_step) + 8))

    def growth_factors(self) -> Floats:
        """Return lower bounds on lambda for each transition, in the order of `TrimMachine.edges`."""
        source, symbol, target = self.system.machine.edges
        return self._residuals(self.A, source, symbol, target)[0]

    def _residuals(self, words: MatrixBall, source: Ints, word: Ints, target: Ints) -> tuple[Floats, Floats, Floats]:
        """Return lower bounds on lambda and upper bounds on r1 and r2: (E,) each."""
        centres, d, n = self.coordinates.centres, self.coordinates.dimension, self.A.centre.shape[-1]
        v = np.swapaxes(words.centre @ centres.T, 1, 2)[word, source]  # (E, N)
        phi, centre = self.state_norms.functional, self.state_norms.centre
        error = round_up((words.radius + gamma(n) * frobenius_norm(words.centre))[word] * centre[source])
        functionals = self._unit_functionals
        norm = vector_norm(v)
        growth = (functionals.centre[target, 0] * v[:, :d]).sum(1)
        growth_error = round_up(
            phi[target] * error + functionals.radius[target] * (norm + error) + gamma(d + 1) * phi[target] * norm
        )
        r = v - growth[:, None] * centres[target]
        error = round_up(error + growth_error * centre[target] + 32 * U64 * (norm + np.abs(growth) * centre[target]))
        metrics = self.coordinates.metrics
        measured = np.einsum("eij,ej->ei", metrics[target], r[:, :d])
        stretch = frobenius_norm(metrics)[target]
        r1 = round_up(vector_norm(measured) + stretch * (error + gamma(d + 1) * vector_norm(r[:, :d])))
        return growth - round_up(growth_error), r1, round_up(vector_norm(r[:, d:]) + error)

    def _subspace_norms(self, inner: MatrixBall, source: Ints, word: Ints, target: Ints) -> tuple[Floats, Floats]:
        """Return n11 and eta1, from the blocks `inner` of the words on the subspace: (E,) each."""
        d = self.coordinates.dimension
        n11, eta1 = np.empty(len(source)), np.empty(len(source))
        chunk = max(1, MOST_NUMBERS // max(d * d, 1))
        self.watch.start("bound the drift of the states", total=len(source), unit="transitions")
        for first in range(0, len(source), chunk):
            self.watch.update(first)
            self.watch.check()
            part = slice(first, first + chunk)
            product = inner[word[part]] @ self.from_metric[source[part]]
            n11[part] = (self.to_metric[target[part]] @ product).spectral_norm()
            eta1[part] = (self._unit_functionals[target[part]] @ product).frobenius_norm()
        return n11, eta1


def _blocks(d: int) -> list[tuple[slice, slice, slice]]:
    """Return the off-diagonal blocks and the block of the complement, for `MatrixBall.__getitem__`."""
    batch, subspace, complement = slice(None), slice(0, d), slice(d, None)
    return [(batch, subspace, complement), (batch, complement, subspace), (batch, complement, complement)]
