"""What a law is checked with: a model, strings for it to read, and the comparison of predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdssm.models import TokenModel, WrappedModule
from sdssm.models.token_model import State
from sdssm.tasks import Task
from sdssm.testing.law import DoesNotApply, LawBroken
from sdssm.testing.tolerances import allowed_difference

#: A string of this length or shorter is drawn from a longer valid one, if the task has no valid string of its length.
LONGER = 64


@dataclass(frozen=True)
class LawCase:
    """A model in evaluation mode that a law is checked on, and the strings that it reads.

    The strings are valid strings of `task`, or without one uniformly random. `build_another` builds the same model
    from another seed; it is None if only the model itself is known. No string is longer than `longest`, if given.
    """

    model: TokenModel
    task: Task | None
    seed: int
    build_another: Callable[[int], TokenModel] | None = None
    longest: int | None = None

    # -- strings -------------------------------------------------------------------------------------------------------

    def length(self, wanted: int) -> int:
        """Return this length, or the longest that the model reads if that is shorter."""
        limits = [limit for limit in (self.model.longest, self.longest) if limit is not None]
        return min([wanted, *limits])

    def draw_strings(self, count: int, length: int) -> Tensor:
        """Return `count` random strings, (B, L); they depend on the seed of the case only."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.task is not None:
            lengths = range(length, length + LONGER)
            valid = next((candidate for candidate in lengths if self.task.has_length(candidate)), None)
            if valid is not None:
                tokens = self.task.sample(count, valid, generator=generator).tokens
                return tokens[:, :length].to(self.model.device)
        tokens = torch.randint(self.model.n_symbols, (count, length), generator=generator)
        return tokens.to(self.model.device)

    def change_symbols(self, tokens: Tensor, where: Any) -> Tensor:
        """Return the tokens with each symbol at `where` replaced by another one."""
        changed = tokens.clone()
        changed[where] = (changed[where] + 1) % self.model.n_symbols
        return changed

    @property
    def has_other_symbols(self) -> bool:
        """Whether a symbol can be replaced by another one."""
        return self.model.n_symbols > 1

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def reads_prefixes(self) -> bool:
        """Whether one pass over a string gives the predictions for all its prefixes."""
        return self.model.can_read_prefixes_at_once

    @property
    def reads_strings(self) -> bool:
        """Whether the model is a module that returns logits (B, C) for whole strings."""
        return isinstance(self.model, WrappedModule) and self.model.reads == "strings"

    def read(self, tokens: Tensor) -> Tensor:
        """Return logits for tokens (B, L) in one pass: (B, L, C) after each prefix, or (B, 1, C) for the whole string.

        Someone else's module is called as it is, since it may read pieces of a string with other code.
        """
        model = self.model
        if isinstance(model, WrappedModule):
            logits = model.module(tokens)
            self._check_shape(logits, tokens)
            return logits if self.reads_prefixes else logits[:, None]  # type: ignore[no-any-return]  # of a module
        if self.reads_prefixes:
            return self.advance(tokens)[0]
        return self.read_end(tokens)[:, None]

    def read_end(self, tokens: Tensor, state: State = None) -> Tensor:
        """Return the logits after the last symbol: tokens (B, L) -> (B, C)."""
        starts = self._starts(tokens) if state is None else None
        return self.model.last_logits(tokens, state, starts=starts)

    def advance(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Read the next piece of strings: tokens (B, L), state -> logits (B, L, C), state."""
        return self.model.advance(tokens, state, starts=self._starts(tokens) if state is None else None)

    def loss(self, tokens: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the training loss of tokens (B, L) with labels (B,)."""
        return self.model.loss(tokens, labels, lengths=lengths, starts=self._starts(tokens))[0]

    def draw_labels(self, count: int) -> Tensor:
        """Return labels (B,)."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randint(self.model.n_classes, (count,), generator=generator).to(self.model.device)

    def _starts(self, tokens: Tensor) -> Tensor | None:
        """Return the automaton states to start from, of a model that needs them."""
        needed = self.model.settings.state_embedding is not None
        return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device) if needed else None

    def _check_shape(self, logits: Any, tokens: Tensor) -> None:
        batch, length, classes = *tokens.shape, self.model.n_classes
        expected = (batch, classes) if self.reads_strings else (batch, length, classes)
        if not isinstance(logits, Tensor):
            what = f"a {type(logits).__name__}"
        elif not logits.is_floating_point():
            what = f"numbers of {logits.dtype}"
        elif logits.shape != expected:
            what = f"shape {tuple(logits.shape)}"
        else:
            return
        raise LawBroken(
            f"it returns {what} for tokens of shape {(batch, length)}; it must be {(batch, length, classes)}, logits "
            f"after every symbol, or {(batch, classes)}, for the whole string"
        )

    # -- comparing -----------------------------------------------------------------------------------------------------

    def require_same(self, actual: Tensor, expected: Tensor, when: str, *, string: int | None = None) -> float:
        """Return the largest difference of two results of `read`; raise `LawBroken` if it is not a rounding error.

        `when` ends the message, as in "when symbol 5 changes"; `string` is the number of the string, if that matters.
        """
        if actual.shape != expected.shape:
            raise LawBroken(f"the logits have shape {tuple(actual.shape)}, not {tuple(expected.shape)}, {when}")
        if not expected.numel():
            return 0.0
        largest, where = largest_difference(actual, expected)
        if largest <= allowed_difference(expected.dtype, _largest_finite(expected)):
            return largest
        rows, prefixes = expected.shape[:2]
        row, prefix = divmod(where // expected.shape[-1], prefixes)
        what = f"prefix {prefix + 1}" if self.reads_prefixes else "the whole string"
        if string is not None or rows > 1:
            what += f" of string {(row if string is None else string) + 1}"
        raise LawBroken(f"the prediction for {what} {describe_change(largest)} {when}")


def largest_difference(actual: Tensor, expected: Tensor) -> tuple[float, int]:
    """Return the largest difference of two tensors and its index in the flat tensor; NaN counts as the largest.

    >>> largest_difference(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0]))
    (2.0, 1)
    """
    actual, expected = actual.detach(), expected.detach()
    # The difference of equal infinite numbers is 0; the law on finite numbers is another one.
    is_equal = (actual == expected) | (actual.isnan() & expected.isnan())
    difference = torch.where(is_equal, 0.0, (actual - expected).abs().double()).flatten()
    is_nan = difference.isnan()
    where = int((is_nan.int() if bool(is_nan.any()) else difference).argmax())
    return float(difference[where]), where


def require_close(actual: Tensor, expected: Tensor, what: str, when: str) -> float:
    """Return the largest difference of two tensors; raise `LawBroken` if it is not a rounding error.

    `what` and `when` are the message, as in "the loss" and "when symbol 5 changes".
    """
    if not expected.numel():
        return 0.0
    change, _ = largest_difference(actual, expected)
    if not change <= allowed_difference(expected.dtype, max(_largest_finite(expected), 1.0)):
        raise LawBroken(f"{what} {describe_change(change)} {when}")
    return change


def _largest_finite(tensor: Tensor) -> float:
    """Return the largest absolute value that is finite; 1 if there is none."""
    sizes = tensor.detach().abs()
    finite = sizes[sizes.isfinite()]
    return float(finite.max()) if finite.numel() else 1.0


def describe_change(change: float) -> str:
    """Return "changes by 0.8"."""
    return "becomes NaN" if change != change else f"changes by {change:.2g}"


def require(applies: bool, reason: str) -> None:
    """Raise `DoesNotApply` with this reason unless a law applies."""
    if not applies:
        raise DoesNotApply(reason)


def describe_largest(change: float) -> str:
    """Return the detail of a law that is obeyed."""
    return "no change" if change == 0 else f"the largest change is {change:.1g}, a rounding error"
