"""Triton's kernels without a GPU, in its interpreter: how a test file runs its Triton cases in a process of their own.

Triton decides when it is imported whether its kernels are interpreted. Without TRITON_INTERPRET=1 a file starts pytest
on itself with the variable set; the cases marked `inside` run there alone.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1")
outside = pytest.mark.skipif(INTERPRETED, reason="this is that process")


def run_interpreted(file: str, keyword: str) -> subprocess.CompletedProcess[str]:
    """Those tests of `file` whose names match `keyword`, as pytest's -k reads it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", keyword, file]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def assert_passes_interpreted(file: str, keyword: str) -> None:
    done = run_interpreted(file, keyword)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout, done.stdout[-4000:]  # a keyword that matches nothing would pass as well
