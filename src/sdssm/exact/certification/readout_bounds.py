"""Decide whether a bound on the states proves the labels.

A label is proved correct if no error e within the bounds of `transformed_system` changes the sign of
(row of the label - row of another class) (c + e). If the label has several rows, that with the largest product with the
representative c counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sdssm.automata.refinement import Floats
from sdssm.exact.certification.ball_arithmetic import MatrixBall, gamma, round_up, vector_norm
from sdssm.exact.certification.transformed_system import TransformedSystem


class LogitLeads(NamedTuple):
    """By how much a row of the correct class leads the rows of other classes at each machine state: (Q, R) each."""

    lead: Floats  #: lower bound at the representative; infinite for rows of the correct class and where no string ends
    per_e1: Floats  #: upper bound on what an error e1 = 1 takes from the lead
    per_e2: Floats  #: upper bound on what an error e2 = 1 takes from the lead
    float_slack: Floats  #: upper bound on what float32 rounding takes, for a state of length 1


@dataclass(frozen=True, eq=False)
class ReadoutBounds:
    """Bounds on the logits of a transformed system near the representatives of the machine states."""

    transformed: TransformedSystem

    @cached_property
    def leads(self) -> LogitLeads:
        transformed = self.transformed
        labels, centres = transformed.system.machine.labels, transformed.coordinates.centres
        rows, row_magnitudes = transformed.rows, transformed.row_magnitudes
        row_labels = transformed.system.row_labels
        d, n = transformed.coordinates.dimension, centres.shape[1]
        leads = LogitLeads(*(np.empty((len(centres), len(rows))) for _ in range(4)))
        for q, label in enumerate(labels.clip(0)):
            same = row_labels == label
            row = int(np.where(same, rows @ centres[q], -np.inf).argmax())
            difference = rows[row] - rows  # (R, N)
            subtraction = 2 * gamma(2) * (vector_norm(rows[row]) + vector_norm(rows))
            error = round_up(transformed.row_errors[row] + transformed.row_errors + subtraction)
            centre_norm = transformed.state_norms.centre[q]
            uncertainty = round_up((error + gamma(n + 1) * vector_norm(difference)) * centre_norm)
            leads.lead[q] = difference @ centres[q] - uncertainty
            measured = MatrixBall(difference[:, None, :d], error) @ transformed.from_metric[[q]]
            leads.per_e1[q] = measured.frobenius_norm()
            leads.per_e2[q] = round_up(vector_norm(difference[:, d:]) + error)
            magnitude = row_magnitudes[row] + row_magnitudes
            leads.float_slack[q] = round_up(transformed.system.readout_rounding * magnitude)
            leads.lead[q, same] = np.inf
        leads.lead[labels < 0] = np.inf
        return leads

    def can_prove_labels(self, errors: Floats, *, rounded: bool) -> bool:
        """Whether all states within these errors (Q, 2) of their representatives have the correct labels.

        Machine states with a negative error, which no string leads to, are ignored. With `rounded`, the readout is
        computed in float32.
        """
        reached = errors[:, 0] >= 0
        if not np.isfinite(errors[reached]).all():
            return False
        e1, e2 = np.where(np.isfinite(errors), np.maximum(errors, 0), 0).T
        leads, norms = self.leads, self.transformed.state_norms
        loss = leads.per_e1 * e1[:, None] + leads.per_e2 * e2[:, None]
        if rounded:
            loss = loss + leads.float_slack * (norms.centre + norms.from_metric * e1 + e2)[:, None]
        proved = np.asarray((leads.lead > round_up(loss)).all(1))  # (Q,)
        return bool(proved[reached].all())

    @property
    def margin(self) -> float:
        """The error, in the subspace and in the complement alike, below which no label can change."""
        leads = self.leads
        # The start state counts only if a string leads back to it.
        revisited = np.isin(np.arange(len(leads.lead)), self.transformed.system.machine.table)
        lead = np.where(revisited[:, None], leads.lead, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.nanmin(np.where(np.isinf(lead), np.inf, lead / (leads.per_e1 + leads.per_e2))))
