"""Triton's kernels without a GPU, in its interpreter.

Triton decides when it is imported whether its kernels are interpreted. So tests marked `inside` run in a process with
TRITON_INTERPRET=1 and the others in one without it: `test_interpreted.py` starts the former for all files. For one of
them alone: TRITON_INTERPRET=1 pytest tests/ops/test_mixed.py
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
inside = pytest.mark.interpreted


def takes_part(item: pytest.Item) -> bool:
    return (item.get_closest_marker(inside.name) is not None) == INTERPRETED


def stay_interpreted() -> None:
    """Put the interpreter's functions into Triton's language once: it does so anew at every call of a function in a
    kernel, which is a fifth of the time."""
    import triton.language as tl
    from triton.runtime import interpreter

    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    nothing_to_undo = type(interpreter._patch_lang(everything))()
    interpreter._patch_lang = lambda _: nothing_to_undo
