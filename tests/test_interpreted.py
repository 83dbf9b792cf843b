"""Run the tests of all files that need Triton's interpreter in one process, so that Triton is imported once.

The interpreter takes milliseconds for each row and step: keep rows few, and lengths just above a chunk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = [
    str(path)
    for path in sorted(Path(__file__).parent.rglob("test_*.py"))
    if path != Path(__file__) and "from tests.interpreted import" in path.read_text()
]


@pytest.mark.timeout(1200)
def test_kernels_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    assert FILES
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *FILES]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
    assert " passed" in process.stdout and " skipped" not in process.stdout, process.stdout[-4000:]
