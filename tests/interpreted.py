"""Run tests of Triton kernels without a GPU, in Triton's interpreter.

Triton decides when it is imported whether its kernels are interpreted. Tests marked with `interpreted` therefore run
only in a process with TRITON_INTERPRET=1, and all other tests only in a process without it. `test_interpreted.py`
starts such a process for all files; to run one file: TRITON_INTERPRET=1 pytest tests/ops/test_mixed.py
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

IN_INTERPRETER = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.interpreted


def belongs_to_this_process(item: pytest.Item) -> bool:
    """Whether a test runs in this process: marked tests in the interpreter, the others outside of it."""
    return (item.get_closest_marker(interpreted.name) is not None) == IN_INTERPRETER


def patch_language_once() -> None:
    """Patch Triton's language for the interpreter once.

    The interpreter itself does it again for every call of a function in a kernel, which takes a fifth of the time.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    modules = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    empty_scope = type(interpreter._patch_lang(modules))()
    interpreter._patch_lang = lambda _: empty_scope
