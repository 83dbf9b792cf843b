"""Read the same strings with several models: single-layer SD-SSMs of one shape in one scan, others one by one.

The strings and their labels are drawn once for all models, and the scan has one launch for each piece of the strings
instead of one for each model. On a GPU the readouts of all models are one call too, so that the number of launches does
not depend on the number of models. On a CPU there is no launch to save, and each readout is applied by itself: its
products are then summed as they are for that model alone, and the logits are the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sdssm import ops
from sdssm.layers import SelectiveDense
from sdssm.layers.mixer import select_rows
from sdssm.models import Classifier, State, TokenModel
from sdssm.models.rescaled import RescaledModel

#: A model, or a model whose states are rescaled as it reads.
EvaluatedModel = TokenModel | RescaledModel
#: Which models of a group, and their logits with these models as the first axis.
ModelLogits = tuple[slice, Tensor]
#: Whether the readouts of models that share a scan are applied in one call. A product for all of them may sum in a
#: different order than one for each: logits differ in their last digits.
HAS_JOINT_READOUT = {"cpu": False, "cuda": True}


class ScanForm(NamedTuple):
    """A model as a token scan, followed by a function from states to logits.

    Attributes:
        A: the matrix of each symbol (V, N, N).
        b: the vector that is added (V, N), or None.
        rescale: whether each state is divided by its norm.
        first: from start states of the automaton (B,) or None, and the number of strings B, to the first states: (B, N)
            or (N,); None for zero.
        logits: from states (B, T, N) and the symbols before them (B, T) to logits (B, T, C).
        readout: the model, if its logits are a function of the states alone: `Classifier.logits`.
    """

    A: Tensor
    b: Tensor | None
    rescale: bool
    first: Callable[[Tensor | None, int], Tensor | None]
    logits: Callable[[Tensor, Tensor], Tensor]
    readout: Classifier | None = None

    @property
    def shape(self) -> tuple[object, ...]:
        """What forms must agree in to be scanned side by side."""
        return self.A.shape, self.A.dtype, self.A.device, self.b is None, self.rescale


def make_scan_form(model: EvaluatedModel) -> ScanForm | None:
    """Return a model as a scan; None if it is not a single-layer SD-SSM."""
    if isinstance(model, RescaledModel):
        return _rescaled_form(model)
    if isinstance(model, Classifier) and model.is_single_sd_ssm:
        return _classifier_form(model)
    return None


def _rescaled_form(model: RescaledModel) -> ScanForm:
    return ScanForm(model.A, None, True, model.first_states, lambda z, tokens: model.logits(z))


def _classifier_form(model: Classifier) -> ScanForm:
    mixer, symbols = model.mixers[0], model.symbol_parts()
    assert isinstance(mixer, SelectiveDense)

    def first(starts: Tensor | None, count: int) -> Tensor | None:
        return model.start_states(starts)

    def logits(states: Tensor, tokens: Tensor) -> Tensor:
        if model.query is not None:
            return model.logits(model.query_step(symbols, states))
        return model.logits(states if symbols.skip is None else states + select_rows(symbols.skip, tokens))

    readout = model if model.query is None and symbols.skip is None else None
    return ScanForm(symbols.A, symbols.b, mixer.settings.rescale, first, logits, readout)


class _Logits(nn.Module):
    """A module whose `forward` is the readout of a model, for `functional_call`."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, states: Tensor) -> Tensor:
        return self.model.logits(states)


class JointReadout:
    """The readouts of R models of one shape in one call: states (R, ..., N) -> logits (R, ..., C)."""

    def __init__(self, models: Sequence[Classifier]) -> None:
        self._module = _Logits(models[0])
        modules = [_Logits(model) for model in models]
        tensors = [{**dict(module.named_parameters()), **dict(module.named_buffers())} for module in modules]
        prefixes = ("model.norm.", "model.readout.", "model.vectors")
        self._tensors = {
            name: torch.stack([own[name] for own in tensors]) for name in tensors[0] if name.startswith(prefixes)
        }

    def __call__(self, states: Tensor) -> Tensor:
        logits: Tensor = vmap(self._logits)(self._tensors, states)
        return logits

    def _logits(self, tensors: dict[str, Tensor], states: Tensor) -> Tensor:
        logits: Tensor = functional_call(self._module, tensors, (states,))
        return logits


class _GroupPart(ABC):
    """Some models of a group that read the next symbols together; `numbers` are their numbers in the group."""

    numbers: list[int]
    is_recurrent: bool
    numbers_per_symbol: int  #: of all of them together

    @abstractmethod
    def advance(self, tokens: Tensor) -> Iterator[ModelLogits]:
        """Read the next symbols (B, T); yield the logits of all models in parts, (r, B, T, C)."""

    @abstractmethod
    def skip(self, tokens: Tensor) -> None:
        """Read the next symbols without a prediction."""

    @abstractmethod
    def finish(self, tokens: Tensor) -> Iterator[ModelLogits]:
        """Read the last symbols; yield the logits of all models after them in parts, (r, B, C)."""

    @abstractmethod
    def states(self) -> Iterator[tuple[int, State]]:
        """Yield the state of each model."""


class _OneModel(_GroupPart):
    """A model that reads by itself, as it does outside of a group."""

    def __init__(self, number: int, model: EvaluatedModel, starts: Tensor | None) -> None:
        self.numbers, self.model, self._starts = [number], model, starts
        self.is_recurrent, self.numbers_per_symbol = model.is_recurrent, model.numbers_per_symbol
        self._state: State = None

    def advance(self, tokens: Tensor) -> Iterator[ModelLogits]:
        logits, self._state = self.model.advance(tokens, self._state, starts=self._starts)
        self._starts = None
        yield _only(self.numbers[0]), logits[None]

    def skip(self, tokens: Tensor) -> None:
        self._state = self.model.advance_state(tokens, self._state, starts=self._starts)
        self._starts = None

    def finish(self, tokens: Tensor) -> Iterator[ModelLogits]:
        yield _only(self.numbers[0]), self.model.last_logits(tokens, self._state, starts=self._starts)[None]

    def states(self) -> Iterator[tuple[int, State]]:
        yield self.numbers[0], self._state


class _SideBySide(_GroupPart):
    """R single-layer SD-SSMs of one shape: one scan of R replicas over the same strings."""

    is_recurrent = True

    def __init__(self, numbers: list[int], models: Sequence[EvaluatedModel], forms: Sequence[ScanForm]) -> None:
        self.numbers, self._forms = numbers, forms
        self.numbers_per_symbol = sum(model.numbers_per_symbol for model in models)
        self._A = torch.stack([form.A for form in forms])  # (R, V, N, N)
        offsets = [form.b for form in forms if form.b is not None]
        self._b = torch.stack(offsets) if offsets else None
        self._x: Tensor | None = None  # (R, B, N)
        readouts = [form.readout for form in forms if form.readout is not None]
        is_joint = HAS_JOINT_READOUT[self._A.device.type] and len(readouts) == len(forms)
        is_range = numbers == list(range(numbers[0], numbers[-1] + 1))
        self._readout = JointReadout(readouts) if is_joint and is_range else None

    def start(self, starts: Tensor | None, count: int) -> None:
        """Set the first states of `count` strings."""
        first = [form.first(starts, count) for form in self._forms]
        known = [x.expand(count, -1) for x in first if x is not None]
        self._x = torch.stack(known) if known else None

    def _scan(self, tokens: Tensor) -> Tensor:
        states, self._x = ops.token_scan(self._A, self._b, tokens, self._x, rescale=self._forms[0].rescale)
        return states

    def advance(self, tokens: Tensor) -> Iterator[ModelLogits]:
        yield from self._logits(self._scan(tokens), tokens)

    def skip(self, tokens: Tensor) -> None:
        self._scan(tokens)

    def finish(self, tokens: Tensor) -> Iterator[ModelLogits]:
        self._scan(tokens)
        assert self._x is not None
        for numbers, logits in self._logits(self._x[:, :, None], tokens[:, -1:]):
            yield numbers, logits[:, :, 0]

    def _logits(self, states: Tensor, tokens: Tensor) -> Iterator[ModelLogits]:
        """Yield the logits after states (R, B, T, N)."""
        if self._readout is not None:
            yield slice(self.numbers[0], self.numbers[-1] + 1), self._readout(states)
            return
        for number, form, own in zip(self.numbers, self._forms, states, strict=True):
            yield _only(number), form.logits(own, tokens)[None]

    def states(self) -> Iterator[tuple[int, State]]:
        assert self._x is not None
        for number, own in zip(self.numbers, self._x, strict=True):
            yield number, (own,)


def _only(number: int) -> slice:
    return slice(number, number + 1)


class GroupReading:
    """One pass of several models over the same strings, piece by piece; each model keeps its own state.

    A group of one model reads exactly as that model does.

    Args:
        models: the models, on one device.
        count: the number of strings.
        starts: the automaton states that the strings start from (B,), if they are random.
    """

    def __init__(self, models: Sequence[EvaluatedModel], count: int, starts: Tensor | None = None) -> None:
        self._parts: list[_GroupPart] = []
        forms = [make_scan_form(model) if len(models) > 1 else None for model in models]
        by_shape: dict[object, list[int]] = {}
        for number, form in enumerate(forms):
            by_shape.setdefault(number if form is None else form.shape, []).append(number)
        for numbers in by_shape.values():
            own_forms = [form for form in (forms[number] for number in numbers) if form is not None]
            if len(numbers) == 1 or len(own_forms) < len(numbers):
                self._parts += [_OneModel(number, models[number], starts) for number in numbers]
                continue
            part = _SideBySide(numbers, [models[number] for number in numbers], own_forms)
            part.start(starts, count)
            self._parts.append(part)

    @property
    def is_recurrent(self) -> bool:
        """Whether all models read strings in pieces."""
        return all(part.is_recurrent for part in self._parts)

    @property
    def numbers_per_symbol(self) -> int:
        """Estimate of the numbers in memory for each symbol: parts of the group read one after the other."""
        return max(part.numbers_per_symbol for part in self._parts)

    def advance(self, tokens: Tensor) -> Iterator[ModelLogits]:
        """Read the next symbols (B, T); yield parts: which r models, and their logits (r, B, T, C)."""
        for part in self._parts:
            yield from part.advance(tokens)

    def skip(self, tokens: Tensor) -> None:
        """Read the next symbols (B, T) without a prediction."""
        for part in self._parts:
            part.skip(tokens)

    def finish(self, tokens: Tensor) -> Iterator[ModelLogits]:
        """Read the last symbols (B, T); yield parts: which r models, and their logits after them (r, B, C)."""
        for part in self._parts:
            yield from part.finish(tokens)

    def states(self) -> list[State]:
        """Return the state of each model, in the order of the models."""
        numbered = dict(pair for part in self._parts for pair in part.states())
        return [numbered[number] for number in sorted(numbered)]
