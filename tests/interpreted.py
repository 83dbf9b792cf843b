"""Run tests of Triton kernels without a GPU, in Triton's interpreter.

Triton decides when it is imported whether its kernels are interpreted. Tests marked with `interpreted` therefore run
only in a process with TRITON_INTERPRET=1, and all other tests only in a process without it. `test_interpreted.py`
starts such a process for all files; to run one file: TRITON_INTERPRET=1 pytest tests/ops/test_mixed.py
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

IN_INTERPRETER = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.interpreted


def belongs_to_this_process(item: pytest.Item) -> bool:
    """Whether a test runs in this process: marked tests in the interpreter, the others outside of it."""
    return (item.get_closest_marker(interpreted.name) is not None) == IN_INTERPRETER


def speed_up_interpreter() -> None:
    """Remove work of the interpreter that has no result, which is a third of its time.

    It patches Triton's language again for every call of a function in a kernel, builds a table of dtypes for every
    operation, and computes for every sum of integers whether it overflows, without using the answer: assertions of a
    kernel are checked with `debug` alone, which the interpreter's options leave off.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    modules = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    empty_scope = type(interpreter._patch_lang(modules))()
    interpreter._patch_lang = lambda _: empty_scope
    find_dtype = interpreter._get_np_dtype
    found: dict[str, Any] = {}

    def numpy_dtype(dtype: tl.dtype) -> Any:
        name = dtype.scalar.name  # Triton's types of blocks and pointers have no hash
        return found[name] if name in found else found.setdefault(name, find_dtype(dtype))

    interpreter._get_np_dtype = numpy_dtype
    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    builder.options = replace(builder.options, sanitize_overflow=False)
