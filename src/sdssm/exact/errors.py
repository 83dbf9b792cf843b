"""The exception of this package."""

from __future__ import annotations

from sdssm.errors import SdssmError


class ExactError(SdssmError):
    """A model or a machine is not supported by the requested conversion or proof."""
