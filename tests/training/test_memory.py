"""Memory that a training frees is kept by the process."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from sdssm.training.memory import keep_freed_memory

COUNT = """
import resource
import torch
from sdssm.training.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(4_000_000)  # 16 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
print(faults(), keep_freed_memory(), faults(), faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this option")
def test_freed_blocks_are_reused() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    before, is_supported, _, after = done.stdout.split()  # in the third the heap grows
    assert is_supported == "True"
    assert int(after) < int(before) / 10


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert keep_freed_memory.__wrapped__() is False
