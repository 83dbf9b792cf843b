"""What every sequence mixer is: a map along time, from inputs (..., L, D) to outputs (..., L, F)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError
from sdssm.ops.products import product
from sdssm.settings import check_at_least

#: What a recurrent mixer remembers: tensors (B, ...), alone or in tuples; None before the first input.
State = Any
#: Up to so many symbols a row of a table is picked by a product with one-hot vectors: its gradient is a product too,
#: where that of an index would add up thousands of rows one by one.
FEW = 16


@dataclass(frozen=True, kw_only=True)
class MixerSettings:
    """Base of the settings of each mixer, see `sdssm.settings`."""

    def shape(self) -> Self:
        """These settings without what may differ between models trained side by side."""
        return self

    def ramps(self) -> Mapping[str, tuple[float, float | None]]:
        """Buffers of the mixer that change during training, each from one value to another; None: it stays."""
        return {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Who holds the settings of some mixer may ask for what that one has."""


class Mixer(nn.Module, ABC):
    """A layer that mixes along time.

    A mixer is written in two halves, for one batch dimension: `parts` is what an input does at its own place, `mix`
    what happens along time. Where inputs are symbols, `parts` runs over a table of V rows instead of B L inputs.
    A recurrent mixer also has `one`, a single step from a state.
    """

    name: ClassVar[str]  # in the catalogue
    Settings: ClassVar[type[Any]]  # its settings
    causal: ClassVar[bool] = True  # an output depends on no later input
    recurrent: ClassVar[bool] = True  # it can go on from a state, and step
    has_output_projection: ClassVar[bool] = False  # it ends in a linear map back to the width of its inputs
    can_query: ClassVar[bool] = False  # it can be asked after all inputs at once what it would say of another one next
    emulates: ClassVar[str] = ""  # what is proved of it, in one sentence

    def __init__(self, width: int, settings: Any) -> None:
        super().__init__()
        check_at_least("width", width, 1)
        self.width, self.settings = width, settings

    @property
    @abstractmethod
    def outputs(self) -> int:
        """F, entries of an output."""

    @property
    def longest(self) -> int | None:
        """The most inputs that it takes; None for any number."""
        return None

    @property
    def numbers(self) -> int:
        """About how many numbers one symbol needs in memory while a string is read."""
        return max(self.width, self.outputs)

    @property
    def numbers_per_input(self) -> int:
        """The same for an input that is no symbol: what it does has to be kept for each."""
        return self.numbers

    @property
    def pairs(self) -> int:
        """The same for each pair of inputs of a string, where it is trained."""
        return 0

    @property
    def kernel_size(self) -> int:
        """Rows of the matrices that a GPU's kernels have to hold, if it has such."""
        return 1

    def transition_parameters(self) -> int:
        """Parameters that say how one state becomes the next, for a mixer whose transitions depend on its inputs."""
        return 0

    # -- the two halves, and a step ------------------------------------------------------------------------------------

    @abstractmethod
    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """What inputs (..., D) do, each at its own place: tensors (..., *)."""

    @abstractmethod
    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: State = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Parts (B, L, *) -> outputs (B, L, F), and the state after the last input where `carry` asks for it.

        `lengths` (B,) say where rows end; what comes past an end is of no account, and there is no state with them.
        `noise` is chance for a mixer that needs it, of the shape that `chance` names, on [0, 1).
        """

    def mix_query(self, parts: tuple[Tensor, ...], asked: tuple[Tensor, ...], state: State = None) -> Tensor:
        """For a mixer that `can_query`: after each input, the output for another one in the place of the next.

        Parts (B, L, *) of the inputs, and of those others -> (B, L, F). So all prefixes are asked in one pass.
        """
        raise ModelError(f"{self.name} cannot be asked after many inputs at once")

    def one(self, u: Tensor, state: State = None) -> tuple[Tensor, State]:
        """A single step: u (B, D) -> output (B, F) and the state after it."""
        raise ModelError(f"{self.name} has no state to step from; give it whole sequences")

    def chance(self, length: int) -> tuple[int, ...] | None:
        """The shape of the noise that it needs for inputs of a length; None: no chance in it."""
        return None

    # -- where inputs are symbols --------------------------------------------------------------------------------------

    def symbols(self, table: Tensor | None) -> Any:
        """What each symbol does, from a table of their inputs (V, D); None is the table of all one-hot inputs."""
        if table is None:
            like = next(self.parameters())
            table = torch.eye(self.width, dtype=like.dtype, device=like.device)
        return self.parts(table)

    def mix_symbols(
        self,
        symbols: Any,
        tokens: Tensor,
        state: State = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """`mix` of the symbols that tokens (B, L) name."""
        parts = tuple(pick(part, tokens) for part in symbols)
        return self.mix(parts, state, lengths=lengths, carry=carry, noise=noise)

    # -- for everybody -------------------------------------------------------------------------------------------------

    def forward(
        self, u: Tensor, state: State = None, lengths: Tensor | None = None, noise: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """u (..., L, D), a state to go on from, lengths (...) -> outputs (..., L, F) and the state after them."""
        self.check_inputs(u)
        self.check_length(u.shape[-2])
        lead = u.shape[:-2]
        parts = self.parts(u.reshape(-1, *u.shape[-2:]))
        rows = None if lengths is None else lengths.reshape(-1)
        flat = each(lambda x: x.reshape(-1, *x.shape[len(lead) :]), state)
        out, after = self.mix(parts, flat, lengths=rows, carry=lengths is None, noise=noise)
        return out.reshape(*lead, *out.shape[1:]), each(lambda x: x.reshape(*lead, *x.shape[1:]), after)

    def step(self, u: Tensor, state: State = None) -> tuple[Tensor, State]:
        """One step: u (..., D), a state -> output (..., F), the state after it."""
        self.check_inputs(u)
        lead = u.shape[:-1]
        flat = each(lambda x: x.reshape(-1, *x.shape[len(lead) :]), state)
        out, after = self.one(u.reshape(-1, u.shape[-1]), flat)
        return out.reshape(*lead, *out.shape[1:]), each(lambda x: x.reshape(*lead, *x.shape[1:]), after)

    def check_inputs(self, u: Tensor) -> None:
        like = next(self.parameters())
        if u.shape[-1:] != (self.width,) or u.dtype != like.dtype:
            raise ModelError(
                f"inputs are {u.dtype} of shape {tuple(u.shape)}; this layer reads {like.dtype} vectors of "
                f"{self.width} entries"
            )

    def check_length(self, length: int) -> None:
        if self.longest is not None and length > self.longest:
            raise ModelError(f"{self.name} was made for at most {self.longest:,} inputs, and {length:,} were given")

    def extra_repr(self) -> str:
        return f"width={self.width}, {self.settings}"


def each(change: Callable[[Tensor], Tensor], state: State) -> State:
    """A state with every tensor in it changed.

    >>> each(lambda x: x + 1, (torch.zeros(1), (torch.ones(1), None)))
    (tensor([1.]), (tensor([2.]), None))
    """
    if state is None or isinstance(state, Tensor):
        return None if state is None else change(state)
    return tuple(each(change, part) for part in state)


def pick(table: Tensor, tokens: Tensor) -> Tensor:
    """The rows of a table (V, *) that tokens (...) name: (..., *).

    >>> pick(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0, 1])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    if len(table) > FEW or not table.is_floating_point():
        return table[tokens]
    chosen = (tokens[..., None] == torch.arange(len(table), device=tokens.device)).to(table.dtype)
    return product(chosen, table.flatten(1)).reshape(*tokens.shape, *table.shape[1:])
