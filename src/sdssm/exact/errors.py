"""What cannot be made exact."""

from __future__ import annotations

from sdssm.errors import SdssmError


class ExactError(SdssmError):
    """A model or a machine that a map between the two cannot take."""
