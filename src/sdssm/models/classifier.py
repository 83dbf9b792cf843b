"""The only model class: tokens -> embedding -> mixers -> readout -> a label for every prefix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn

from sdssm.errors import ModelError, OutputError
from sdssm.files import reason, shown_path, write_whole
from sdssm.layers import SelectiveDense, initial
from sdssm.layers.selective_dense import Symbols
from sdssm.models.readout import Readout, layer_norm
from sdssm.models.settings import ModelSettings
from sdssm.ops.checks import check_range
from sdssm.settings import at_least, plain

#: The files of a saved model.
CONFIG, WEIGHTS = "config.json", "model.safetensors"

#: The states of all layers, each (..., N); None before the first symbol.
State = tuple[Tensor, ...] | None
#: Where a single layer stands inside the module; its parameters are named without this.
SINGLE = "layers.0."
#: Its parts, which are those of the model.
PARTS = ("dictionary", "selection", "input_matrix", "initial_state", "skip", "column_norm", "temperature")


class Run(NamedTuple):
    """Features after every symbol (..., L, F), and of each layer the states (..., L, N) and the last (..., N)."""

    outputs: Tensor
    states: tuple[Tensor, ...]
    final: tuple[Tensor, ...]


class Block(nn.Module):
    """A mixer in a pre-norm residual block: h + W mixer(LayerNorm(h))."""

    def __init__(self, settings: ModelSettings, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mixer = SelectiveDense(width, settings.mixer, generator=generator)
        self.projection = initial.linear(self.mixer.outputs, width, generator)


class Classifier(nn.Module):
    """Tells the label of every prefix of a string: tokens (..., L) -> logits (..., L, C).

    >>> model = Classifier(ModelSettings(), n_symbols=2, n_classes=60, generator=torch.Generator().manual_seed(0))
    >>> logits = model(torch.tensor([[0, 1, 1, 0]]))
    >>> logits.shape
    torch.Size([1, 4, 60])
    >>> first, state = model.advance(torch.tensor([[0, 1]]))      # a string in pieces
    >>> rest, state = model.advance(torch.tensor([[1, 0]]), state)
    >>> torch.allclose(torch.cat([first, rest], dim=1), logits, atol=1e-4)
    True
    """

    causal = True  # a label depends on what was read before it alone

    def __init__(self, settings: ModelSettings, n_symbols: int, n_classes: int, *, generator: torch.Generator) -> None:
        super().__init__()
        at_least("n_symbols", n_symbols, 1)
        at_least("n_classes", n_classes, 1)
        self.settings, self.n_symbols, self.n_classes = settings, n_symbols, n_classes
        inputs = n_symbols + settings.query
        width = settings.embedding or settings.width or inputs
        if settings.embedding is None and width < inputs:
            raise ModelError(
                f"width is {width}, but {n_symbols} symbols{' and the query' if settings.query else ''} need {inputs}"
            )
        self.query = (inputs if settings.embedding else width) - 1 if settings.query else None
        self.embedding = None if settings.embedding is None else initial.normal((inputs, width), generator)
        self.bare = settings.layers == 1
        if self.bare:
            mixer = SelectiveDense(width, settings.mixer, generator=generator)
            self.layers = nn.ModuleList([mixer])
            features = mixer.outputs
        else:
            self.layers = nn.ModuleList([Block(settings, width, generator) for _ in range(settings.layers)])
            features = width
        self.norm = layer_norm(settings.norm, features)
        self.readout = Readout(settings, features, n_classes, generator)
        many = settings.state_embedding
        self.start = None if many is None else initial.linear(many, settings.mixer.state, generator, bias=False)
        # Rows have unit length in expectation; fixed, and saved with the weights.
        vectors = None if many is None else torch.randn(n_classes, many, generator=generator) * many**-0.5
        self.register_buffer("vectors", vectors)
        self.vectors: Tensor | None

    # -- reading strings ---------------------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, *, starts: Tensor | None = None) -> Tensor:
        """The logits after every symbol: tokens (..., L) -> (..., L, C)."""
        return self.advance(tokens, starts=starts)[0]

    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Logits after every symbol of the next piece of a string, and the state to go on from.

        With a state embedding, `starts` (...) are the automaton's states that the strings start from.
        """
        tokens = self._checked(tokens)
        if tokens.dim() == 1:  # one string: the scans want a batch
            logits, state = self.advance(
                tokens[None], _with_row(state), starts=None if starts is None else starts[None]
            )
            return logits[0], None if state is None else tuple(x[0] for x in state)
        symbols = self._symbols()
        run = self._run(symbols, tokens, self._first(state, starts), None)
        features = run.outputs if self.query is None else self._ask(symbols, run.states)
        return self.logits(features), run.final

    def step(self, token: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """One symbol at a time, in constant memory: token (...) -> logits (..., C), state."""
        state = self._first(state, starts)
        features, state = self._step(self._inputs(self._checked(token)), state)
        if self.query is not None:
            features = self._ask(self._symbols(), state)
        return self.logits(features), state

    def logits(self, features: Tensor) -> Tensor:
        """The readout: (..., F) -> (..., C)."""
        return self.readout(features if self.norm is None else self.norm(features), self.vectors)  # type: ignore[no-any-return]  # a module's

    def loss(
        self,
        tokens: Tensor,
        labels: Tensor,
        *,
        lengths: Tensor | None = None,
        starts: Tensor | None = None,
        noise: Tensor | None = None,
        attraction: Tensor | None = None,
        classes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of the labels (B,) of whole strings (B, L), and how many are told right.

        `lengths` (B,) cut the strings; `noise` (B, hidden) on [0, 1) decides what dropout drops; `attraction` () and
        `classes` (C,) are those of `Readout.loss`.
        """
        symbols = self._symbols()
        run = self._run(symbols, tokens, self._first(None, starts), lengths)
        if self.query is not None:
            features = self._ask(symbols, run.final)
        elif self.bare and not self.settings.mixer.skip:
            features = run.final[0]
        elif lengths is None:
            features = run.outputs[:, -1]
        else:
            at = (lengths - 1)[:, None, None].expand(-1, 1, run.outputs.shape[-1])
            features = run.outputs.gather(1, at)[:, 0]
        return self.readout.loss(
            features, labels, self.norm, vectors=self.vectors, noise=noise, attraction=attraction, classes=classes
        )

    def symbol_matrices(self) -> Tensor | None:
        """The transition matrix of each symbol, (V, N, N), of a single bare layer; None for a stack."""
        if not self.bare:
            return None
        return self._symbols().A[: self.n_symbols]

    # -- through the layers ------------------------------------------------------------------------------------------

    def _symbols(self) -> Symbols:
        """What each symbol does to the first layer's state."""
        first = self.layers[0]
        if isinstance(first, Block):
            return first.mixer.symbols(first.norm(self._table()))
        return self._mixer(0).symbols(self.embedding)

    def _run(self, symbols: Symbols, tokens: Tensor, state: State, lengths: Tensor | None) -> Run:
        """All layers over (..., L)."""
        if self.bare:
            mixer = self._mixer(0)
            states, final = mixer.scan_symbols(symbols, tokens, _of(state, 0), lengths)
            outputs = states if mixer.skip is None else mixer.output(states, self._inputs(tokens))
            return Run(outputs, (states,), (final,))
        h = self._inputs(tokens)
        every, finals = [], []
        for i, block in enumerate(self.layers):
            assert isinstance(block, Block)
            u = block.norm(h)
            if i == 0:
                states, final = block.mixer.scan_symbols(symbols, tokens, _of(state, i), lengths)
            else:
                states, final = block.mixer.scan(u, _of(state, i), lengths)
            h = h + block.projection(block.mixer.output(states, u))
            every.append(states)
            finals.append(final)
        return Run(h, tuple(every), tuple(finals))

    def _step(self, u: Tensor, state: State) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All layers, one step: inputs (..., D) -> features (..., F) and states."""
        if self.bare:
            out, x = self._mixer(0).step(u, _of(state, 0))
            return out, (x,)
        h, after = u, []
        for i, block in enumerate(self.layers):
            assert isinstance(block, Block)
            out, x = block.mixer.step(block.norm(h), _of(state, i))
            h = h + block.projection(out)
            after.append(x)
        return h, tuple(after)

    def _ask(self, symbols: Symbols, state: tuple[Tensor, ...]) -> Tensor:
        """Features after one more step with the query, from each of the states (..., N)."""
        assert self.query is not None
        if self.bare:
            mixer = self._mixer(0)
            x = mixer.step_symbol(symbols, self.query, state[0])
            # Every training step comes here: without a skip no table is made to be looked at by nobody.
            return x if mixer.skip is None else mixer.output(x, self._table()[self.query])
        u = self._table()[self.query]
        return self._step(u.expand(*state[0].shape[:-1], -1), state)[0]

    def _mixer(self, layer: int) -> SelectiveDense:
        mixer = self.layers[layer]
        assert isinstance(mixer, SelectiveDense)
        return mixer

    def _table(self) -> Tensor:
        """The input of every symbol, (V, D)."""
        if self.embedding is not None:
            return self.embedding
        like = self.readout.weight
        width = self.settings.width or self.n_symbols + self.settings.query
        return torch.eye(width, dtype=like.dtype, device=like.device)

    def _checked(self, tokens: Tensor) -> Tensor:
        """Symbols alone: what else has a row in the table, as the query does, is none."""
        check_range("the model", "tokens", tokens, 0, self.n_symbols - 1, "symbols are")
        return tokens.long()

    def _inputs(self, tokens: Tensor) -> Tensor:
        return self._table()[tokens]

    def _first(self, state: State, starts: Tensor | None) -> State:
        """The state to start from: the one given, or with a state embedding that of the automaton's state."""
        if state is not None or self.start is None:
            return state
        if starts is None:
            raise ModelError("this model starts from the automaton's state; pass starts=, one state a string")
        assert self.vectors is not None
        return (self.start(self.vectors[starts]),)

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors, each whole or not at all; `sdssm.load` reads them back."""
        folder = Path(folder)
        try:
            taken = "format" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            taken = False
        if taken:
            raise OutputError(
                f"{shown_path(folder)} holds a run, which saving a model would spoil; choose another folder"
            )
        config = {"model": plain(self.settings), "n_symbols": self.n_symbols, "n_classes": self.n_classes}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / CONFIG, json.dumps(config, indent=1).encode())
            write_whole(folder / WEIGHTS, self.packed())
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write a model into {shown_path(folder)}: {reason(error)}") from None

    def packed(self) -> bytes:
        """The weights as the bytes of a safetensors file; nothing is pickled."""
        return save({name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()})

    def __getattr__(self, name: str) -> Any:
        """The parts of a single layer, by the names they go by: model.dictionary; None for one that it lacks."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in PARTS or not self.__dict__.get("bare"):
                raise
            return getattr(self._mixer(0), name)

    # -- names -------------------------------------------------------------------------------------------------------
    # A single bare layer is the model itself: its parameters are called what the paper calls them.

    def _public(self, name: str) -> str:
        return name.replace(SINGLE, "", 1) if self.bare else name

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by name; those of a single layer without the name of its place."""
        for name, parameter in super().named_parameters(prefix, recurse, remove_duplicate):
            yield self._public(name), parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers by name, in the same way."""
        for name, buffer in super().named_buffers(prefix, recurse, remove_duplicate):
            yield self._public(name), buffer

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and buffers by name, as in `named_parameters`."""
        found = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        # A destination belongs to a module around this one, which names its parts itself.
        return found if destination is not None else {self._public(name): value for name, value in found.items()}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """The reverse of `state_dict`."""
        inner = {self._public(name): name for name in super().state_dict()}
        return super().load_state_dict({inner.get(k, k): v for k, v in state_dict.items()}, strict, assign)


def _of(state: State, layer: int) -> Tensor | None:
    return None if state is None else state[layer]


def _with_row(state: State) -> State:
    return None if state is None else tuple(x[None] for x in state)
