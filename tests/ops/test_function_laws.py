"""Laws of every operation in the catalogue: agreement with the reference, torch's transforms, determinism, errors.

A new operation is tested by all of them once it has an `Operation` in OPERATIONS; properties of a single operation are
tested in its own file. Triton kernels run in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops import backend, compiled
from tests.interpreted import interpreted
from tests.ops.differentiable import (
    Operation,
    Tuning,
    check_compiled,
    check_transforms,
    compare_with_reference,
    fast,
    outputs_and_gradients,
)
from tests.ops.test_attention import ATTENTION
from tests.ops.test_block_norms import BLOCK_NORMS
from tests.ops.test_column_mixture import COLUMN_MIXTURE
from tests.ops.test_column_one_hot import COLUMN_ONE_HOT
from tests.ops.test_delta import DELTA
from tests.ops.test_elman import ELMAN
from tests.ops.test_filter import FILTER
from tests.ops.test_lstm import LSTM
from tests.ops.test_mixed import MIXED
from tests.ops.test_phasors import PHASORS
from tests.ops.test_readout import READOUT
from tests.ops.test_selected import SELECTED
from tests.ops.test_selective import SELECTIVE
from tests.ops.test_selective_ends import SELECTIVE_END
from tests.ops.test_softplus import SOFTPLUS_MAP

OPERATIONS: list[Operation[Any]] = [
    ELMAN,
    LSTM,
    SELECTIVE,
    SELECTIVE_END,
    SOFTPLUS_MAP,
    DELTA,
    COLUMN_ONE_HOT,
    COLUMN_MIXTURE,
    FILTER,
    MIXED,
    SELECTED,
    READOUT,
    ATTENTION,
    PHASORS,
    BLOCK_NORMS,
]
Runs = Callable[[Operation[Any]], Iterable[tuple[Any, ...]]]


def over(arguments: str, runs: Runs, among: Iterable[Operation[Any]] = OPERATIONS) -> pytest.MarkDecorator:
    """Parametrize a test over every operation and its runs; the operation's name comes first in the test's name."""
    parameters = [
        pytest.param(operation, *run, id="-".join(filter(None, [operation.name, *map(name_of, run)])))
        for operation in among
        for run in runs(operation)
    ]
    return pytest.mark.parametrize(["operation", *arguments.split()], parameters)


def name_of(part: Any) -> str:
    """Return the name of a value that has one, else its text; nothing for a lambda."""
    name = str(getattr(part, "__name__", None) or getattr(part, "name", part))
    return "" if name == "<lambda>" else name


def one_by_one(values: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [(value,) for value in values]


def ways(operation: Operation[Any]) -> list[str]:
    return ["numba", "torch"] if operation.numba else ["torch"]


def both_ways(operation: Operation[Any], runs: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*run, way) for run in runs for way in ways(operation)]


@pytest.fixture(autouse=True)
def chosen_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Disable numba for tests whose parameter `way` is "torch"."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("way") == "torch":
        with compiled.without_numba():
            yield
    else:
        yield


def faced(operation: Operation[Any]) -> list[tuple[Any, int]]:
    return [*((case, 0) for case in operation.cases), *operation.alone]


# -- agreement with the reference --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("poisoned_memory")
@over("case through way", lambda operation: both_ways(operation, faced(operation)))
def test_agrees_with_the_reference(operation: Operation[Any], case: Any, through: int, way: str, device: str) -> None:
    compare_with_reference(*operation.build(case, device, torch.float64), fast(device), f"{case} {way}", through)


@pytest.mark.usefixtures("poisoned_memory")
@over("case way", lambda operation: both_ways(operation, one_by_one(operation.wide)))
def test_agrees_in_float32(operation: Operation[Any], case: Any, way: str, device: str) -> None:
    compare_with_reference(*operation.build(case, device, torch.float32), fast(device), f"{case} {way}")


@over(
    "case leaf way",
    lambda operation: both_ways(
        operation,
        [(case, leaf) for case in operation.full for leaf in operation.build(case, "cpu", torch.float64)[1]],
    ),
)
def test_a_wrong_gradient_is_detected(
    operation: Operation[Any], case: Any, leaf: str, way: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = backend.implementation(operation.name, fast(device))
    function, leaves = operation.build(case, device, torch.float64)
    original, which = module.backward, list(leaves).index(leaf)

    def wrong(*args: Any) -> tuple[Tensor | None, ...]:
        grads = list(original(*args))
        at = [i for i, grad in enumerate(grads) if grad is not None][which]
        grads[at] = grads[at] * (1 + 1e-8)
        return tuple(grads)

    monkeypatch.setattr(module, "backward", wrong)
    with pytest.raises(AssertionError, match=f"grad {leaf}: "):
        compare_with_reference(function, leaves, fast(device), f"wrong {way}")


# -- Triton, without a GPU ---------------------------------------------------------------------------------------------


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@over("case through", lambda operation: [run for run in faced(operation) if run[0] not in operation.slow])
def test_interpreted(operation: Operation[Any], case: Any, through: int) -> None:
    compare_with_reference(*operation.build(case, "cpu", torch.float64), "triton", str(case), through)


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@over("tuning case through", lambda operation: [(tuning, *run) for tuning in operation.tunings for run in tuning.runs])
def test_interpreted_with_other_constants(
    operation: Operation[Any], tuning: Tuning[Any], case: Any, through: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning.change(monkeypatch)
    compare_with_reference(*operation.build(case, "cpu", tuning.dtype), "triton", f"{tuning.name} {case}", through)


@interpreted
@over("case", lambda operation: one_by_one(operation.tiny))
def test_interpreted_transforms(operation: Operation[Any], case: Any) -> None:
    with ops.use_backend("triton"):
        check_transforms(*operation.build(case, "cpu", torch.float64))


@interpreted
@over("case", lambda operation: one_by_one(operation.tiny))
def test_interpreted_results_are_the_same_without_gradients(operation: Operation[Any], case: Any) -> None:
    with ops.use_backend("triton"):
        check_without_a_gradient(operation, case, "cpu")


@interpreted
@over("check", lambda operation: one_by_one(operation.own))
def test_interpreted_further_checks(operation: Operation[Any], check: Callable[[], None]) -> None:
    with ops.use_backend("triton"):
        check()


# -- transforms of torch -----------------------------------------------------------------------------------------------


@over(
    "case name way",
    lambda operation: [
        (case, *name)
        for case in operation.small
        for name in (("reference", "torch"), *(("cpu", way) for way in ways(operation)))
    ],
)
def test_gradcheck(operation: Operation[Any], case: Any, name: str, way: str) -> None:
    function, leaves = operation.build(case, "cpu", torch.float64)
    fixed = {leaf: leaves.pop(leaf) for leaf in operation.fixed}
    inputs = [leaf.requires_grad_() for leaf in leaves.values()]

    def all_outputs(*tensors: Tensor) -> Tensor:
        return function({**fixed, **dict(zip(leaves, tensors, strict=True))})[0]

    with ops.use_backend(name):
        assert torch.autograd.gradcheck(all_outputs, inputs, nondet_tol=0.0)


@over("case way", lambda operation: both_ways(operation, one_by_one(operation.mapped)))
def test_transforms(operation: Operation[Any], case: Any, way: str, device: str) -> None:
    check_transforms(*operation.build(case, device, torch.float64))


@over("case", lambda operation: one_by_one(operation.mapped))
def test_transforms_of_the_reference(operation: Operation[Any], case: Any, device: str) -> None:
    with ops.use_backend("reference"):
        check_transforms(*operation.build(case, device, torch.float64))


@over("", lambda operation: [()])
def test_compiles_without_graph_breaks(operation: Operation[Any], device: str) -> None:
    check_compiled(*operation.build(operation.full[0], device, torch.float64))


def check_without_a_gradient(operation: Operation[Any], case: Any, device: str) -> None:
    function, leaves = operation.build(case, device, torch.float64)
    expected = function({name: leaf.requires_grad_() for name, leaf in leaves.items()})
    with torch.no_grad():
        actual = function(leaves)
    assert actual[0].grad_fn is None and expected[0].grad_fn is not None
    torch.testing.assert_close(actual, tuple(output.detach() for output in expected))


@over("way", lambda operation: both_ways(operation, [()]))
def test_results_are_the_same_without_gradients(operation: Operation[Any], way: str, device: str) -> None:
    check_without_a_gradient(operation, operation.full[0], device)


@over("", lambda operation: [()])
def test_only_the_reference_has_a_second_gradient(operation: Operation[Any], device: str) -> None:
    def twice() -> None:
        function, leaves = operation.build(operation.full[0], device, torch.float64)
        inputs = [leaf.requires_grad_() for name, leaf in leaves.items() if name not in operation.fixed]
        grads = torch.autograd.grad(function(leaves)[0].square().sum(), inputs, create_graph=True)
        torch.autograd.grad(torch.stack([grad.abs().square().sum() for grad in grads]).sum(), inputs)

    with pytest.raises(ops.OpsError, match=f"{operation.public}: .*reference"):
        twice()
    with ops.use_backend("reference"):
        twice()


@over("", lambda operation: [()], [operation for operation in OPERATIONS if operation.sixteen])
def test_16_bit_dtypes_are_computed_in_float32(operation: Operation[Any], device: str) -> None:
    function, leaves = operation.build(operation.full[0], device, torch.bfloat16)
    actual = function(leaves)[0]
    expected = function({name: leaf.float() for name, leaf in leaves.items()})[0]
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual.float(), expected, atol=1e-6, rtol=2**-8)


@over("way", lambda operation: both_ways(operation, [()]))
def test_results_are_bit_identical_in_every_run(operation: Operation[Any], way: str, device: str) -> None:
    function, leaves = operation.build(operation.many, device, torch.float64)
    runs = []
    for threads in (1, 1, 2):
        torch.set_num_threads(threads)
        runs.append(outputs_and_gradients(function, leaves))
    for run in runs[1:]:
        assert all(torch.equal(run[name], value) for name, value in runs[0].items())


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "reference"])
@over("message call", lambda operation: operation.bad)
def test_bad_input_raises_a_descriptive_error(
    operation: Operation[Any], message: str, call: Callable[[], Any], name: str
) -> None:
    with ops.use_backend(name), pytest.raises(ops.OpsError, match=f"{operation.public}: .*{message}"):
        call()
