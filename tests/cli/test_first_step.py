"""What `sdssm train` does before its first step: modules that it imports, code that numba compiles. No seconds here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Slow to import, and nothing that training a model of the catalogue on a CPU needs.
UNNEEDED = ("sympy", "matplotlib", "scipy", "pandas", "torch._dynamo", "torch._inductor", "triton", "onnx", "ray")
TRAIN = f"""
import sys
from sdssm.cli import main
status = main(["train", "a5", "--steps", "1", "--batch", "2", "--quiet", "--device", "cpu", "--out", sys.argv[1]])
assert status == 0, status
print(*(name for name in {UNNEEDED!r} if name in sys.modules))
"""
COMPILE = """
import sys
import numpy
from numba import njit
from sdssm.ops.numba_kernels import start_state
from numba.core import event
names = []
class Names(event.Listener):
    def on_start(self, started): names.append(started.data["dispatcher"].py_func.__module__)
    def on_end(self, ended): pass
with event.install_listener("numba:compile", Names()):
    start_state(numpy.ones((1, 2)), 0, numpy.ones(2))
    if sys.argv[1] == "planted":
        @njit
        def assign(source, out):
            out[:] = source
        assign(numpy.ones(2), numpy.ones(2))
print(*sorted(set(names)))
"""


def run_script(script: str, *arguments: str) -> list[str]:
    """Return the words of the last line that a script prints in a new process."""
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    return result.stdout.splitlines()[-1].split()


def test_a_training_imports_nothing_slow_that_it_does_not_need(tmp_path: Path) -> None:
    assert run_script(TRAIN, str(tmp_path / "runs")) == []


@pytest.mark.parametrize(("case", "compiles_strings"), [("ours", False), ("planted", True)])
def test_kernels_compile_no_string_formatting(
    case: str, compiles_strings: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba compiles the text of an error into `out[:] = source`, which takes long; the planted one shows it."""
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # an empty cache: everything is compiled
    assert ("numba.cpython.unicode" in run_script(COMPILE, case)) == compiles_strings
