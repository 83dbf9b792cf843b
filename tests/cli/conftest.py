"""Settings of the tests of commands."""

from __future__ import annotations

import pytest

from sdssm import progress


@pytest.fixture(autouse=True)
def no_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show no progress line: on a busy machine it would appear in any command that a test calls."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 1e9)
