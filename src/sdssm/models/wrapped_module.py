"""Someone else's module as a model: anything that maps tokens (B, L) to logits (B, L, C), or (B, C)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.errors import ModelError, first_line, format_value
from sdssm.layers.mixer import map_state, merge_leading, split_leading
from sdssm.models.model_entry import ModelEntry
from sdssm.models.module_errors import DEVICE_ADVICE, describe_place, errors_named, is_device_error, is_gpu_missing
from sdssm.models.module_probe import check_reading, probe_tokens, probing
from sdssm.models.module_settings import ModuleSettings, call_factory
from sdssm.models.prefixes import select_prefixes
from sdssm.models.randomness import preserved_random_numbers, seed_random_numbers
from sdssm.models.token_model import Reads, State, TokenModel
from sdssm.settings import check_at_least

#: Shape (B, L) of the tokens that a module is probed with. The sizes differ, so that axes cannot be confused.
PROBE = (3, 7)
#: Estimate of the numbers that a module has in memory for each symbol, as a multiple of its widest parameter.
COPIES = 16
#: What to do if an output is not finite.
NOT_FINITE = {
    "NaN": "look for 0/0, a softmax with every position masked, or a weight that is NaN",
    "infinity": "look for a division by 0 or a logarithm of 0, and give an impossible class -1e4 rather than -inf",
}


class WrappedModule(TokenModel):
    """Someone else's module as a model.

    `module` maps tokens (B, L) to logits: (B, L, C), one for each prefix (`reads` is "prefixes"), or (B, C) for the
    whole string (`reads` is "strings"). If it has a method `advance(tokens, state) -> (logits, state)` as well, a
    string can be read in pieces. If it has an attribute `longest`, that is the longest string it can read. Build one
    with `wrap_module` or `build_module`, which check the module.
    """

    settings: ModuleSettings
    #: Whether it is checked on a GPU even if its parameters are on the CPU, where it does not run.
    needs_gpu: bool = False

    def __init__(
        self, module: nn.Module, settings: ModuleSettings, n_symbols: int, n_classes: int, reads: Reads
    ) -> None:
        super().__init__()
        check_at_least("n_symbols", n_symbols, 1)
        check_at_least("n_classes", n_classes, 1)
        self.module, self.settings, self.reads = module, settings, reads
        self.n_symbols, self.n_classes = n_symbols, n_classes

    def extra_repr(self) -> str:
        return f"{self.name}, n_symbols={self.n_symbols}, n_classes={self.n_classes}, reads={self.reads}"

    @property
    def is_causal(self) -> bool:
        return self.reads == "prefixes"

    @property
    def is_recurrent(self) -> bool:
        return self.reads == "prefixes" and callable(getattr(self.module, "advance", None))

    @property
    def can_read_prefixes_at_once(self) -> bool:
        return self.reads == "prefixes"

    @property
    def longest(self) -> int | None:
        longest = getattr(self.module, "longest", None)
        return longest if isinstance(longest, int) else None

    @property
    def numbers_per_symbol(self) -> int:
        widths = [max(parameter.shape, default=1) for parameter in self.parameters()]
        return self.n_classes + COPIES * min(max(widths, default=1), 4_096)

    # -- reading strings -----------------------------------------------------------------------------------------------

    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        self._check_call(state, starts)
        lead, length = tokens.shape[:-1], tokens.shape[-1]
        self._check_length(tokens)
        rows = tokens.reshape(math.prod(lead), length).long().contiguous()
        if not length:
            like = next(self.parameters(), torch.zeros(()))
            return torch.zeros(*lead, 0, self.n_classes, device=like.device), state
        if self.is_recurrent:
            logits, after = self._advance_rows(rows, merge_leading(state, lead))
            return logits.reshape(*lead, length, self.n_classes), split_leading(after, lead)
        if self.reads == "strings":
            ends = [self._call(rows[:, : end + 1]) for end in range(length)]
            return torch.stack(ends, 1).reshape(*lead, length, self.n_classes), None
        return self._call(rows).reshape(*lead, length, self.n_classes), None

    def last_logits(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> Tensor:
        self._check_call(state, starts)
        if state is not None:
            return self.advance(tokens, state)[0][:, -1]
        logits = self._call(tokens.long())
        return logits if self.reads == "strings" else logits[:, -1]

    @property
    def predicts_prefixes(self) -> bool:
        """Whether one training step can predict all prefixes of a string."""
        return self.reads == "prefixes"

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
        """Return the mean cross-entropy of the predictions for whole strings, and the number of correct predictions.

        With `lengths` (B,) the symbols past the end of a string are ignored, which only a causal module can do. `ends`
        (B, P) and `labels` (B, P) belong to prefixes of the strings.
        """
        self._check_call(None, starts)
        logits = self._call(tokens.long())
        if self.reads == "prefixes":
            if ends is not None:
                logits, labels = select_prefixes(logits, ends).flatten(0, 1), labels.flatten()
            elif lengths is None:
                logits = logits[:, -1]
            else:
                index = (lengths - 1)[:, None, None].expand(-1, 1, logits.shape[-1])
                logits = logits.gather(1, index)[:, 0]
        elif lengths is not None:
            raise ModelError(f"{self.name} reads whole strings, so all strings of a batch must have the same length")
        loss = ops.cross_entropy(logits, labels, exact_gradient=exact_gradient)
        return loss, (logits.argmax(-1) == labels).sum()

    def _call(self, tokens: Tensor) -> Tensor:
        """Call the module on tokens (B, L) and check the shape of what it returns."""
        self._check_length(tokens)
        with errors_named(self.name, tokens):
            logits = self.module(tokens.contiguous())  # a module may use `view`
        return self._checked(logits, tokens, every=self.reads == "prefixes")

    def _advance_rows(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Call `advance` of the module on tokens (B, L) and check what it returns."""
        name = f"{self.name}.advance"
        with errors_named(name, tokens):
            result = self.module.advance(tokens, state)  # type: ignore[operator]  # it is callable
        if not isinstance(result, tuple) or len(result) != 2:
            raise ModelError(f"{name} returns {format_value(result)}; it must return (logits (B, L, C), state)")
        logits, after = result
        if not isinstance(logits, Tensor) or logits.shape != (*tokens.shape, self.n_classes):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(f"{name} returns logits {shape}; they must be {(*tokens.shape, self.n_classes)}")
        try:
            map_state(lambda x: _check_state_rows(x, tokens.shape[0]), after)
        except ModelError as error:
            raise ModelError(f"{name}: {error}") from None
        return logits.float(), after

    def _checked(self, logits: Any, tokens: Tensor, *, every: bool) -> Tensor:
        expected = (*tokens.shape, self.n_classes) if every else (len(tokens), self.n_classes)
        if not isinstance(logits, Tensor) or logits.shape != expected:
            raise ModelError(_wrong_output(self.name, logits, tokens, self.n_classes))
        return logits.float()

    def _check_length(self, tokens: Tensor) -> None:
        if self.longest is not None and tokens.shape[-1] > self.longest:
            raise ModelError(
                f"{self.name} reads at most {self.longest:,} symbols, got {tokens.shape[-1]:,}; pass shorter strings"
            )

    def _check_call(self, state: State, starts: Tensor | None) -> None:
        if state is not None and not self.is_recurrent:
            raise ModelError(f"{self.name} cannot continue from a state; pass whole strings")
        if starts is not None:
            raise ModelError(f"{self.name} has its own start state; leave starts out")

    # -- saving --------------------------------------------------------------------------------------------------------

    def file_name(self, name: str) -> str:
        return name.removeprefix("module.")

    def to_safetensors(self) -> bytes:
        self.check_can_be_saved()
        return super().to_safetensors()

    def check_can_be_saved(self) -> None:
        """Raise ModelError if the state of the module holds something that a file of tensors cannot."""
        for name, value in self.state_dict().items():
            if not isinstance(value, Tensor):
                raise ModelError(
                    f"{self.name} has the state {self.file_name(name)}, which is not a tensor; return a tensor from "
                    "get_extra_state, or leave it out"
                )


def build_module(
    entry: ModelEntry, settings: ModuleSettings, n_symbols: int, n_classes: int, seed: int
) -> WrappedModule:
    """Build the module of an entry as a function of its settings and the seed, and check it.

    The random numbers of torch, numpy and Python that the module draws while it is built start from the seed; those of
    the caller are not touched.
    """
    for name, size in (("n_symbols", n_symbols), ("n_classes", n_classes)):  # before they are passed to foreign code
        if type(size) is not int or size < 1:
            raise ModelError(f"{name} is {format_value(size)}; it must be a whole number of at least 1")
    with preserved_random_numbers():
        seed_random_numbers(seed)
        try:
            module = call_factory(entry.target, n_symbols, n_classes, settings.options)
        except ModelError:
            raise
        except Exception as error:
            advice = "; check its options, and that it takes these two sizes"
            if "before Module.__init__() call" in str(error):
                advice = "; call super().__init__() first in its __init__"
            raise ModelError(
                f"{settings.name} cannot be built for {n_symbols} symbols and {n_classes} classes: "
                f"{type(error).__name__}{describe_place(error).rstrip(',')}: {first_line(error)}"
                f"{DEVICE_ADVICE if is_device_error(error) else advice}"
            ) from error
        if not isinstance(module, nn.Module):
            raise ModelError(f"{settings.name} returned {format_value(module)}; it must return an nn.Module")
        # Inside the block: a lazy module draws its parameters when it is first called.
        return wrap_module(module, n_symbols, n_classes, settings=settings)


def wrap_module(
    module: nn.Module, n_symbols: int, n_classes: int, *, settings: ModuleSettings | None = None
) -> WrappedModule:
    """Return someone else's module as a model, after checking what it returns for a few strings.

    Raises ModelError if an output has a wrong shape or type or is not finite, or if a module with an output for every
    prefix looks ahead, or has a method `advance` that does not continue what it has read.

    >>> wrap_module(nn.Embedding(2, 3), n_symbols=2, n_classes=3).reads
    'prefixes'
    >>> wrap_module(nn.Embedding(2, 3), n_symbols=2, n_classes=4)
    Traceback (most recent call last):
    sdssm.errors.ModelError: Embedding returns shape (3, 7, 3) for tokens of shape (3, 7); it must be (3, 7, 4), ...
    """
    known = settings or ModuleSettings(name=type(module).__name__)
    model = WrappedModule(module, known, n_symbols, n_classes, "prefixes")
    try:
        _probe(model)
    except ModelError as error:
        if not (is_gpu_missing(error) and model.device.type == "cpu" and torch.cuda.is_available()):
            raise
        model.needs_gpu = True
        _probe(model)
    check_reading(model)
    return model


def _probe(model: WrappedModule) -> None:
    """Find out how a module reads, and check that its logits are finite."""
    with probing(model):
        tokens = probe_tokens(model, *PROBE)
        with errors_named(model.name, tokens):
            logits = model.module(tokens)
        model.reads = _find_reads(model, logits, tokens)
        if not bool(logits.isfinite().all()):
            kind = "NaN" if bool(logits.isnan().any()) else "infinity"
            raise ModelError(
                f"{model.name} is not finite: it returns {kind} for random strings of {tokens.shape[1]} symbols; "
                f"{NOT_FINITE[kind]}"
            )


def _find_reads(model: WrappedModule, logits: Any, tokens: Tensor) -> Reads:
    """Return how a module reads, from the shape of what it returns."""
    if isinstance(logits, Tensor) and logits.is_floating_point():
        if logits.shape == (*tokens.shape, model.n_classes):
            return "prefixes"
        if logits.shape == (len(tokens), model.n_classes):
            return "strings"
    raise ModelError(_wrong_output(model.name, logits, tokens, model.n_classes))


def _wrong_output(name: str, logits: Any, tokens: Tensor, n_classes: int) -> str:
    batch, length = tokens.shape
    if not isinstance(logits, Tensor):
        what = f"a {type(logits).__name__}"
        advice = "; return the logits alone" if isinstance(logits, tuple | list | dict) else ""
    elif not logits.is_floating_point():
        what, advice = f"{logits.dtype}", "; return logits, not predictions"
    else:
        what, advice = f"shape {tuple(logits.shape)}", ""
    return (
        f"{name} returns {what} for tokens of shape {(batch, length)}; it must be {(batch, length, n_classes)}, logits "
        f"after every symbol, or {(batch, n_classes)}, for the whole string{advice}"
    )


def _check_state_rows(part: Tensor, strings: int) -> Tensor:
    if part.shape[:1] != (strings,):
        raise ModelError(
            f"the state holds shape {tuple(part.shape)} for {strings} strings; put the strings on the first axis"
        )
    return part
