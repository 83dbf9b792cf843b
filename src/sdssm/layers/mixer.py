"""The base class of all sequence mixers, maps from inputs (..., L, D) to outputs (..., L, F)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sdssm.devices import TRITON_LARGEST_STATE
from sdssm.errors import ModelError, format_value
from sdssm.ops.table_rows import table_rows
from sdssm.ops.tables import cached_table
from sdssm.settings import check_at_least

#: The state of a recurrent mixer: tensors (B, ...), alone or in nested tuples, lists and dicts; None before the first
#: input.
MixerState = Any
#: Tables with at most this many rows are read by `table_rows`. The gradient of an index would add up thousands of rows
#: one by one.
FEW = 16


class Mixer(nn.Module, ABC):
    """A layer that maps a sequence of inputs to a sequence of outputs.

    A mixer has two halves, written for one batch dimension: `parts` acts on each input separately, `mix` along time.
    For strings over an alphabet, `parts` runs on a table of V rows instead of B L inputs.
    A recurrent mixer also has `mix_step`, a single step from a state.

    Subclasses define `name`, `Settings`, `outputs`, `parts` and `mix`.
    """

    name: ClassVar[str]  # in the catalogue
    Settings: ClassVar[type[Any]]  # the class of its settings
    is_causal: ClassVar[bool] = True  # an output does not depend on later inputs
    is_recurrent: ClassVar[bool] = True  # it can continue from a state, and step
    largest_transition: ClassVar[int] = TRITON_LARGEST_STATE  # the greatest `transition_size` of its GPU kernels
    has_output_projection: ClassVar[bool] = False  # it ends in a linear map to the width of its inputs
    can_query: ClassVar[bool] = False  # it implements `mix_query`
    emulates: ClassVar[str] = ""  # which automata it provably emulates, in one sentence

    def __init__(self, width: int, settings: Any) -> None:
        super().__init__()
        check_at_least("width", width, 1)
        self.width, self.settings = width, settings

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The width of an output, F."""

    @property
    def longest(self) -> int | None:
        """The largest sequence length that it can read; None if there is no limit."""
        return None

    @property
    def numbers_per_symbol(self) -> int:
        """Estimate of the numbers in memory for each symbol of a string during evaluation."""
        return max(self.width, self.outputs)

    @property
    def numbers_per_input(self) -> int:
        """The same estimate for inputs that are not symbols, whose `parts` are all in memory."""
        return self.numbers_per_symbol

    @property
    def numbers_per_pair(self) -> int:
        """Estimate of the numbers in memory for each pair of positions of a string during training."""
        return 0

    @property
    def transition_size(self) -> int:
        """Rows of the transition matrices that a GPU kernel holds; 1 if there are no matrices."""
        return 1

    def transition_parameters(self) -> int:
        """Return the number of parameters that compute input-dependent transitions."""
        return 0

    def start_state(self, state: MixerState) -> MixerState:
        """Return the state that a sequence starts from: `state` if it is given, else the initial one.

        None stands for a state of zeros, or for a mixer that treats the first input differently.
        """
        return state

    # -- the two halves, and a step ------------------------------------------------------------------------------------

    @abstractmethod
    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Compute everything that depends on a single input: u (..., D) -> tensors (..., *)."""

    @abstractmethod
    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        """Run along time: parts (B, L, *) -> outputs (B, L, F) and the final state.

        Args:
            parts: the result of `parts`.
            state: the state to continue from; None for the initial state.
            lengths: (B,), the length of each row. Inputs past the end of a row are ignored.
            carry: whether the final state is needed; if not, None may be returned for it.
            noise: uniform random numbers on [0, 1) of the shape that `noise_shape` returns, for mixers that need them.
        """

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Return the output at the end of each row only: parts (B, L, *) -> (B, 1, F).

        Mixers for which the other outputs are much of the work override this.
        """
        return last_position(self.mix(parts, state, lengths=lengths, carry=False, noise=noise)[0], lengths)

    def mix_query(self, parts: tuple[Tensor, ...], query_parts: tuple[Tensor, ...], state: MixerState = None) -> Tensor:
        """Return the output for a query read after each prefix: parts (B, L, *) of both -> (B, L, F).

        Output t is the one that the mixer would give to query t after inputs 0..t, without the earlier queries. A
        mixer with `can_query` does this for all prefixes in one pass.
        """
        raise ModelError(f"{self.name} cannot read a query after all prefixes at once; use `step` after each symbol")

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, MixerState]:
        """Run a single step: u (B, D) -> output (B, F) and the next state."""
        raise ModelError(f"{self.name} has no state to step from; pass whole sequences")

    def noise_shape(self, length: int) -> tuple[int, ...] | None:
        """Return the shape of the noise that `mix` needs for this sequence length; None if it needs none."""
        return None

    def prepare_noise(self, noise: Tensor, length: int, lengths: Tensor | None) -> Tensor:
        """Return what `mix` accepts in place of its noise, for all layers of a model at once.

        `noise` is (layers, *noise_shape), and so is the first dimension of the result; `lengths` (B,) are those of the
        rows. By default it is the noise itself.
        """
        return noise

    # -- strings of symbols --------------------------------------------------------------------------------------------

    def symbol_parts(self, table: Tensor | None) -> Any:
        """Compute `parts` for each symbol, from a table of inputs (V, D); None is the identity (one-hot)."""
        if table is None:
            table = identity(next(self.parameters()), self.width)
        return self.parts(table)

    def mix_symbols(
        self,
        symbols: Any,
        tokens: Tensor,
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        """Run `mix` on tokens (B, L), with the result of `symbol_parts`."""
        parts = tuple(select_rows(part, tokens) for part in symbols)
        return self.mix(parts, state, lengths=lengths, carry=carry, noise=noise)

    def mix_symbols_end(
        self,
        symbols: Any,
        tokens: Tensor,
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Run `mix_end` on tokens (B, L), with the result of `symbol_parts`."""
        parts = tuple(select_rows(part, tokens) for part in symbols)
        return self.mix_end(parts, state, lengths=lengths, noise=noise)

    # -- any leading dimensions ----------------------------------------------------------------------------------------

    def forward(
        self, u: Tensor, state: MixerState = None, lengths: Tensor | None = None, noise: Tensor | None = None
    ) -> tuple[Tensor, MixerState]:
        """Map inputs u (..., L, D) to outputs (..., L, F) and the final state.

        `state` is the state to continue from; `lengths` (...) cut the rows, and then no state is returned.
        """
        self.check_inputs(u)
        self.check_length(u.shape[-2])
        lead = u.shape[:-2]
        parts = self.parts(u.reshape(-1, *u.shape[-2:]))
        rows = None if lengths is None else lengths.reshape(-1)
        start = merge_leading(state, lead)
        out, after = self.mix(parts, start, lengths=rows, carry=lengths is None, noise=noise)
        return out.reshape(*lead, *out.shape[1:]), split_leading(after, lead)

    def step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, MixerState]:
        """Run a single step: u (..., D) -> output (..., F) and the next state."""
        self.check_inputs(u)
        lead = u.shape[:-1]
        out, after = self.mix_step(u.reshape(-1, u.shape[-1]), merge_leading(state, lead))
        return out.reshape(*lead, *out.shape[1:]), split_leading(after, lead)

    def check_inputs(self, u: Tensor) -> None:
        """Raise ModelError unless inputs have the width and the dtype of this layer."""
        like = next(self.parameters())
        if u.shape[-1:] != (self.width,) or u.dtype != like.dtype:
            raise ModelError(
                f"inputs are {u.dtype} of shape {tuple(u.shape)}; this layer reads {like.dtype} vectors of "
                f"{self.width} entries"
            )

    def check_length(self, length: int) -> None:
        """Raise ModelError for a sequence that is longer than `longest`."""
        if self.longest is not None and length > self.longest:
            raise ModelError(
                f"{self.name} reads at most {self.longest:,} inputs, got {length:,}; pass a shorter sequence"
            )

    def extra_repr(self) -> str:
        return f"width={self.width}, {self.settings}"


@cached_table
def identity(size: int) -> Tensor:
    """Return the identity (N, N), the inputs of one-hot symbols."""
    return torch.eye(size)


def map_state(change: Callable[[Tensor], Tensor], state: MixerState) -> MixerState:
    """Apply a function to every tensor of a state.

    >>> map_state(lambda x: x + 1, (torch.zeros(1), (torch.ones(1), None)))
    (tensor([1.]), (tensor([2.]), None))
    """
    if state is None or isinstance(state, Tensor):
        return None if state is None else change(state)
    if isinstance(state, dict):
        return {name: map_state(change, part) for name, part in state.items()}
    if not isinstance(state, tuple | list):
        raise ModelError(f"a state holds {format_value(state)}; use tensors (B, ...), in nested tuples, lists or dicts")
    parts = [map_state(change, part) for part in state]
    if isinstance(state, list):
        return parts
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)  # a named tuple stays one


def merge_leading(state: MixerState, lead: Sequence[int]) -> MixerState:
    """Merge the leading dimensions of every tensor of a state: (*lead, ...) -> (rows, ...).

    >>> merge_leading((torch.zeros(2, 3, 5), None), (2, 3))[0].shape
    torch.Size([6, 5])
    """
    return map_state(lambda x: x.reshape(-1, *x.shape[len(lead) :]), state)


def split_leading(state: MixerState, lead: Sequence[int]) -> MixerState:
    """Give the leading dimensions back that `merge_leading` merged: (rows, ...) -> (*lead, ...)."""
    return map_state(lambda x: x.reshape(*lead, *x.shape[1:]), state)


def state_tensors(state: MixerState) -> list[Tensor]:
    """Return the tensors of a state, in the order in which `map_state` changes them.

    >>> [tuple(tensor.shape) for tensor in state_tensors({"h": torch.zeros(5, 3), "c": (None, torch.zeros(5, 4))})]
    [(5, 3), (5, 4)]
    """
    tensors: list[Tensor] = []

    def add(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_state(add, state)
    return tensors


def flatten_state(state: MixerState) -> list[Tensor]:
    """Return the tensors of a state as real tensors: a complex one gets a last axis of size 2.

    >>> [tuple(value.shape) for value in flatten_state((torch.zeros(5, 3), (None, torch.zeros(5, 4) * 1j)))]
    [(5, 3), (5, 4, 2)]
    """
    return [torch.view_as_real(value) if value.is_complex() else value for value in state_tensors(state)]


def join_states(states: Sequence[MixerState]) -> MixerState:
    """Return the states of several batches as one.

    >>> join_states([{"h": torch.zeros(2)}, {"h": torch.ones(1)}])
    {'h': tensor([0., 0., 1.])}
    """
    joined = iter([torch.cat(parts) for parts in zip(*map(state_tensors, states), strict=True)])
    return map_state(lambda _: next(joined), states[0])


def select_state_rows(state: MixerState, rows: Tensor | NDArray[np.int64]) -> MixerState:
    """Return some rows of a batch of states.

    >>> select_state_rows((torch.tensor([3.0, 4.0, 5.0]), None), torch.tensor([2, 0]))
    (tensor([5., 3.]), None)
    """
    return map_state(lambda x: x[torch.as_tensor(rows, device=x.device)], state)


def select_rows(table: Tensor, tokens: Tensor) -> Tensor:
    """Select rows of a table: table (V, *), tokens (...) -> (..., *).

    >>> select_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0, 1])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    if len(table) > FEW or not table.is_floating_point():
        return table[tokens]
    return table_rows(table.flatten(1), tokens).reshape(*tokens.shape, *table.shape[1:])


def last_position(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Select the last position of each row: (B, L, *) -> (B, 1, *).

    >>> last_position(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([3, 2])).tolist()
    [[3], [5]]
    """
    if lengths is None:
        return x[:, -1:]
    index = (lengths - 1).reshape(-1, *(1,) * (x.dim() - 1))
    return x.gather(1, index.expand(-1, 1, *x.shape[2:]))


def last_window(x: Tensor, lengths: Tensor | None, count: int) -> tuple[Tensor, Tensor | None]:
    """Select the last `count` positions of each row: (B, L, *) -> (B, count, *), and which of them exist, (B, count).

    Positions before the start of a row do not exist. Without `lengths` they are left out, and None is returned.

    >>> last_window(torch.tensor([[1, 2, 3], [4, 5, 6]]), None, 2)
    (tensor([[2, 3],
            [5, 6]]), None)
    >>> last_window(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([2, 1]), 2)
    (tensor([[1, 2],
            [4, 4]]), tensor([[ True,  True],
            [False,  True]]))
    """
    if lengths is None:
        return x[:, max(0, x.shape[1] - count) :], None
    index = lengths[:, None] - count + torch.arange(count, device=x.device)
    places = index.clamp_min(0).reshape(*index.shape, *(1,) * (x.dim() - 2))
    return x.gather(1, places.expand(*index.shape, *x.shape[2:])), index >= 0
