"""The layers of a model: tokens -> embedding -> mixers -> features for the readout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError
from sdssm.layers import Mixer, SelectiveDense, initial
from sdssm.layers.channels import integers
from sdssm.layers.mixer import last_position, select_rows
from sdssm.layers.selective_dense import SymbolTransitions
from sdssm.models.block import Block
from sdssm.models.settings import ModelSettings
from sdssm.settings import check_at_least

#: The states of all layers, each a tensor (..., N) or a tuple of tensors; None before the first symbol.
State = tuple[Any, ...] | None


class Stack(nn.Module):
    """A model without its readout: tokens (B, L) and states -> features (B, L, F) and states."""

    def __init__(self, settings: ModelSettings, n_symbols: int, *, generator: torch.Generator) -> None:
        super().__init__()
        check_at_least("n_symbols", n_symbols, 1)
        self.settings, self.n_symbols = settings, n_symbols
        needed = n_symbols + settings.query
        inputs = settings.width or needed  # entries of a one-hot input; those between symbols and query are unused
        if inputs < needed:
            query = " and the query" if settings.query else ""
            raise ModelError(
                f"width is {inputs}, but {n_symbols} symbols{query} need {needed}; set width={needed}, or leave it out"
            )
        embedded = settings.embedding is not None
        width = settings.embedding or inputs
        self.query = inputs - 1 if settings.query else None
        self.embedding = initial.embedding(settings.embedding_init, inputs, width, generator) if embedded else None
        blocks = []
        for layer in range(settings.layers):
            blocks.append(Block(settings, width, last=layer == settings.layers - 1, generator=generator))
            width = blocks[-1].outputs
        self.layers = nn.ModuleList(blocks)
        # The model of the paper: the readout uses the states of a single SD-SSM layer, without a residual block.
        self.is_single_sd_ssm = (
            settings.layers == 1 and blocks[0].kind == "bare" and isinstance(blocks[0].mixer, SelectiveDense)
        )
        self.outputs = width  #: F, the width of the features

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
        """The parameter of the learned x_0 (N,), or None."""
        return self._single_layer().initial_state

    @property
    def first_state(self) -> Any:
        """The state x_0 (N,) before the first symbol, or None if none is learned.

        It is the parameter `initial_state`, or with another setting `transition` than signed a function of it.
        """
        return self._single_layer().first_state

    @property
    def skip(self) -> Any:
        """The skip matrix (N, D), or None."""
        return self._single_layer().skip

    def _single_layer(self) -> SelectiveDense:
        mixer = self.mixers[0]
        if not self.is_single_sd_ssm or not isinstance(mixer, SelectiveDense):
            raise AttributeError(f"only a single-layer SD-SSM has this attribute; the model is {self.settings.name}")
        return mixer

    # -- properties --------------------------------------------------------------------------------------------------

    @property
    def mixers(self) -> list[Mixer]:
        """The mixers of all layers."""
        return [block.mixer for block in self.blocks]

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all layers."""
        return [block for block in self.layers if isinstance(block, Block)]

    @property
    def is_causal(self) -> bool:
        """Whether the prediction for a prefix does not depend on later symbols."""
        return all(mixer.is_causal for mixer in self.mixers)

    @property
    def is_recurrent(self) -> bool:
        """Whether a string can be read in pieces, with a state carried from one piece to the next."""
        return all(mixer.is_recurrent and mixer.is_causal for mixer in self.mixers)

    @property
    def can_read_prefixes_at_once(self) -> bool:
        """Whether one pass over a string gives the same predictions as reading each prefix separately."""
        # Random positions depend on the length of the string, so a prefix has other positions than by itself.
        is_random = any(mixer.noise_shape(1) is not None for mixer in self.mixers)
        return self.is_recurrent or (self.is_causal and not is_random and (self.query is None or self.can_query))

    @property
    def can_query(self) -> bool:
        """Whether the query can be read after all prefixes in one pass."""
        return all(mixer.can_query for mixer in self.mixers)

    @property
    def longest(self) -> int | None:
        """The largest string length that the model can read; None if there is no limit."""
        limits = [mixer.longest for mixer in self.mixers if mixer.longest is not None]
        return min(limits) - self.settings.query if limits else None

    # -- running the layers ------------------------------------------------------------------------------------------

    def symbol_parts(self) -> Any:
        """Return the `symbol_parts` of the first layer; for an SD-SSM its `SymbolTransitions`."""
        first = self.blocks[0]
        table = self._scaled_embedding()
        if table is not None or first.norm is not None:
            table = first.inputs(self.input_table())
        return first.mixer.symbol_parts(table)

    def _features(
        self,
        tokens: Tensor,
        state: State,
        lengths: Tensor | None,
        noise: Mapping[str, Tensor],
        finals: tuple[SymbolTransitions, Tensor] | None = None,
    ) -> Tensor:
        """Return the features at the end of strings: tokens (B, L), lengths (B,) -> (B, F).

        `finals` is the result of `_final_states` for the same strings, if it is known.
        """
        if self.is_single_sd_ssm and (self.query is not None or self.skip is None):
            symbols, final = finals or self._final_states(tokens, state, lengths)
            return final if self.query is None else self.query_step(symbols, final)
        if self.query is not None:
            tokens, lengths = self._with_query(tokens, lengths)
        return self._run(tokens, state, lengths=lengths, carry=False, ends=True, noise=noise)[0].squeeze(1)

    def _final_states(self, tokens: Tensor, state: State, lengths: Tensor | None) -> tuple[SymbolTransitions, Tensor]:
        """Return the transitions of a single-layer SD-SSM, and its states (B, N) at the end of strings (B, L).

        Using only the final state, the gradient needs no pass over all states.
        """
        symbols, _, final = self._scan_states(tokens, state, lengths)
        return symbols, final

    def _scan_states(
        self, tokens: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[SymbolTransitions, Tensor, Tensor]:
        """Return the transitions of a single-layer SD-SSM, its states (B, L, N) and final states (B, N); no skip."""
        symbols: SymbolTransitions = self.symbol_parts()
        without_skip = symbols._replace(skip=None)
        return symbols, *self.mixers[0].mix_symbols(without_skip, tokens, layer_state(state, 0), lengths=lengths)

    def _with_query(self, tokens: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Append the query to each string: tokens (B, L), lengths (B,) -> (B, L + 1), lengths + 1."""
        assert self.query is not None
        longer = nn.functional.pad(tokens, (0, 1), value=self.query)
        if lengths is None:
            return longer, None
        ends = integers(lengths, 0, longer.shape[1]) == lengths[:, None]
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
        """Run all layers over tokens (B, L): features (B, L, F), and with `carry` the final states.

        With `ends` only the features at the end of each string are returned, (B, 1, F), and no states.
        """
        noise, after = noise or {}, []
        h, mixer_noise = tokens, noise.get("mixers")
        if mixer_noise is not None:
            mixer_noise = self.mixers[0].prepare_noise(mixer_noise, tokens.shape[1], lengths)
        for i, block in enumerate(self.blocks):
            mixer = block.mixer
            only_ends = ends and block.is_last  # after the last mixer only the last position is needed
            mixer.check_length(tokens.shape[1])
            options: dict[str, Any] = {"lengths": lengths, "noise": None if mixer_noise is None else mixer_noise[i]}
            before, x = layer_state(state, i), None
            if i == 0:
                symbols = self.symbol_parts()
                if only_ends:
                    mixed = mixer.mix_symbols_end(symbols, tokens, before, **options)
                else:
                    mixed, x = mixer.mix_symbols(symbols, tokens, before, carry=carry, **options)
            else:
                parts = mixer.parts(block.inputs(h))
                if only_ends:
                    mixed = mixer.mix_end(parts, before, **options)
                else:
                    mixed, x = mixer.mix(parts, before, carry=carry, **options)
            # The numbers of all blocks are passed on as they are in memory; each block selects its own.
            drops, slot = noise["blocks"].flatten(1, 2) if "blocks" in noise else None, 2 * i
            if only_ends and block.is_residual:
                h = last_position(h, lengths)
                if drops is not None:
                    last = last_position(drops[:, slot : slot + 2].movedim(2, 0), lengths)  # (B, 1, 2, D)
                    drops, slot = last.permute(1, 2, 0, 3), 0
            if i == 0 and block.is_residual:
                h = select_rows(self.input_table(), h)
            h = block.combine(h, mixed, drops, slot)
            after.append(x)
        return h, tuple(after) if carry and self.is_recurrent else None

    def _run_query(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the features of the query after each prefix of tokens (B, L), and the final states.

        The query does not affect the symbols after it, so each layer has inputs h for the symbols and q for the query.
        """
        assert self.query is not None
        table, symbols, after = self.input_table(), self.symbol_parts(), []
        h, q = select_rows(table, tokens), table[self.query].expand(*tokens.shape, -1)
        for i, block in enumerate(self.blocks):
            mixer, x = block.mixer, layer_state(state, i)
            if i == 0:
                parts = tuple(select_rows(part, tokens) for part in symbols)
                query_parts = tuple(part[self.query].expand(*tokens.shape, *part.shape[1:]) for part in symbols)
            else:
                parts, query_parts = mixer.parts(block.inputs(h)), mixer.parts(block.inputs(q))
            q = block.combine(q, mixer.mix_query(parts, query_parts, x))
            if not block.is_last or self.is_recurrent:  # of the last layer only the state is needed
                mixed, x = mixer.mix(parts, x, carry=self.is_recurrent)
                h = h if block.is_last else block.combine(h, mixed)
            after.append(x)
        return q, tuple(after) if self.is_recurrent else None

    def _step(self, u: Tensor, state: State) -> tuple[Tensor, tuple[Any, ...]]:
        """Run one step of all layers: inputs (B, D) -> features (B, F) and states."""
        h, after = u, []
        for i, block in enumerate(self.blocks):
            mixed, x = block.mixer.mix_step(block.inputs(h), layer_state(state, i))
            h = block.combine(h, mixed)
            after.append(x)
        return h, tuple(after)

    def query_step(self, symbols: Any, states: Tensor) -> Tensor:
        """Return the features of a single-layer SD-SSM after a query step from each of the states (..., N)."""
        mixer = self.mixers[0]
        assert isinstance(mixer, SelectiveDense) and self.query is not None
        x = mixer.step_symbol(symbols, self.query, states)
        return x if symbols.skip is None else x + symbols.skip[self.query]

    def _scaled_embedding(self) -> Tensor | None:
        """Return the embedding times its scale; None for one-hot inputs."""
        scale = self.settings.embedding_scale
        return self.embedding if self.embedding is None or scale == 1 else self.embedding * scale

    def input_table(self) -> Tensor:
        """Return the input vector of every symbol, (V, D)."""
        table = self._scaled_embedding()
        if table is not None:
            return table
        like = next(self.layers.parameters())
        width = self.settings.width or self.n_symbols + self.settings.query
        return torch.eye(width, dtype=like.dtype, device=like.device)


def layer_state(state: State, layer: int) -> Any:
    """Return the state of one layer; None before the first symbol."""
    return None if state is None else state[layer]
