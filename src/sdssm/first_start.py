"""Compile the kernels of a first training in a second process, while this one imports torch.

numba compiles kernels at their first call and keeps them in a cache. That takes longer than all else before the first
step, and in a thread of this process it would wait for the imports. The second process only fills the cache: without
it, or if it fails, kernels are compiled at their first call. It is not started if the cache has the kernels.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent
#: The module of the kernels, and the one that is compiled last.
KERNELS, LAST_KERNEL = "sdssm.ops.token.numba_kernels", "matrix_gradients"
SOURCE = ROOT / "ops" / "token" / "numba_kernels.py"
#: The packages above that module, which import torch.
PACKAGES = {"sdssm.ops": ROOT / "ops", "sdssm.ops.token": SOURCE.parent}
#: Seconds to wait for the process: many times what it takes.
LONGEST_WAIT = 60.0

#: The process from its start until `wait_for_kernels`: the start of a command and the scan share nothing else.
_started: list[subprocess.Popen[bytes]] = []


def start_compiling() -> None:
    """Start to compile the kernels of the token scan, if numba's cache lacks them and this process has no torch yet."""
    if find_spec("numba") is None or "torch" in sys.modules or (os.cpu_count() or 1) < 2 or _is_cached():
        return
    null = subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", "sdssm.first_start"]
    with suppress(OSError):  # no process can be started
        _started.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))  # noqa: S603  # our own program
        atexit.register(_stop)


def wait_for_kernels() -> None:
    """Wait until the process of `start_compiling` has ended, if there is one."""
    while _started:
        try:
            _started[-1].wait(LONGEST_WAIT)
        except subprocess.TimeoutExpired:
            _stop()
        else:
            _started.pop()


def _stop() -> None:
    """End the process of a command that ends before its first step; numba replaces files of the cache as a whole."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()


def _is_cached() -> bool:
    """Whether numba's cache has a file of the last kernel that is newer than its source, or is in another place."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if not chosen and not os.access(SOURCE.parent, os.W_OK):  # numba then uses a folder of the user
        return True
    folders = list(Path(chosen).glob("*")) if chosen else [SOURCE.parent / "__pycache__"]
    files = [file for folder in folders for file in folder.glob(f"{SOURCE.stem}.{LAST_KERNEL}-*.nbc")]
    return any(file.stat().st_mtime >= SOURCE.stat().st_mtime for file in files)


def _compile() -> None:
    """Compile the kernels. Empty packages replace those above their module."""
    for name, folder in PACKAGES.items():
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(folder)]
    import_module(KERNELS).compile_kernels()


if __name__ == "__main__":
    _compile()
