"""Count the kernels of a training step on a GPU, without one: `python -m benchmarks.step_launches [CASE ...]`.

A case is `MODEL[/PRESET]@TASK*REPLICAS[:NAME=VALUE,...]`, as in `benchmarks.step_profile`. The step runs on the CPU as
it would on a GPU: with the Triton kernels, which are counted and not executed, and with what else is chosen for a GPU.
Operations of torch that compute something count as one kernel each; a few of them launch two.

What is done once for the ten steps of a CUDA graph is left out, above all the drawing of strings, and so are the random
numbers of dropout (one kernel).
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.step_cases import read_case
from sdssm import ops
from sdssm.ops import autograd, backend
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task
from sdssm.training.engine import TrainingEngine

CASES = (
    "sd-ssm/paper@a5*3",
    "sd-ssm/paper@arithmetic*9:readout=mlp,hidden=64,dictionary=18",
    "sd-ssm/paper@arithmetic*9:readout=mlp,hidden=64,dictionary=18,dropout=0.1",
    "complex-diagonal/paper@a5*3",
    "complex-diagonal/paper@c2xc30*3:layers=2",
    "regular-lrnn/paper@a5*3",
    "rnn/paper@a5*3",
    "lstm/paper@a5*3",
    "s4d/paper@parity*3",
    "h3/paper@parity*3",
    "hyena/paper@parity*3",
    "mamba/paper@parity*3",
    "transformer/paper@parity*3",
)
#: Words in the names of operations that allocate memory, or return what exists, without a kernel.
WITHOUT_KERNEL = ("empty", "detach", "unsafe_view", "reshape_alias", "local_scalar", "sym_", "lift_fresh")


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Counts the operations of torch that compute something: no views, and no allocations."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket._qualified_op_name
        returns = func._schema.returns
        is_view = any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
        if not is_view and not any(word in name for word in WITHOUT_KERNEL):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counting(counts: Counter[str]) -> Iterator[None]:
    """Choose what is chosen on a GPU, and count kernels of Triton, which do not run, and operations of torch."""
    from triton.runtime import interpreter

    import sdssm.ops._triton.source  # noqa: F401  # asks for the capability of the GPU, so not after the patches

    def launch(kernel: Any, *args: Any, **constants: Any) -> None:
        counts[kernel.fn.__name__] += 1

    with (
        patch.object(backend, "is_on_gpu", lambda _: True),
        patch.object(autograd, "_is_traced", lambda _: False),  # the counter is a mode of torch, but traces nothing
        patch.object(interpreter.GridExecutor, "__call__", launch),
        ops.use_backend("triton"),
        ops.unchecked(),
        OperationCounter(counts),
    ):
        yield


def count_launches(task: Task, runs: Sequence[RunConfig]) -> Counter[str]:
    """Return how often a training step of these runs launches each kernel on a GPU.

    Needs Triton's interpreter. It is what two steps of a CUDA graph launch beyond one.
    """
    counts: Counter[str] = Counter()
    with counting(counts):
        engine = TrainingEngine(task, runs, torch.device("cpu"))
        engine.execution = replace(engine.execution, is_captured=True)
        engine._plan.cover(engine.step)
        engine._run_captured(1)  # fills tables that are computed once
        captured = []
        for steps in (1, 2):
            counts.clear()
            engine._run_captured(steps)
            captured.append(Counter(counts))
    one, two = captured
    return two - one


def show(case: str, most: int) -> None:
    """Print the kernels of a case."""
    counts = count_launches(*read_case(case))
    print(f"\n{case}: {counts.total()} kernels")
    for name, count in counts.most_common(most):
        print(f"  {count:4} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE")
    parser.add_argument("--most", type=int, default=20, help="how many names to show")
    arguments = parser.parse_args()
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    for case in arguments.cases:
        show(case, arguments.most)


if __name__ == "__main__":
    main()
