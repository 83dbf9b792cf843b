"""The tests of all files that need Triton's interpreter, in one process: each would import torch and Triton anew.

The interpreter takes milliseconds a row and step: in those tests rows are few, and lengths just pass a chunk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = [str(file) for file in sorted(Path(__file__).parent.rglob("test_*.py")) if "\n@inside\n" in file.read_text()]


@pytest.mark.timeout(1200)
def test_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *FILES]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and " skipped" not in done.stdout, done.stdout[-4000:]
