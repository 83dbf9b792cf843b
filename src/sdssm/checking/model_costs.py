"""The last section of a report card: parameters, memory, and tokens a second in training and in generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from sdssm.devices import device_name
from sdssm.formatting import count_of
from sdssm.models import TokenModel
from sdssm.runs.events import to_json_value
from sdssm.tasks import Task

#: Strings of a training batch, and strings that are generated side by side.
BATCH, SIDE_BY_SIDE = 128, 64
#: The seconds that each speed is measured for; a first call that takes longer than this many times that is the result.
SECONDS, SLOW = 0.5, 4
#: Several strings are not generated side by side if that would take longer than this many seconds for a symbol.
MOST_SECONDS = 1.0
#: The length of the prefix that a model without a state reads again for each symbol.
PREFIX = 500


@dataclass(frozen=True, kw_only=True)
class ModelCosts:
    """What a model costs.

    Attributes:
        parameters: the number of its parameters.
        parameter_bytes: their size.
        training_bytes: memory of one training step beyond parameters: on a GPU the peak, on a CPU the tensors that are
            kept for the gradient. None if it could not be measured.
        training_tokens: tokens a second in training, forward and backward of one batch; None if it cannot be trained.
        train_length, batch: of that batch.
        state_numbers: numbers of the state of one string; None if the model has none.
        generation_tokens: tokens a second, one symbol of one string at a time.
        generation_tokens_side_by_side: the same for `side_by_side` strings together; None if that takes too long.
        prefix_length: the length of the prefix that is read again for each symbol; None for a recurrent model.
        device: where it was measured.
        threads: of the CPU; None on a GPU.
    """

    parameters: int
    parameter_bytes: int
    training_bytes: int | None
    training_tokens: float | None
    training_problem: str | None
    train_length: int
    batch: int
    state_numbers: int | None
    generation_tokens: float
    generation_tokens_side_by_side: float | None
    side_by_side: int
    prefix_length: int | None
    device: str
    threads: int | None

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        data: dict[str, Any] = to_json_value(vars(self))
        return data

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        threads = "" if self.threads is None else f", {count_of(self.threads, 'thread')}"
        facts = {"parameters": f"{self.parameters:,} ({format_bytes(self.parameter_bytes)})"}
        batch = f"batch of {self.batch} strings of length {self.train_length:,}"
        if self.training_tokens is None:
            facts["training"] = f"not measured: {self.training_problem}"
        else:
            facts["training"] = f"{format_rate(self.training_tokens)} tokens/s, {batch}, forward and backward"
        if self.training_bytes is not None:
            kind = "kept for the gradient" if self.threads is not None else "at its peak"
            facts["memory in training"] = f"{format_bytes(self.training_bytes)} {kind}, {batch}"
        one, several = format_rate(self.generation_tokens), ""
        if self.generation_tokens_side_by_side is not None:
            several = f"; {format_rate(self.generation_tokens_side_by_side)} with {self.side_by_side} strings"
        if self.prefix_length is None:
            facts["generation"] = f"{one} tokens/s step by step with its state{several}"
            facts["memory in generation"] = f"{self.state_numbers:,} numbers of state for each string, at any length"
        else:
            facts["generation"] = (
                f"{one} tokens/s at length {self.prefix_length:,}{several}; it has no state, so the whole prefix is "
                "read again for each token"
            )
            facts["memory in generation"] = "the whole prefix: it has no state"
        facts["measured on"] = f"{self.device}{threads}"
        return facts

    def summary(self) -> str:
        """Return parameters and speeds in one line."""
        trained = "not measured" if self.training_tokens is None else f"{format_rate(self.training_tokens)} tokens/s"
        return (
            f"{self.parameters:,} parameters; training {trained}, generation "
            f"{format_rate(self.generation_tokens)} tokens/s"
        )


def measure_costs(
    model: TokenModel, task: Task, *, train_length: int | None = None, seconds: float = SECONDS, seed: int = 0
) -> ModelCosts:
    """Measure size and speed of a model; each of three speeds for `seconds`, or for one call.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> costs = measure_costs(compile("parity"), get_task("parity"))
    >>> costs.state_numbers, costs.prefix_length, costs.generation_tokens > 0
    (2, None, True)
    """
    device = model.device
    trained = task.longest_valid_length(train_length or task.train_length)
    generator = torch.Generator().manual_seed(seed)
    strings = task.sample(BATCH, trained, generator=generator)
    tokens, labels = strings.tokens.to(device), strings.labels[:, -1].to(device)
    starts = None
    if model.settings.state_embedding is not None:
        starts = torch.zeros(BATCH, dtype=torch.long, device=device)
    training_tokens = training_bytes = problem = None
    try:
        training_tokens, training_bytes = _measure_training(model, tokens, labels, starts, seconds)
    except Exception as error:  # a module may be unable to compute gradients
        problem = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    with _generating(model):
        prefix = None
        if not model.is_recurrent:
            prefix = task.longest_valid_length(PREFIX if model.longest is None else min(PREFIX, model.longest))
        one = _measure_generation(model, 1, prefix, starts, seconds)
        several = None
        if prefix is None or SIDE_BY_SIDE / one < MOST_SECONDS:
            several = _measure_generation(model, SIDE_BY_SIDE, prefix, starts, seconds)
        state = _state_numbers(model, tokens[:1, :1], None if starts is None else starts[:1])
    return ModelCosts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        training_bytes=training_bytes,
        training_tokens=training_tokens,
        training_problem=problem,
        train_length=trained,
        batch=BATCH,
        state_numbers=state,
        generation_tokens=one,
        generation_tokens_side_by_side=several,
        side_by_side=SIDE_BY_SIDE,
        prefix_length=prefix,
        device=device_name(device),
        threads=torch.get_num_threads() if device.type == "cpu" else None,
    )


def _measure_training(
    model: TokenModel, tokens: Tensor, labels: Tensor, starts: Tensor | None, seconds: float
) -> tuple[float, int | None]:
    """Return tokens a second of forward and backward, and the memory of a step."""
    copy = deepcopy(model).train()  # so that no statistic of the model changes
    parameters = [parameter.requires_grad_() for parameter in copy.parameters() if parameter.is_floating_point()]
    noise = {name: torch.rand(shape, device=tokens.device) for name, shape in copy.noise_shapes(*tokens.shape).items()}

    def step() -> None:
        loss, _ = copy.loss(tokens, labels, starts=starts, noise=noise or None)
        torch.autograd.grad(loss, parameters, allow_unused=True)

    if tokens.device.type == "cuda":
        step()
        torch.cuda.reset_peak_memory_stats(tokens.device)
        before = torch.cuda.memory_allocated(tokens.device)
        step()
        used = torch.cuda.max_memory_allocated(tokens.device) - before
    else:
        kept: dict[int, int] = {}

        def remember(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            step()
        for parameter in parameters:
            kept.pop(parameter.untyped_storage().data_ptr(), None)
        used = sum(kept.values())
    return tokens.numel() * _calls_per_second(step, tokens.device, seconds), used


def _measure_generation(
    model: TokenModel, rows: int, prefix: int | None, starts: Tensor | None, seconds: float
) -> float:
    """Return tokens a second, one symbol of each of `rows` strings at a time."""
    device = model.device
    first = None if starts is None else starts[:rows]
    if prefix is not None:
        tokens = torch.zeros(rows, prefix, dtype=torch.long, device=device)
        return rows * _calls_per_second(lambda: model.last_logits(tokens, starts=first), device, seconds)
    symbol = torch.zeros(rows, 1, dtype=torch.long, device=device)
    state = model.advance(symbol, starts=first)[1]

    def step() -> None:
        nonlocal state
        state = model.advance(symbol, state)[1]

    return rows * _calls_per_second(step, device, seconds)


def _calls_per_second(call: Callable[[], object], device: torch.device, least_seconds: float) -> float:
    """Return how often a call runs in a second, after a first one that is not counted unless it is slow."""
    started = perf_counter()
    call()
    _wait(device)
    first = perf_counter() - started
    if first > SLOW * least_seconds:  # what it may have compiled is no longer a large part of it
        return 1 / first
    started, calls, batch = perf_counter(), 0, 1
    while True:
        for _ in range(batch):
            call()
        _wait(device)
        calls += batch
        seconds = perf_counter() - started
        if seconds >= least_seconds:
            return calls / seconds
        batch = min(2 * batch, 1_024)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _state_numbers(model: TokenModel, token: Tensor, starts: Tensor | None) -> int | None:
    """Return how many numbers the state of one string has; None without a state."""
    if not model.is_recurrent:
        return None
    return _count_numbers(model.advance(token, starts=starts)[1])


def _count_numbers(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.numel() * (2 if state.is_complex() else 1)
    if isinstance(state, tuple | list):
        return sum(_count_numbers(part) for part in state)
    if isinstance(state, dict):
        return sum(_count_numbers(part) for part in state.values())
    return 0


@contextmanager
def _generating(model: TokenModel) -> Iterator[None]:
    """Disable gradients and dropout."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def format_bytes(size: float) -> str:
    """Format a size in memory.

    >>> format_bytes(512), format_bytes(20_480), format_bytes(3.2e6)
    ('512 B', '20 KiB', '3.1 MiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def format_rate(rate: float) -> str:
    """Format a number of tokens a second with two or three digits.

    >>> format_rate(123_456.0), format_rate(87.4)
    ('123,000', '87')
    """
    digits = 10 ** max(len(str(int(rate))) - 3, 0)
    return f"{round(rate / digits) * digits:,}"
