"""The exceptions of `sdssm.ops`."""

from __future__ import annotations

from sdssm.errors import SdssmError


class OpsError(SdssmError):
    """The arguments of an operation do not fit together, or the operation cannot be computed from them."""


class NonFiniteError(OpsError):
    """A state is not finite or exactly zero, and `check_finite=True` was set."""
