"""An exported program without complex numbers and without computations that depend on the weights alone.

ONNX has no complex numbers. Here each complex tensor of a program is a pair of real tensors, and whatever depends on
the weights alone, such as the matrix of each symbol, is computed once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from sdssm.errors import ModelError

aten: Any = torch.ops.aten


class ComplexPair(NamedTuple):
    """A complex tensor as its real and its imaginary part, which have the same shape."""

    real: Tensor
    imaginary: Tensor


def split_complex(value: Any) -> Any:
    """Return a complex tensor as a pair of real ones; anything else as it is.

    >>> split_complex(torch.tensor([1 + 2j]))
    ComplexPair(real=tensor([1.]), imaginary=tensor([2.]))
    """
    if not isinstance(value, Tensor) or not value.is_complex():
        return value
    return ComplexPair(value.real.contiguous(), value.imag.contiguous())


def _parts(value: Any) -> ComplexPair:
    """Return a value as a pair; the imaginary part of a real one is zero."""
    if isinstance(value, ComplexPair):
        return value
    if isinstance(value, complex):
        return ComplexPair(torch.tensor(value.real), torch.tensor(value.imag))
    real = value if isinstance(value, Tensor) else torch.tensor(float(value))
    return ComplexPair(real, torch.zeros_like(real))


def _bilinear(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any], ComplexPair]:
    def multiply(left: Any, right: Any) -> ComplexPair:
        if not isinstance(left, ComplexPair):
            return ComplexPair(product(left, right.real), product(left, right.imaginary))
        if not isinstance(right, ComplexPair):
            return ComplexPair(product(left.real, right), product(left.imaginary, right))
        return ComplexPair(
            product(left.real, right.real) - product(left.imaginary, right.imaginary),
            product(left.real, right.imaginary) + product(left.imaginary, right.real),
        )

    return multiply


def _reciprocal(value: ComplexPair) -> ComplexPair:
    size = value.real.square() + value.imaginary.square()
    return ComplexPair(value.real / size, -value.imaginary / size)


def _divide(left: Any, right: Any) -> ComplexPair:
    if not isinstance(right, ComplexPair):
        return ComplexPair(left.real / right, left.imaginary / right)
    return _bilinear(operator.mul)(left, _reciprocal(right))


def _sum(left: Any, right: Any, sign: int) -> ComplexPair:
    a, b = _parts(left), _parts(right)
    return ComplexPair(a.real + sign * b.real, a.imaginary + sign * b.imaginary)


def _exponential(value: ComplexPair) -> ComplexPair:
    return _polar(value.real.exp(), value.imaginary)


def _polar(size: Tensor, angle: Tensor) -> ComplexPair:
    return ComplexPair(size * angle.cos(), size * angle.sin())


def _convert(value: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    """Convert to a type; from a real to a complex one, the imaginary part is zero."""
    if isinstance(dtype, torch.dtype) and not dtype.is_complex:
        raise ModelError("the real part of a complex tensor is taken by a conversion, which ONNX cannot express")
    return _parts(value)


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    largest = torch.maximum(x.abs(), y.abs())
    divisor = torch.where(largest == 0, 1, largest)  # the squares neither overflow nor underflow
    return largest * ((x / divisor).square() + (y / divisor).square()).sqrt()


def _sort(x: Tensor, dim: int, descending: bool) -> Any:
    return torch.topk(x, x.shape[dim], dim, largest=descending, sorted=True)


#: Operators that ONNX lacks, in terms of others. ONNX sorts equal values by their position, which is what stable means.
REPLACED: dict[Any, Callable[..., Any]] = {
    aten.hypot.default: _hypot,
    aten.sort.stable: lambda x, stable=None, dim=-1, descending=False: _sort(x, dim, descending),
    aten.sort.default: lambda x, dim=-1, descending=False: _sort(x, dim, descending),
    aten.argsort.stable: lambda x, stable=None, dim=-1, descending=False: _sort(x, dim, descending)[1],
    aten.argsort.default: lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
}
#: Operators that make a pair from real tensors.
MAKE_COMPLEX: dict[Any, Callable[..., Any]] = {
    aten.view_as_complex.default: lambda x: ComplexPair(x[..., 0], x[..., 1]),
    aten.complex.default: ComplexPair,
    aten.polar.default: _polar,
}
#: Operators on pairs.
ON_COMPLEX: dict[Any, Callable[..., Any]] = {
    aten.real.default: lambda x: x.real,
    aten.imag.default: lambda x: x.imaginary,
    aten.view_as_real.default: lambda x: torch.stack([x.real, x.imaginary], -1),
    aten._conj.default: lambda x: ComplexPair(x.real, -x.imaginary),
    aten.conj.default: lambda x: ComplexPair(x.real, -x.imaginary),
    aten.add.Tensor: lambda x, y: _sum(x, y, 1),
    aten.sub.Tensor: lambda x, y: _sum(x, y, -1),
    aten.mul.Tensor: _bilinear(operator.mul),
    aten.div.Tensor: _divide,
    aten.matmul.default: _bilinear(torch.matmul),
    aten.bmm.default: _bilinear(torch.bmm),
    aten.mm.default: _bilinear(torch.mm),
    aten.reciprocal.default: _reciprocal,
    aten.exp.default: _exponential,
    aten.abs.default: lambda x: _hypot(x.real, x.imaginary),
    aten.to.dtype: _convert,
    aten.to.dtype_layout: _convert,
    aten._to_copy.default: _convert,
}
#: Operators that act on real and imaginary part separately.
PART_BY_PART = {
    aten.neg.default,
    aten.reshape.default,
    aten.view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.select.int,
    aten.slice.Tensor,
    aten.expand.default,
    aten.permute.default,
    aten.transpose.int,
    aten.movedim.int,
    aten.sum.dim_IntList,
    aten.cat.default,
    aten.stack.default,
    aten.contiguous.default,
    aten.clone.default,
    aten.detach.default,
    aten.alias.default,
    aten.index.Tensor,
    aten.where.self,
}


class RealProgram(nn.Module):
    """A program of torch.export as a module whose inputs, outputs and operations are real.

    >>> class Spiral(nn.Module):
    ...     def forward(self, x):
    ...         return torch.view_as_real(torch.view_as_complex(x) * torch.tensor(1j))
    >>> example = (torch.tensor([[1.0, 2.0]]),)
    >>> RealProgram(torch.export.export(Spiral(), example, strict=False))(*example)
    [tensor([[-2.,  1.]])]
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.graph = program.graph_module.graph
        self.modules_of_graph = dict(program.graph_module.named_children())
        self.inputs = program.graph_signature.user_inputs
        self.places: dict[str, tuple[str, ...]] = {}  # of constants: the names of their buffers
        with torch.no_grad():
            self._fold(program)

    def _fold(self, program: ExportedProgram) -> None:
        """Compute all nodes that depend on no input, and keep those that others need."""
        signature = program.graph_signature
        stored = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        tensors = {**program.state_dict, **program.constants}
        values: dict[Node, Any] = {}
        for node in self.graph.nodes:
            if node.op == "placeholder" and node.name in stored:
                values[node] = tensors[stored[node.name]].detach()
            elif node.op == "call_function" and all(parent in values for parent in node.all_input_nodes):
                args, kwargs = (map_arg(part, values.__getitem__) for part in (node.args, node.kwargs))
                values[node] = node.target(*args, **kwargs)
        for node, value in values.items():
            if isinstance(value, Tensor) and any(user not in values for user in node.users):
                pair = split_complex(value.resolve_conj())
                parts = pair if isinstance(pair, ComplexPair) else (pair,)
                self.places[node.name] = tuple(f"constant_{node.name}_{part}" for part in range(len(parts)))
                for place, part in zip(self.places[node.name], parts, strict=True):
                    self.register_buffer(place, part.detach().clone())
        # Of the other constants only plain values are needed, such as sizes.
        self.folded = {node.name: None if isinstance(value, Tensor) else value for node, value in values.items()}

    def forward(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Run the program on real inputs."""
        given = dict(zip(self.inputs, inputs, strict=True))
        values: dict[Node, Any] = {}
        for node in self.graph.nodes:
            if node.name in self.places:
                parts = [getattr(self, place) for place in self.places[node.name]]
                values[node] = ComplexPair(*parts) if len(parts) == 2 else parts[0]
            elif node.name in self.folded:
                values[node] = self.folded[node.name]
            elif node.op == "placeholder":
                values[node] = given.get(node.name)
            elif node.op == "get_attr":
                values[node] = self.modules_of_graph[str(node.target)]
            elif node.op == "output":
                return list(map_arg(node.args[0], values.__getitem__))
            else:
                args, kwargs = (map_arg(part, values.__getitem__) for part in (node.args, node.kwargs))
                values[node] = _call(node.target, args, kwargs)
        raise AssertionError("a graph ends in its outputs")


def _call(target: Any, args: Any, kwargs: Any) -> Any:
    if target in REPLACED:
        return REPLACED[target](*args, **kwargs)
    if target in MAKE_COMPLEX:
        return MAKE_COMPLEX[target](*args, **kwargs)
    if target is aten._assert_tensor_metadata.default:
        return None
    is_conversion = ON_COMPLEX.get(target) is _convert and any(
        isinstance(value, torch.dtype) and value.is_complex for value in (*args, *kwargs.values())
    )
    if not (is_conversion or _has_pair((args, kwargs))):
        return target(*args, **kwargs)
    if target in PART_BY_PART:
        return ComplexPair(*(target(*_choose(args, part), **_choose(kwargs, part)) for part in ("real", "imaginary")))
    if target not in ON_COMPLEX:
        raise ModelError(f"the operator {target} on complex numbers cannot be expressed in ONNX")
    return ON_COMPLEX[target](*args, **kwargs)


def _has_pair(values: Any) -> bool:
    if isinstance(values, ComplexPair):
        return True
    if isinstance(values, dict):
        return any(map(_has_pair, values.values()))
    return isinstance(values, tuple | list) and any(map(_has_pair, values))


def _choose(values: Any, part: str) -> Any:
    """Replace each pair by its real or its imaginary part."""
    if isinstance(values, ComplexPair):
        return getattr(values, part)
    if isinstance(values, dict):
        return {name: _choose(value, part) for name, value in values.items()}
    return type(values)(_choose(value, part) for value in values) if isinstance(values, tuple | list) else values
