"""One step of a recurrent model as a module of plain tensors: token (B,), states -> logits (B, C), states.

A state of a model is a nested tuple of tensors, some of them complex or None. Here it is a list of real tensors
(B, ...): None is left out, and a complex tensor has a last axis of size 2, real and imaginary part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError
from sdssm.layers.mixer import flatten_state, map_state
from sdssm.models import Classifier, TokenModel
from sdssm.models.rescaled import RescaledModel
from sdssm.models.token_model import State
from sdssm.ops.reference import rescaled

#: States that are equal up to this, relative to their size, are the same initial state.
TOLERANCE = 1e-5


class StepModule(nn.Module):
    """One step of a recurrent model. `initial` are the states before the first symbol, (1, ...) each.

    Some models treat the first symbol otherwise than the rest, without a state. They have one more state, `started`
    (B,), which is 0 before the first symbol and 1 after it.

    >>> import sdssm
    >>> module = make_step_module(sdssm.compile("parity"))
    >>> logits, state = module(torch.tensor([1, 0]), *(value.expand(2, -1) for value in module.initial))
    >>> logits.argmax(-1).tolist(), state.shape
    ([1, 0], torch.Size([2, 2]))
    """

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.model = model
        self.template = self._step(self._first_tokens(), None)[1]
        self._check_fixed_shape()
        initial = self._find_initial()
        self.is_flagged = initial is None
        if initial is None:
            initial = [torch.zeros_like(value[:1]) for value in flatten_state(self.template)]
            initial.append(torch.zeros(1))
        self.initial = [value.detach().contiguous().clone() for value in initial]

    @property
    def state_names(self) -> list[str]:
        """The names of the states."""
        names = [f"state_{index}" for index in range(len(self.initial) - self.is_flagged)]
        return [*names, "started"] if self.is_flagged else names

    def forward(self, token: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Read one symbol of each string: token (B,), states (B, ...) -> logits (B, C), states."""
        if not self.is_flagged:
            logits, after = self._step(token, unflatten_state(self.template, states))
            return (logits, *flatten_state(after))
        started = states[-1]
        logits, after = self._step(token, unflatten_state(self.template, states[:-1]))
        first_logits, first_after = self._step(token, None)
        pairs = [(first_logits, logits), *zip(flatten_state(first_after), flatten_state(after), strict=True)]
        is_first = started == 0
        chosen = [torch.where(is_first.reshape(-1, *[1] * (new.dim() - 1)), first, new) for first, new in pairs]
        return (*chosen, torch.ones_like(started))

    def _step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        if isinstance(self.model, Classifier):
            return self.model.step(token, state)
        logits, after = self.model.advance(token[:, None], state)
        return logits[:, 0], after

    def _first_tokens(self) -> Tensor:
        return torch.arange(max(self.model.n_symbols, 2), device=self.model.device) % self.model.n_symbols

    def _check_fixed_shape(self) -> None:
        """Raise an error unless a state has the same shape after every symbol."""
        before, after = (
            [tuple(value.shape[1:]) for value in flatten_state(state)]
            for state in (self.template, self._step(self._first_tokens(), self.template)[1])
        )
        if before != after:
            raise ModelError(
                f"the state of {self.model.name} has the shapes {before} after one symbol, {after} after two; only a "
                "state of fixed shape can be exported: keep one, or remove advance(tokens, state)"
            )

    def _find_initial(self) -> list[Tensor] | None:
        """Return states (1, ...) with which the first step is the same as without a state; None if none is found."""
        token = self._first_tokens()
        without = [self._step(token, None)[0], *flatten_state(self._step(token, None)[1])]
        zeros = [torch.zeros_like(value[:1]) for value in flatten_state(self.template)]
        for initial in (self._declared_initial(), zeros):
            if initial is None or [value.shape for value in initial] != [value.shape for value in zeros]:
                continue
            rows = [value.expand(len(token), *value.shape[1:]) for value in initial]
            logits, after = self._step(token, unflatten_state(self.template, rows))
            same = zip(without, [logits, *flatten_state(after)], strict=True)
            if all(_is_close(actual, expected) for expected, actual in same):
                return initial
        return None

    def _declared_initial(self) -> list[Tensor] | None:
        """Return the initial states that the mixers of the model name, zero where they name none; None if unknown."""
        if not isinstance(self.model, Classifier):
            return None
        states: list[Tensor] = []
        for mixer, like in zip(self.model.mixers, self.template, strict=True):
            likes, values = flatten_state(like), mixer.start_state(None)
            named = [None] * len(likes) if values is None else values if isinstance(values, list) else [values]
            if len(named) != len(likes):
                return None
            for value, zero in zip(named, likes, strict=True):
                part = torch.zeros_like(zero[:1]) if value is None else flatten_state(value)[0]
                states.append(part.expand_as(zero[:1]))
        return states


class SymbolStep(StepModule):
    """One step of a single-layer SD-SSM: the matrix of the symbol times the state.

    If its states may overflow float32, they are rescaled as in the evaluation (`RescaledModel`).
    """

    def __init__(self, model: Classifier) -> None:
        self.rescaled = RescaledModel(model) if RescaledModel.supports(model) else None
        super().__init__(model)

    def _step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        assert isinstance(self.model, Classifier)
        symbols = self.model.symbol_parts()
        if self.rescaled is not None:
            A, x = self.rescaled.A, self.rescaled._first(state, None, token[:, None])
            x = rescaled(_apply(A, token, x))
            z = x if self.model.query is None else x @ A[self.model.query].mT
            return self.rescaled._logits(z), (x,)
        start = self.model.mixers[0].start_state(None if state is None else state[0])
        x = symbols.A.new_zeros(symbols.A.shape[-1]) if start is None else start
        x = _apply(symbols.A, token, x.expand(token.shape[0], -1))
        x = x if symbols.b is None else x + symbols.b[token]
        x = rescaled(x) if self.model.settings.mixer.rescale else x
        if self.model.query is not None:
            features = self.model.query_step(symbols, x)
        else:
            features = x if symbols.skip is None else x + symbols.skip[token]
        return self.model.logits(features), (x,)

    def _declared_initial(self) -> list[Tensor] | None:
        if self.rescaled is None:
            return super()._declared_initial()
        return [self.rescaled._first(None, None, self._first_tokens()[:1, None])]


def make_step_module(model: TokenModel) -> StepModule:
    """Return one step of a recurrent model as a module."""
    if not model.is_recurrent:
        raise ModelError(f"{model.name} has no state to step from; only whole strings can be exported")
    if model.settings.needs_given_state:
        raise ModelError(f"{model.name} starts from a state that is given with each string; it cannot be exported")
    with torch.no_grad():
        is_single = isinstance(model, Classifier) and model.is_single_sd_ssm
        return SymbolStep(model) if is_single else StepModule(model)  # type: ignore[arg-type]  # it is a Classifier


def unflatten_state(template: State, values: Sequence[Tensor]) -> State:
    """Return real tensors as a state of the form of `template`; the reverse of `flatten_state`."""
    remaining = iter(values)

    def take(like: Tensor) -> Tensor:
        value = next(remaining)
        return torch.view_as_complex(value.contiguous()) if like.is_complex() else value

    return map_state(take, template)


def _apply(A: Tensor, token: Tensor, x: Tensor) -> Tensor:
    """Multiply each state (B, N) by the matrix of its symbol, A (V, N, N), token (B,) -> (B, N)."""
    return (A[token] @ x[..., None])[..., 0]


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    scale = float(expected.abs().max()) or 1.0
    return actual.shape == expected.shape and float((actual - expected).abs().max()) <= TOLERANCE * scale
