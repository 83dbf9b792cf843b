"""The only model class: tokens -> embedding -> mixers -> readout -> a label for every prefix."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from sdssm.errors import ModelError, OutputError
from sdssm.files import reason, shown_path, write_whole
from sdssm.layers import Mixer, SelectiveDense, initial
from sdssm.layers.mixer import each, pick
from sdssm.models.block import Block
from sdssm.models.readout import Readout, layer_norm
from sdssm.models.settings import ModelSettings
from sdssm.ops.checks import check_range
from sdssm.settings import at_least, plain

#: The files of a saved model.
CONFIG, WEIGHTS = "config.json", "model.safetensors"

#: The states of all layers, each a tensor (..., N) or tuples of such; None before the first symbol.
State = tuple[Any, ...] | None
#: Where the mixer of an SD-SSM alone stands inside the module; its parameters are named without this.
SINGLE = "layers.0.mixer."
#: Its parts, which are those of the model.
PARTS = ("dictionary", "selection", "input_matrix", "initial_state", "skip", "column_norm", "temperature")


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

    def __init__(self, settings: ModelSettings, n_symbols: int, n_classes: int, *, generator: torch.Generator) -> None:
        super().__init__()
        at_least("n_symbols", n_symbols, 1)
        at_least("n_classes", n_classes, 1)
        self.settings, self.n_symbols, self.n_classes = settings, n_symbols, n_classes
        inputs = n_symbols + settings.query
        embedded = settings.embedding is not None
        width = (settings.embedding or inputs) if embedded else settings.width or inputs
        if not embedded and width < inputs:
            raise ModelError(
                f"width is {width}, but {n_symbols} symbols{' and the query' if settings.query else ''} need {inputs}"
            )
        self.query = (inputs if embedded else width) - 1 if settings.query else None
        self.embedding = initial.embedding(settings.embedding_init, inputs, width, generator) if embedded else None
        blocks = []
        for layer in range(settings.layers):
            blocks.append(Block(settings, width, last=layer == settings.layers - 1, generator=generator))
            width = blocks[-1].outputs
        self.layers = nn.ModuleList(blocks)
        # An SD-SSM alone is the model of the paper: read from its states, and called by the paper's names.
        self.bare = settings.layers == 1 and blocks[0].kind == "bare" and isinstance(blocks[0].mixer, SelectiveDense)
        self.norm = layer_norm(settings.norm, width)
        self.readout = Readout(settings, width, n_classes, generator)
        many = settings.state_embedding
        state = getattr(settings.mixer, "state", 0)
        self.start = None if many is None else initial.linear(many, state, generator, bias=False)
        # Rows have unit length in expectation; fixed, and saved with the weights.
        vectors = None if many is None else torch.randn(n_classes, many, generator=generator) * many**-0.5
        self.register_buffer("vectors", vectors)
        self.vectors: Tensor | None

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def mixers(self) -> list[Mixer]:
        return [block.mixer for block in self.blocks]

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.layers if isinstance(block, Block)]

    @property
    def causal(self) -> bool:
        """Whether what it says after a symbol depends on no later one."""
        return all(mixer.causal for mixer in self.mixers)

    @property
    def recurrent(self) -> bool:
        """Whether a string can come in pieces, with a state carried from one to the next."""
        return all(mixer.recurrent and mixer.causal for mixer in self.mixers)

    @property
    def prefixes(self) -> bool:
        """Whether one pass over a string tells of every prefix what it would tell of that string alone."""
        # Where places are drawn by the length of a string, a prefix stands elsewhere than it would alone.
        drawn = any(mixer.chance(1) is not None for mixer in self.mixers)
        return self.recurrent or (self.causal and self.query is None and not drawn)

    @property
    def longest(self) -> int | None:
        """The longest string that it reads; None for any length."""
        limits = [mixer.longest for mixer in self.mixers if mixer.longest is not None]
        return min(limits) - self.settings.query if limits else None

    @property
    def numbers(self) -> int:
        """About how many numbers one symbol needs in memory while strings are read."""
        first, *others = self.mixers
        return max(self.n_classes, first.numbers + sum(mixer.own_numbers for mixer in others))

    def chance(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the noise that training on strings (B, L) needs, by name.

        What has an entry for each place has places first: the noise of shorter strings is then where that of longer
        ones begins.
        """
        found: dict[str, tuple[int, ...]] = {}
        if self.settings.dropout:
            found["readout"] = (batch, self.settings.hidden)
        length += self.settings.query
        if self.settings.block_dropout:
            found["blocks"] = (length, len(self.layers), 2, batch, self.blocks[0].outputs)
        shapes = [mixer.chance(length) for mixer in self.mixers]
        if shapes[0] is not None:
            found["mixers"] = (len(shapes), *shapes[0])
        return found

    # -- reading strings ---------------------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, *, starts: Tensor | None = None) -> Tensor:
        """The logits after every symbol: tokens (..., L) -> (..., L, C)."""
        return self.advance(tokens, starts=starts)[0]

    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Logits after every symbol of the next piece of a string, and the state to go on from.

        With a state embedding, `starts` (...) are the automaton's states that the strings start from. A model that is
        not recurrent reads whole strings only, and goes on from nothing.
        """
        tokens = self._checked(tokens)
        lead, length = tokens.shape[:-1], tokens.shape[-1]
        rows = math.prod(lead)
        state = self._first(_flat(state, lead), None if starts is None else starts.reshape(rows))
        if not length:  # nothing is read, and nothing changes
            return self.readout.weight.new_zeros(*lead, 0, self.n_classes), state
        logits, state = self._advance(tokens.reshape(rows, length), state)
        after = each(lambda x: x.reshape(*lead, *x.shape[1:]), state)
        return logits.reshape(*lead, length, self.n_classes), after

    def _advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """`advance` for (B, L)."""
        if not self.recurrent and state is not None:
            raise ModelError(f"{self.settings.name} cannot go on from a state; give it whole strings")
        if not self.prefixes:
            ends = [self.last(tokens[:, : end + 1]) for end in range(tokens.shape[1])]
            return torch.stack(ends, 1), None
        if self.query is None:
            outputs, after = self._run(tokens, state)
            return self.logits(outputs), after
        if self.bare:
            symbols = self._symbols()
            states, final = self.mixers[0].mix_symbols(symbols, tokens, _of(state, 0))
            return self.logits(self._ask(symbols, states)), (final,)
        # What comes after a prefix and the query must not be kept: one symbol at a time, in constant memory.
        table, told = self._table(), []
        for u in pick(table, tokens).unbind(1):
            _, state = self._step(u, state)
            told.append(self._step(table[self.query].expand_as(u), state)[0])
        return self.logits(torch.stack(told, 1)), state

    def step(self, token: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """One symbol at a time, in constant memory: token (...) -> logits (..., C), state."""
        token = self._checked(token)
        lead, rows = token.shape, token.numel()
        state = self._first(_flat(state, lead), None if starts is None else starts.reshape(rows))
        table = self._table()
        features, state = self._step(pick(table, token.reshape(rows)), state)
        if self.query is not None:
            features = self._step(table[self.query].expand(rows, -1), state)[0]
        after = each(lambda x: x.reshape(*lead, *x.shape[1:]), state)
        return self.logits(features).reshape(*lead, self.n_classes), after

    def last(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> Tensor:
        """The logits after the last symbol alone: (B, L) -> (B, C)."""
        return self.logits(self._features(tokens, self._first(state, starts), None, {}))

    def carry(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> State:
        """The state after a piece (B, L), when nobody asks what is said of it."""
        return self._run(tokens, self._first(state, starts))[1]

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
        noise: Mapping[str, Tensor] | None = None,
        attraction: Tensor | None = None,
        classes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of the labels (B,) of whole strings (B, L), and how many are told right.

        `lengths` (B,) cut the strings; `noise` on [0, 1) is what `chance` asks for; `attraction` () and `classes` (C,)
        are those of `Readout.loss`.
        """
        noise = noise or {}
        features = self._features(tokens, self._first(None, starts), lengths, noise)
        return self.readout.loss(
            features,
            labels,
            self.norm,
            vectors=self.vectors,
            noise=noise.get("readout"),
            attraction=attraction,
            classes=classes,
        )

    def symbol_matrices(self) -> Tensor | None:
        """The transition matrix of each symbol, (V, N, N), of a single SD-SSM; None for any other."""
        return self._symbols().A[: self.n_symbols] if self.bare else None

    # -- through the layers ------------------------------------------------------------------------------------------

    def _symbols(self) -> Any:
        """What each symbol does to the first layer's state."""
        first = self.blocks[0]
        table = self._embedded()
        if table is not None or first.norm is not None:
            table = first.inputs(self._table())
        return first.mixer.symbols(table)

    def _features(self, tokens: Tensor, state: State, lengths: Tensor | None, noise: Mapping[str, Tensor]) -> Tensor:
        """What is read at the end of strings (B, L) of these lengths: (B, F)."""
        if self.bare:
            # From the final state alone: its gradient then needs no pass over all states.
            mixer, symbols = self.mixers[0], self._symbols()
            if self.query is not None or symbols.skip is None:
                _, final = mixer.mix_symbols(symbols._replace(skip=None), tokens, _of(state, 0), lengths=lengths)
                return final if self.query is None else self._ask(symbols, final)
        if self.query is not None:
            tokens, lengths = self._asked(tokens, lengths)
        return self._run(tokens, state, lengths=lengths, carry=False, ends=True, noise=noise)[0][:, 0]

    def _asked(self, tokens: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Strings (B, L) with the query after the last symbol of each, (B, L + 1)."""
        assert self.query is not None
        longer = torch.cat([tokens, torch.full_like(tokens[:, :1], self.query)], 1)
        if lengths is None:
            return longer, None
        ends = torch.arange(longer.shape[1], device=tokens.device) == lengths[:, None]
        return longer.masked_fill(ends, self.query), lengths + 1

    def _run(
        self,
        tokens: Tensor,
        state: State,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        ends: bool = False,
        noise: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, State]:
        """All layers over (B, L): features (B, L, F), and with `carry` the states after the last symbol.

        With `ends` the features at the end of each string alone, (B, 1, F).
        """
        noise, after = noise or {}, []
        h = tokens
        for i, block in enumerate(self.blocks):
            mixer = block.mixer
            cut = ends and block.last  # what stands after the last mixer is needed at the ends alone
            mixer.check_length(tokens.shape[1])
            own = noise["mixers"][i] if "mixers" in noise else None
            if i == 0:
                mixed, x = mixer.mix_symbols(
                    self._symbols(), tokens, _of(state, i), lengths=lengths, carry=carry, noise=own
                )
            else:
                parts = mixer.parts(block.inputs(h))
                mixed, x = mixer.mix(parts, _of(state, i), lengths=lengths, carry=carry, noise=own)
            drops = [noise["blocks"][:, i, j].movedim(0, 1) for j in range(2)] if "blocks" in noise else None
            if cut:
                h, mixed = _end(h, lengths), _end(mixed, lengths)
                drops = None if drops is None else [_end(drop, lengths) for drop in drops]
            if i == 0 and block.adds:
                h = pick(self._table(), h)
            h = block.after(h, mixed, drops)
            after.append(x)
        return h, tuple(after) if carry and self.recurrent else None

    def _step(self, u: Tensor, state: State) -> tuple[Tensor, tuple[Any, ...]]:
        """All layers, one step: inputs (B, D) -> features (B, F) and states."""
        h, after = u, []
        for i, block in enumerate(self.blocks):
            mixed, x = block.mixer.one(block.inputs(h), _of(state, i))
            h = block.after(h, mixed)
            after.append(x)
        return h, tuple(after)

    def _ask(self, symbols: Any, states: Tensor) -> Tensor:
        """Features of an SD-SSM after one more step with the query, from each of the states (..., N)."""
        mixer = self.mixers[0]
        assert isinstance(mixer, SelectiveDense) and self.query is not None
        x = mixer.step_symbol(symbols, self.query, states)
        return x if symbols.skip is None else x + symbols.skip[self.query]

    def _embedded(self) -> Tensor | None:
        scale = self.settings.embedding_scale
        return self.embedding if self.embedding is None or scale == 1 else self.embedding * scale

    def _table(self) -> Tensor:
        """The input of every symbol, (V, D)."""
        found = self._embedded()
        if found is not None:
            return found
        like = self.readout.weight
        width = self.settings.width or self.n_symbols + self.settings.query
        return torch.eye(width, dtype=like.dtype, device=like.device)

    def _checked(self, tokens: Tensor) -> Tensor:
        """Symbols alone: what else has a row in the table, as the query does, is none."""
        check_range("the model", "tokens", tokens, 0, self.n_symbols - 1, "symbols are")
        return tokens.long()

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
            return getattr(self.mixers[0], name)

    # -- names -------------------------------------------------------------------------------------------------------
    # An SD-SSM alone is the model itself: its parameters are called what the paper calls them.

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


def _of(state: State, layer: int) -> Any:
    return None if state is None else state[layer]


def _flat(state: State, lead: torch.Size) -> State:
    """A state of strings (*lead, L) as that of rows; with a single leading dimension as it is, also one for all."""
    if len(lead) == 1:
        return state
    found: State = each(lambda x: x.reshape(math.prod(lead), *x.shape[len(lead) :]), state)
    return found


def _end(x: Tensor, lengths: Tensor | None) -> Tensor:
    """What stands at the end of each row: (B, L, *) -> (B, 1, *)."""
    if lengths is None:
        return x[:, -1:]
    at = (lengths - 1).reshape(-1, *(1,) * (x.dim() - 1))
    return x.gather(1, at.expand(-1, 1, *x.shape[2:]))
