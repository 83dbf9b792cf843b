"""Tokens through the layers: embedding -> mixers -> the features that are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError
from sdssm.layers import Mixer, SelectiveDense, initial
from sdssm.layers.mixer import pick
from sdssm.models.block import Block
from sdssm.models.settings import ModelSettings
from sdssm.settings import check_at_least

#: The states of all layers, each a tensor (..., N) or tuples of such; None before the first symbol.
State = tuple[Any, ...] | None


class Stack(nn.Module):
    """A model without its readout: strings (B, L) to features, from states to states."""

    def __init__(self, settings: ModelSettings, n_symbols: int, *, generator: torch.Generator) -> None:
        super().__init__()
        check_at_least("n_symbols", n_symbols, 1)
        self.settings, self.n_symbols = settings, n_symbols
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
        self.outputs = width  #: F, of the features

    # -- parameters of a single-layer SD-SSM; any other model raises AttributeError ------------------------------------

    @property
    def dictionary(self) -> nn.Parameter:
        """The matrices A_i (K, N, N) that the selection mixes."""
        return self._single_layer().dictionary

    @property
    def selection(self) -> nn.Linear:
        """The linear map S u + s to the logits of the mixture."""
        return self._single_layer().selection

    @property
    def input_matrix(self) -> Any:
        """B (N, D), or None."""
        return self._single_layer().input_matrix

    @property
    def initial_state(self) -> Any:
        """The learned x_0 (N,), or None."""
        return self._single_layer().initial_state

    @property
    def skip(self) -> Any:
        """The skip matrix (N, D), or None."""
        return self._single_layer().skip

    def _single_layer(self) -> SelectiveDense:
        mixer = self.mixers[0]
        if not self.bare or not isinstance(mixer, SelectiveDense):
            raise AttributeError("not a single-layer SD-SSM")
        return mixer

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
        return self.recurrent or (self.causal and not drawn and (self.query is None or self.can_query))

    @property
    def can_query(self) -> bool:
        """Whether the query can be asked after all symbols at once."""
        return all(mixer.can_query for mixer in self.mixers)

    @property
    def longest(self) -> int | None:
        """The longest string that it reads; None for any length."""
        limits = [mixer.longest for mixer in self.mixers if mixer.longest is not None]
        return min(limits) - self.settings.query if limits else None

    # -- through the layers ------------------------------------------------------------------------------------------

    def _symbols(self) -> Any:
        """What each symbol does to the first layer's state."""
        first = self.blocks[0]
        table = self._scaled_embedding()
        if table is not None or first.norm is not None:
            table = first.inputs(self._table())
        return first.mixer.symbols(table)

    def _features(self, tokens: Tensor, state: State, lengths: Tensor | None, noise: Mapping[str, Tensor]) -> Tensor:
        """What is read at the end of strings (B, L) of these lengths: (B, F)."""
        if self.bare:
            # From the final state alone: its gradient then needs no pass over all states.
            mixer, symbols = self.mixers[0], self._symbols()
            if self.query is not None or symbols.skip is None:
                _, final = mixer.mix_symbols(
                    symbols._replace(skip=None), tokens, layer_state(state, 0), lengths=lengths
                )
                return final if self.query is None else self._query_step(symbols, final)
        if self.query is not None:
            tokens, lengths = self._with_query(tokens, lengths)
        return self._run(tokens, state, lengths=lengths, carry=False, ends=True, noise=noise)[0][:, 0]

    def _with_query(self, tokens: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
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
                    self._symbols(), tokens, layer_state(state, i), lengths=lengths, carry=carry, noise=own
                )
            else:
                parts = mixer.parts(block.inputs(h))
                mixed, x = mixer.mix(parts, layer_state(state, i), lengths=lengths, carry=carry, noise=own)
            drops = [noise["blocks"][:, i, j].movedim(0, 1) for j in range(2)] if "blocks" in noise else None
            if cut:
                h, mixed = _end(h, lengths), _end(mixed, lengths)
                drops = None if drops is None else [_end(drop, lengths) for drop in drops]
            if i == 0 and block.adds:
                h = pick(self._table(), h)
            h = block.after(h, mixed, drops)
            after.append(x)
        return h, tuple(after) if carry and self.recurrent else None

    def _run_query(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features of the query after each symbol of (B, L), (B, L, F), and the states after the last symbol.

        The query is no part of what follows it: beside the layers' inputs h there are those for the query, q.
        """
        assert self.query is not None
        table, symbols, after = self._table(), self._symbols(), []
        h, q = pick(table, tokens), table[self.query].expand(*tokens.shape, -1)
        for i, block in enumerate(self.blocks):
            mixer, x = block.mixer, layer_state(state, i)
            if i == 0:
                parts = tuple(pick(part, tokens) for part in symbols)
                own = tuple(part[self.query].expand(*tokens.shape, *part.shape[1:]) for part in symbols)
            else:
                parts, own = mixer.parts(block.inputs(h)), mixer.parts(block.inputs(q))
            q = block.after(q, mixer.mix_query(parts, own, x))
            if not block.last or self.recurrent:  # for its outputs, or for its state alone
                mixed, x = mixer.mix(parts, x, carry=self.recurrent)
                h = h if block.last else block.after(h, mixed)
            after.append(x)
        return q, tuple(after) if self.recurrent else None

    def _step(self, u: Tensor, state: State) -> tuple[Tensor, tuple[Any, ...]]:
        """All layers, one step: inputs (B, D) -> features (B, F) and states."""
        h, after = u, []
        for i, block in enumerate(self.blocks):
            mixed, x = block.mixer.one(block.inputs(h), layer_state(state, i))
            h = block.after(h, mixed)
            after.append(x)
        return h, tuple(after)

    def _query_step(self, symbols: Any, states: Tensor) -> Tensor:
        """Features of an SD-SSM after one more step with the query, from each of the states (..., N)."""
        mixer = self.mixers[0]
        assert isinstance(mixer, SelectiveDense) and self.query is not None
        x = mixer.step_symbol(symbols, self.query, states)
        return x if symbols.skip is None else x + symbols.skip[self.query]

    def _scaled_embedding(self) -> Tensor | None:
        scale = self.settings.embedding_scale
        return self.embedding if self.embedding is None or scale == 1 else self.embedding * scale

    def _table(self) -> Tensor:
        """The input of every symbol, (V, D)."""
        found = self._scaled_embedding()
        if found is not None:
            return found
        like = next(self.layers.parameters())
        width = self.settings.width or self.n_symbols + self.settings.query
        return torch.eye(width, dtype=like.dtype, device=like.device)


def layer_state(state: State, layer: int) -> Any:
    """The state of one layer; None before the first symbol."""
    return None if state is None else state[layer]


def _end(x: Tensor, lengths: Tensor | None) -> Tensor:
    """What stands at the end of each row: (B, L, *) -> (B, 1, *)."""
    if lengths is None:
        return x[:, -1:]
    at = (lengths - 1).reshape(-1, *(1,) * (x.dim() - 1))
    return x.gather(1, at.expand(-1, 1, *x.shape[2:]))
