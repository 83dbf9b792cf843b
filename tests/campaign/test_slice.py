"""A short campaign, with a fixed seed so that it tries the same things on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.sandbox import IS_BUSY

#: Minutes of attacks, in one process: the other test workers use the other cores.
MINUTES = 0.5


@pytest.mark.timeout(600)
def test_a_short_campaign_finds_nothing() -> None:
    """In a process of its own: attacks fork, which is safe only before torch has started threads."""
    command = [sys.executable, "-m", "tests.campaign", "--minutes", str(MINUTES), "--seed", "20", "--slice"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", IS_BUSY: "1"}
    process = subprocess.run(
        [*command, "--workers", "1"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-6000:] + process.stderr[-2000:]
    assert "certificates" in process.stdout and "malformed-texts" in process.stdout
