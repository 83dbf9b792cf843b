"""The Triton kernels compile for sm_80 and sm_90 without a GPU, and fit the shared memory of those GPUs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
backends = pytest.importorskip("triton.backends.compiler")
jit = pytest.importorskip("triton.runtime.jit")

from triton.compiler import ASTSource  # noqa: E402

from sdssm.training.adam import MOST_PARTS  # noqa: E402

#: Compute capability -> bytes of shared memory per block.
SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
POINTERS = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}
OPTIONS = ("num_warps", "num_stages", "maxnreg")


def compiler(capability: int, compiled_kernels: list[str]) -> Callable[..., None]:
    """Return a function that replaces the launch of a kernel and compiles it for the arguments of the launch."""

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        unknown = kwargs.keys() - set(kernel.arg_names)
        assert not unknown, f"{kernel.__name__} has no arguments {unknown}, which a launch on a GPU refuses"
        values = dict(zip(kernel.arg_names, args, strict=False)) | kwargs
        signature: dict[str, str | tuple[str, ...]] = {}
        constants: dict[str, Any] = {}
        attributes: dict[tuple[int, ...], list[list[Any]]] = {}
        for place, parameter in enumerate(kernel.params):
            value = values[parameter.name]
            if isinstance(value, Tensor):
                signature[parameter.name] = POINTERS[value.dtype]
                attributes[(place,)] = [["tt.divisibility", 16]]
            elif value is None or parameter.is_constexpr:
                signature[parameter.name] = "constexpr"
                constants[parameter.name] = value
            elif isinstance(value, tuple):
                signature[parameter.name] = tuple(POINTERS[tensor.dtype] for tensor in value)
                attributes |= {(place, number): [["tt.divisibility", 16]] for number in range(len(value))}
            else:
                signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        target = backends.GPUTarget("cuda", capability, 32)
        compiled = triton.compile(ASTSource(kernel, signature, constants, attributes), target=target, options=options)
        assert compiled.asm["cubin"]
        assert compiled.metadata.shared <= SHARED_MEMORY[capability]
        compiled_kernels.append(kernel.__name__)

    return run


def arguments(kind: str, N: int, dtype: torch.dtype) -> tuple[tuple[Any, ...], int]:
    """Return the arguments of `forward` for rows of length 48, and the position of `lengths` among them."""
    R, B, L, K = 1, 2, 48, 8

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    lengths = torch.full((R, B), L)
    if kind == "token":
        tokens = torch.zeros(R, B, L, dtype=torch.int64)
        return (new(R, 2, N, N), new(R, 2, N), tokens, new(R, B, N), lengths), 4
    if kind == "mixture":
        return (new(R, K, N, N), new(R, B, L, K), new(R, B, L, N), new(R, B, N), new(R), lengths), 5
    A = {"dense": (N, N), "block_diagonal": (4, N // 4, N // 4), "diagonal": (N,)}[kind]
    return (new(B, L, *A), new(B, L, N), new(B, N), lengths[0]), 3


@pytest.mark.parametrize("capability", SHARED_MEMORY)
@pytest.mark.parametrize(
    ("kind", "N", "dtype"),
    [
        ("dense", 64, torch.float32),
        ("dense", 128, torch.float32),
        ("token", 64, torch.float32),
        ("token", 64, torch.float64),
        ("mixture", 64, torch.float32),
        ("mixture", 60, torch.bfloat16),
        ("block_diagonal", 64, torch.float32),
        ("diagonal", 64, torch.float32),
    ],
)
def test_compiles(capability: int, kind: str, N: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_kernels: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, compiled_kernels))
    module = importlib.import_module(f"sdssm.ops.{kind}.triton")
    args, at = arguments(kind, N, dtype)
    states, final, *rest = module.forward(*args, rescale=False, mode="parallel")
    # `lengths` is the last argument of forward; the saved outputs follow it in backward.
    module.backward(states, final, *args[: at + 1], states, *rest, rescale=False, mode="parallel")
    products = "products_kernel" if kind == "diagonal" else "dot_products_kernel"
    assert {products, "recurrence_forward_kernel", "recurrence_backward_kernel"} <= set(compiled_kernels)
    homogeneous = [value if place != (1 if kind != "mixture" else 2) else None for place, value in enumerate(args)]
    module.forward(*homogeneous, rescale=True, mode="recurrent")


def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.fixture(params=SHARED_MEMORY)
def compiled_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the kernels that were compiled so far, instead of launched, for each GPU."""
    names: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(request.param, names))
    return names


def test_the_gradient_of_complex_numbers_compiles(compiled_kernels: list[str]) -> None:
    from sdssm.ops._triton.previous_products import matrix_gradient

    A = new(2, 48, 60, dtype=torch.complex64)
    for x0 in (A[:, 0], None):
        assert matrix_gradient(new(2, 48, 120), A, x0, A).shape == A.shape
    assert set(compiled_kernels) == {"previous_products_kernel"}


@pytest.mark.parametrize(
    ("R", "B", "V", "N", "rescale"),
    [(2, 1024, 2, 64, True), (3, 1024, 2, 64, True), (3, 1024, 4, 60, False), (150, 16, 2, 64, True)],
)
def test_token_tiles_compile(
    R: int, B: int, V: int, N: int, rescale: bool, compiled_kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("sdssm.ops.token.triton")
    L = 9
    A, b, x0 = new(R, V, N, N), None if rescale else new(R, V, N), new(R, B, N) if rescale else None
    tokens, lengths = new(R, B, L, dtype=torch.int64), new(R, B, dtype=torch.int64)
    states, final, factors = module.forward(A, b, tokens, x0, lengths, rescale=rescale, mode="recurrent")
    args = (None, final, A, b, tokens, x0, lengths, states, factors)
    module.backward(*args, rescale=rescale, mode="recurrent")
    assert {"tiles_forward_kernel", "tiles_backward_kernel", "token_weight_gradient_kernel"} <= set(compiled_kernels)
    assert ("tile_order_kernel" in compiled_kernels) == (R * B > 132 * 16)
    monkeypatch.setattr(module, "LEAST_LISTED", 0)
    module.backward(*args, rescale=rescale, mode="recurrent")
    assert "symbol_order_kernel" in compiled_kernels


@pytest.mark.parametrize("count", [2, MOST_PARTS + 20])
def test_adam_compiles(count: int, compiled_kernels: list[str]) -> None:
    from sdssm.training import adam_triton

    R, sizes = 3, range(1, count + 1)
    parameters, first, second = (new(R, sum(sizes)) for _ in range(3))
    gradients, row, alive = [new(R, size) for size in sizes], new(R), torch.ones(R, dtype=torch.bool)
    settings = row, row, row, row, (0.9, 0.999), 1e-8, 1.0
    for packed in (None, new(R * sum(sizes))):
        adam_triton.adam_step(parameters, gradients, first, second, *settings, alive, row, packed)
    assert compiled_kernels == ["squares_kernel", "update_kernel"] * 2


@pytest.mark.parametrize(("N", "dtype"), [(64, torch.float32), (60, torch.float64), (512, torch.float32)])
def test_mixed_matrices_compile(N: int, dtype: torch.dtype, compiled_kernels: list[str]) -> None:
    from sdssm.ops.mixed import triton as mixed

    dictionary, weights, p = (new(*shape, dtype=dtype) for shape in ((2, 18, N, N), (2, 9, 18), (2,)))
    matrices, norms = mixed.forward(dictionary, weights, p)
    mixed.backward(matrices, dictionary, weights, p, matrices, norms)
    assert {"mixed_forward_kernel", "mixed_backward_kernel", "partial_sums_kernel"} <= set(compiled_kernels)


@pytest.mark.parametrize(("K", "dtype"), [(6, torch.float32), (18, torch.float64)])
def test_selected_matrices_compile(K: int, dtype: torch.dtype, compiled_kernels: list[str]) -> None:
    from sdssm.ops.selected import triton as selected

    dictionary, selection, bias, p = (new(*shape, dtype=dtype) for shape in ((2, K, 64, 64), (2, K, 9), (2, K), (2,)))
    outputs = selected.forward(dictionary, selection, bias, p)
    selected.backward(outputs[0], dictionary, selection, bias, p, *outputs)
    assert {"mixed_forward_kernel", "mixed_backward_kernel", "softmax_gradient_kernel"} <= set(compiled_kernels)


@pytest.mark.parametrize(
    ("C", "N", "dtype", "cosine", "exact"),
    [(60, 64, torch.float32, True, False), (256, 256, torch.float32, False, True), (5, 7, torch.float64, True, True)],
)
def test_readout_compiles(
    C: int, N: int, dtype: torch.dtype, cosine: bool, exact: bool, compiled_kernels: list[str]
) -> None:
    from sdssm.ops.readout import triton as readout

    x, weight, gain, shift = (new(*shape, dtype=dtype) for shape in ((2, 40, N), (2, C, N), (2, N), (2, N)))
    bias, numbers = (None, new(2, dtype=dtype)) if cosine else (new(2, C, dtype=dtype), None)
    projection, classes = (new(2, N, N, dtype=dtype), new(2, C, dtype=dtype)) if cosine and not exact else (None, None)
    tensors = (x, weight, bias, gain, shift, new(2, 40, dtype=torch.int64), numbers, numbers, projection, classes)
    outputs = readout.forward(*tensors, True, cosine, cosine, exact, True)
    readout.backward(outputs[0], *tensors, *outputs, True, cosine, cosine, exact, True)
    assert {"readout_forward_kernel", "totals_kernel", "readout_backward_kernel"} <= set(compiled_kernels)


@pytest.mark.parametrize(("kind", "N", "dtype"), [("token", 512, torch.float32), ("mixture", 384, torch.float64)])
def test_matrices_read_in_tiles_compile(kind: str, N: int, dtype: torch.dtype, compiled_kernels: list[str]) -> None:
    module = importlib.import_module(f"sdssm.ops.{kind}.triton")
    args, at = arguments(kind, N, dtype)
    states, final, *rest = module.forward(*args, rescale=False, mode="auto")
    module.backward(states, final, *args[: at + 1], states, *rest, rescale=False, mode="auto")
    assert {"wide_forward_kernel", "wide_backward_kernel"} <= set(compiled_kernels)
