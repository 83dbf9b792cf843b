"""The model class: tokens -> embedding -> mixers -> readout -> logits for every prefix."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from sdssm.errors import ModelError
from sdssm.layers import initial
from sdssm.layers.mixer import merge_leading, select_rows, split_leading
from sdssm.models.gains import gain_variance
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.prefixes import select_prefixes
from sdssm.models.readout import Readout, make_layer_norm
from sdssm.models.settings import ModelSettings
from sdssm.models.stack import Stack, State
from sdssm.models.token_model import TokenModel
from sdssm.ops.checks import check_range
from sdssm.settings import check_at_least

#: The path to the mixer of a single-layer model, which its parameters do not have in files.
SINGLE_LAYER = "layers.0.mixer."


class Classifier(Stack, TokenModel):
    """Classify every prefix of a string: tokens (..., L) -> logits (..., L, C).

    >>> model = Classifier(ModelSettings(), n_symbols=2, n_classes=60, generator=torch.Generator().manual_seed(0))
    >>> logits = model(torch.tensor([[0, 1, 1, 0]]))
    >>> logits.shape
    torch.Size([1, 4, 60])
    >>> first, state = model.advance(torch.tensor([[0, 1]]))      # read a string in pieces
    >>> rest, state = model.advance(torch.tensor([[1, 0]]), state)
    >>> torch.allclose(torch.cat([first, rest], dim=1), logits, atol=1e-4)
    True
    """

    settings: ModelSettings

    def __init__(
        self, settings: ModelSettings | ModuleSettings, n_symbols: int, n_classes: int, *, generator: torch.Generator
    ) -> None:
        if not isinstance(settings, ModelSettings):
            raise ModelError(
                f"{settings.name} is a whole module, not a mixer inside a Classifier; train it by its name"
            )
        check_at_least("n_classes", n_classes, 1)
        super().__init__(settings, n_symbols, generator=generator)
        self.n_classes = n_classes
        self.norm = make_layer_norm(settings.norm, self.outputs)
        self.readout = Readout(settings, self.outputs, n_classes, generator)
        if settings.centres is not None:
            self._start_state().requires_grad_(False)  # the centre of the start state, see `assign_states`
        size = settings.state_embedding
        state = getattr(settings.mixer, "state", 0)
        self.start = None if size is None else initial.linear(size, state, generator, bias=False)
        # Not trained, but saved with the weights. The expected squared norm of a row is 1.
        vectors = None if size is None else torch.randn(n_classes, size, generator=generator) * size**-0.5
        self.register_buffer("vectors", vectors)
        self.vectors: Tensor | None

    @torch.no_grad()
    def assign_states(self, labels: Tensor, start: int) -> None:
        """Let the first centres stand for the states of an automaton with these labels (Q,), and start at `start`."""
        self.readout.assign_centres(labels)
        self._start_state().copy_(self.readout.weight[start])

    def _start_state(self) -> Tensor:
        start = self.mixers[0].initial_state
        assert isinstance(start, Tensor)  # `ModelSettings` checks this if there are centres
        return start

    @property
    def numbers_per_symbol(self) -> int:
        """Estimate of the numbers in memory for each symbol of a string during evaluation."""
        first, *others = self.mixers
        return max(self.n_classes, first.numbers_per_symbol + sum(mixer.numbers_per_input for mixer in others))

    @property
    def numbers_per_pair(self) -> int:
        """Estimate of the numbers in memory for each pair of positions of a string during training."""
        return sum(mixer.numbers_per_pair for mixer in self.mixers)

    def noise_shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the noise that `loss` needs for tokens (B, L), by name.

        Positions are the first axis, so the noise of a shorter string is a prefix of that of a longer one.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        if self.settings.dropout:
            shapes["readout"] = (batch, self.settings.hidden)
        length += self.settings.query
        if self.settings.block_dropout:
            shapes["blocks"] = (length, len(self.layers), 2, batch, self.blocks[0].outputs)
        mixer_shape = self.mixers[0].noise_shape(length)
        if mixer_shape is not None:
            shapes["mixers"] = (len(self.mixers), *mixer_shape)
        return shapes

    # -- reading strings ---------------------------------------------------------------------------------------------

    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Read the next piece of a string: tokens (..., L), state -> logits (..., L, C), final state.

        With a state embedding, `starts` (...) are the automaton states that the strings start from. A model that is not
        recurrent reads whole strings only: it accepts no state and returns None.
        """
        tokens = self._check_tokens(tokens)
        lead, length = tokens.shape[:-1], tokens.shape[-1]
        rows = math.prod(lead)
        state = self._first(_flat(state, lead), None if starts is None else starts.reshape(rows))
        if not length:  # an empty string leaves the state unchanged
            return self.readout.weight.new_zeros(*lead, 0, self.n_classes), state
        logits, state = self._advance(tokens.reshape(rows, length), state)
        return logits.reshape(*lead, length, self.n_classes), split_leading(state, lead)

    def _advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Run `advance` on tokens (B, L)."""
        if not self.is_recurrent and state is not None:
            raise ModelError(f"{self.settings.name} cannot continue from a state; pass whole strings")
        if not self.can_read_prefixes_at_once:
            at_ends = [self.last_logits(tokens[:, : end + 1]) for end in range(tokens.shape[1])]
            return torch.stack(at_ends, 1), None
        if self.query is None or self.is_single_sd_ssm or self.can_query:
            features, after = self._path_features(tokens, state)
            return self.logits(features), after
        # The state after the query is discarded, so this reads one symbol at a time, in constant memory.
        table, read = self.input_table(), []
        for u in select_rows(table, tokens).unbind(1):
            _, state = self._step(u, state)
            read.append(self._step(table[self.query].expand_as(u), state)[0])
        return self.logits(torch.stack(read, 1)), state

    def start_states(self, starts: Tensor | None = None) -> Tensor | None:
        """Return the states that a single-layer SD-SSM starts from, (N,) or (B, N); None is zero.

        With a state embedding, `starts` (B,) are the automaton states that the strings start from.
        """
        first = self._first(None, starts)
        return self._single_layer().start_state(None if first is None else first[0])

    def _path_features(
        self,
        tokens: Tensor,
        state: State,
        *,
        lengths: Tensor | None = None,
        noise: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, State]:
        """Return the features after every symbol of tokens (B, L), in one pass: (B, L, F), and the final state.

        `lengths` (B,) are the lengths of the strings; features past the end of a string are arbitrary.
        """
        if self.query is None:
            return self._run(tokens, state, lengths=lengths, noise=noise)
        if not self.is_single_sd_ssm:
            return self._run_query(tokens, state)
        # The query step starts from the states, not from the outputs.
        symbols, states, final = self._scan_states(tokens, state, lengths)
        return self.query_step(symbols, states), (final,)

    def step(self, token: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Read one symbol in constant memory: token (...), state -> logits (..., C), next state."""
        token = self._check_tokens(token)
        lead, rows = token.shape, token.numel()
        state = self._first(_flat(state, lead), None if starts is None else starts.reshape(rows))
        table = self.input_table()
        features, state = self._step(select_rows(table, token.reshape(rows)), state)
        if self.query is not None:
            features = self._step(table[self.query].expand(rows, -1), state)[0]
        return self.logits(features).reshape(*lead, self.n_classes), split_leading(state, lead)

    def last_logits(
        self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Return the logits after the last symbol only: tokens (B, L) -> (B, C).

        `lengths` (B,) are the lengths of the strings; None: all have length L.
        """
        return self.logits(self._features(tokens, self._first(state, starts), lengths, {}))

    def advance_state(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> State:
        """Return the final state only: tokens (B, L), state -> state."""
        return self._run(tokens, self._first(state, starts))[1]

    def logits(self, features: Tensor) -> Tensor:
        """Apply LayerNorm and readout to features: (..., F) -> (..., C)."""
        return self.readout(features if self.norm is None else self.norm(features), self.vectors)  # type: ignore[no-any-return]  # result of a module

    @property
    def predicts_prefixes(self) -> bool:
        """Whether one training step can predict all prefixes of a string."""
        if self.query is None or self.is_single_sd_ssm:
            return self.can_read_prefixes_at_once
        # The query after each prefix is read without dropout.
        return self.can_read_prefixes_at_once and self.can_query and not self.settings.block_dropout

    def loss(
        self,
        tokens: Tensor,
        labels: Tensor,
        *,
        lengths: Tensor | None = None,
        ends: Tensor | None = None,
        starts: Tensor | None = None,
        noise: Mapping[str, Tensor] | None = None,
        attraction: Tensor | None = None,
        classes: Tensor | None = None,
        gain_penalty: Tensor | None = None,
        exact_gradient: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss of the predictions for whole strings, and the number of correct predictions.

        Args:
            tokens: (B, L).
            labels: (B,), the labels of the whole strings; with `ends` (B, P), those of the prefixes.
            lengths: (B,), the lengths of the strings; None: all have length L.
            ends: (B, P), the lengths of P prefixes of each string, whose predictions are then part of the loss.
            starts: (B,), the automaton states that the strings start from, with a state embedding.
            noise: uniform random numbers on [0, 1) of the shapes that `noise_shapes` returns; None: no dropout.
            attraction: (), the weight of the centre loss, see `Readout.loss`; None: cross-entropy only.
            classes: (C,), 1 for the classes that occur in the task.
            gain_penalty: (), the weight of `gain_variance` at the states after the strings; single-layer SD-SSM only.
            exact_gradient: keep the gradient of the label exact near a loss of zero, see `ops.cross_entropy`.
        """
        noise, first = noise or {}, self._first(None, starts)
        finals = None if gain_penalty is None else self._final_states(tokens, first, lengths)
        dropped = noise.get("readout")
        if ends is None:
            features = self._features(tokens, first, lengths, noise, finals)
        else:
            path = self._path_features(tokens, first, lengths=lengths, noise=noise)[0]
            features, labels = select_prefixes(path, ends).flatten(0, 1), labels.flatten()
            dropped = None if dropped is None else dropped.repeat_interleave(ends.shape[1], dim=0)
        loss, correct = self.readout.loss(
            features,
            labels,
            self.norm,
            vectors=self.vectors,
            noise=dropped,
            attraction=attraction,
            classes=classes,
            exact_gradient=exact_gradient,
        )
        if gain_penalty is None or finals is None:
            return loss, correct
        symbols, states = finals
        return loss + gain_penalty * gain_variance(symbols.A[: self.n_symbols], states), correct

    def symbol_matrices(self) -> Tensor | None:
        """Return the transition matrix of each symbol of a single-layer SD-SSM, (V, N, N); else None.

        `A[v]` acts on a column vector: reading symbol v turns the state x into A[v] x, plus B u_v with an input matrix,
        over its l2 norm with `rescale`. `A[v][i, j]` is the weight from entry j to entry i. The softmax mixture and the
        division of the columns by their l_p norm are applied; B, the query and the rescaling are not part of A.
        The matrices depend on the parameters, and gradients flow through them.

        >>> model = Classifier(ModelSettings(), n_symbols=2, n_classes=60, generator=torch.Generator().manual_seed(0))
        >>> A, x = model.symbol_matrices(), model.initial_state
        >>> A.shape
        torch.Size([2, 64, 64])
        >>> for symbol in (0, 1, 1):
        ...     x = A[symbol] @ x
        ...     x = x / x.norm()
        >>> _, (state,) = model.advance(torch.tensor([0, 1, 1]))
        >>> torch.allclose(x, state, atol=1e-5)
        True
        """
        return self.symbol_parts().A[: self.n_symbols] if self.is_single_sd_ssm else None

    def _check_tokens(self, tokens: Tensor) -> Tensor:
        """Raise unless all tokens are symbols; the query has a row in the table, but is not a symbol."""
        if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.is_complex():
            what = f"of {tokens.dtype}" if isinstance(tokens, Tensor) else f"a {type(tokens).__name__}"
            raise ModelError(f"tokens are {what}; pass a tensor of whole numbers, as in torch.tensor([[0, 1]])")
        check_range("the model", "tokens", tokens, 0, self.n_symbols - 1, "symbols are")
        return tokens.long()

    def _first(self, state: State, starts: Tensor | None) -> State:
        """Return the state to start from: `state`, or with a state embedding that of `starts`."""
        if state is not None or self.start is None:
            return state
        if starts is None:
            raise ModelError("this model starts from a state of the automaton; pass starts=, one state for each string")
        assert self.vectors is not None
        return (self.start(self.vectors[starts]),)

    # -- saving ------------------------------------------------------------------------------------------------------

    def file_name(self, name: str) -> str:
        """Return the name in a file: that of the paper for a single-layer SD-SSM, else the module's own."""
        return name.removeprefix(SINGLE_LAYER) if self.is_single_sd_ssm else name


def _flat(state: State, lead: torch.Size) -> State:
    """Merge the leading dimensions of a state; a state with one is unchanged, and may broadcast."""
    flat: State = state if len(lead) == 1 else merge_leading(state, lead)
    return flat
