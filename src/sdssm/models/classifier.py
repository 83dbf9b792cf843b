"""The only model class: tokens -> embedding -> mixers -> readout -> a label for every prefix."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from sdssm.errors import ModelError, OutputError
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.layers import initial
from sdssm.layers.mixer import each, pick
from sdssm.models.names import tensors_for_file
from sdssm.models.readout import Readout, make_layer_norm
from sdssm.models.settings import ModelSettings
from sdssm.models.stack import Stack, State, layer_state
from sdssm.ops.checks import check_range
from sdssm.settings import check_at_least, settings_to_dict

#: The files of a saved model.
CONFIG, WEIGHTS = "config.json", "model.safetensors"


class Classifier(Stack):
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
        check_at_least("n_classes", n_classes, 1)
        super().__init__(settings, n_symbols, generator=generator)
        self.n_classes = n_classes
        self.norm = make_layer_norm(settings.norm, self.outputs)
        self.readout = Readout(settings, self.outputs, n_classes, generator)
        many = settings.state_embedding
        state = getattr(settings.mixer, "state", 0)
        self.start = None if many is None else initial.linear(many, state, generator, bias=False)
        # Rows have unit length in expectation; fixed, and saved with the weights.
        vectors = None if many is None else torch.randn(n_classes, many, generator=generator) * many**-0.5
        self.register_buffer("vectors", vectors)
        self.vectors: Tensor | None

    @property
    def numbers(self) -> int:
        """About how many numbers one symbol needs in memory while strings are read."""
        first, *others = self.mixers
        return max(self.n_classes, first.numbers + sum(mixer.numbers_per_input for mixer in others))

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
            states, final = self.mixers[0].mix_symbols(symbols, tokens, layer_state(state, 0))
            return self.logits(self._query_step(symbols, states)), (final,)
        if self.can_query:
            features, after = self._run_query(tokens, state)
            return self.logits(features), after
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

    # -- in a folder -------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors, each whole or not at all; `sdssm.load` reads them back."""
        folder = Path(folder)
        try:
            taken = "format" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            taken = False
        if taken:
            raise OutputError(
                f"{format_path(folder)} holds a run, which saving a model would spoil; choose another folder"
            )
        config = {"model": settings_to_dict(self.settings), "n_symbols": self.n_symbols, "n_classes": self.n_classes}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / CONFIG, json.dumps(config, indent=1).encode())
            write_atomic(folder / WEIGHTS, self.packed())
        except (OSError, ValueError) as error:
            raise OutputError(
                f"cannot write a model into {format_path(folder)}: {describe_file_error(error)}"
            ) from None

    def packed(self) -> bytes:
        """The weights as the bytes of a safetensors file; nothing is pickled."""
        return save({name: value.detach().cpu().contiguous() for name, value in tensors_for_file(self).items()})


def _flat(state: State, lead: torch.Size) -> State:
    """A state of strings (*lead, L) as that of rows; with a single leading dimension as it is, also one for all."""
    if len(lead) == 1:
        return state
    found: State = each(lambda x: x.reshape(math.prod(lead), *x.shape[len(lead) :]), state)
    return found
