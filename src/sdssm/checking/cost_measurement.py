"""Measure parameters, memory, and tokens a second in training and in generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from sdssm.checking.model_costs import ModelCosts
from sdssm.devices import device_name
from sdssm.errors import ModelError, first_line
from sdssm.layers.mixer import state_tensors
from sdssm.models import Classifier, State, TokenModel
from sdssm.models.reading import reading_mode
from sdssm.tasks import Task
from sdssm.testing.readable_length import find_readable_length

#: Strings of a training batch, of one if a step takes long, and strings that are generated side by side.
BATCH, SMALL_BATCH, SIDE_BY_SIDE = 128, 8, 64
#: The seconds that each speed is measured for; a first call that takes longer than this many times that is the result.
SECONDS, SLOW = 0.5, 4
#: Several strings are not generated side by side if that would take longer than this many seconds for a symbol.
MOST_SECONDS = 1.0
#: The length of the prefix that a model without a state reads again for each symbol.
PREFIX = 500


def measure_costs(
    model: TokenModel, task: Task, *, train_length: int | None = None, seconds: float = SECONDS, seed: int = 0
) -> ModelCosts:
    """Measure size and speed of a model; each of three speeds for about `seconds`, or for one call.

    Each is measured by itself: if one fails, the others are known.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> costs = measure_costs(compile("parity"), get_task("parity"))
    >>> costs.state_numbers, costs.prefix_length, costs.generation_tokens > 0
    (2, None, True)
    """
    device = model.device
    trained = find_readable_length(model, train_length or task.train_length) or 1
    starts = None
    if model.settings.state_embedding is not None:
        starts = torch.zeros(BATCH, dtype=torch.long, device=device)
    training, batch, single, several, state, prefix = None, BATCH, None, None, None, None
    training_problem = generation_problem = None
    try:
        trained = task.longest_valid_length(trained)
        strings = task.sample(BATCH, trained, generator=torch.Generator().manual_seed(seed))
        tokens, labels = strings.tokens.to(device), strings.labels[:, -1].to(device)
        training = _measure_training(model, tokens, labels, starts, seconds)
        batch = training.batch
    except Exception as error:  # a module may be unable to compute gradients
        training_problem = first_line(error)
    try:
        with reading_mode(model):
            if not model.is_recurrent:
                prefix = find_readable_length(model, PREFIX)
            single = _measure_generation(model, 1, prefix, starts, seconds)
            if prefix is None or SIDE_BY_SIDE / single < min(MOST_SECONDS, SLOW * seconds):
                several = _measure_generation(model, SIDE_BY_SIDE, prefix, starts, seconds)
            state = _state_numbers(model, None if starts is None else starts[:1])
    except Exception as error:  # someone else's code may raise anything
        generation_problem = first_line(error)
    return ModelCosts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        training_bytes=None if training is None else training.memory,
        training_tokens=None if training is None else training.tokens_per_second,
        training_problem=training_problem,
        train_length=trained,
        batch=batch,
        state_numbers=state,
        generation_tokens=single,
        generation_problem=generation_problem,
        generation_tokens_side_by_side=several,
        side_by_side=SIDE_BY_SIDE,
        prefix_length=prefix,
        device=device_name(device),
        threads=torch.get_num_threads() if device.type == "cpu" else None,
    )


class TrainingCost(NamedTuple):
    """The speed of training in tokens a second, the bytes of a step, and the number of strings of a batch."""

    tokens_per_second: float
    memory: int | None
    batch: int


def _measure_training(
    model: TokenModel, tokens: Tensor, labels: Tensor, starts: Tensor | None, seconds: float
) -> TrainingCost:
    """Measure forward and backward of a batch; of a small one if a step would take too long."""
    copy = deepcopy(model).train()  # so that no statistic of the model changes
    parameters = [parameter.requires_grad_() for parameter in copy.parameters() if parameter.is_floating_point()]
    if not parameters:
        raise ModelError("it has no parameters")

    def make_step(rows: int) -> Callable[[], None]:
        batch_tokens = tokens[:rows]
        shapes = copy.noise_shapes(*batch_tokens.shape).items()
        noise = {name: torch.rand(shape, device=tokens.device) for name, shape in shapes} or None
        first = None if starts is None else starts[:rows]

        def step() -> None:
            loss, _ = copy.loss(batch_tokens, labels[:rows], starts=first, noise=noise)
            torch.autograd.grad(loss, parameters, allow_unused=True)

        return step

    small, limit, batch = make_step(SMALL_BATCH), SLOW * seconds, BATCH
    scale = BATCH / SMALL_BATCH
    # The first call may compile code; the second shows how long a step takes.
    if scale * _time_call(small, tokens.device) > limit and scale * _time_call(small, tokens.device) > limit:
        batch = SMALL_BATCH
    step = make_step(batch)
    if tokens.device.type == "cuda":
        step()
        torch.cuda.reset_peak_memory_stats(tokens.device)
        before = torch.cuda.memory_allocated(tokens.device)
        step()
        used = torch.cuda.max_memory_allocated(tokens.device) - before
    else:
        used = _kept_bytes(step, parameters)
    rate = _calls_per_second(step, tokens.device, seconds)
    return TrainingCost(batch * tokens.shape[1] * rate, used, batch)


def _kept_bytes(step: Callable[[], None], parameters: Sequence[Tensor]) -> int:
    """Return the bytes of the tensors, other than parameters, that a step keeps for the gradient."""
    kept: dict[int, int] = {}

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        step()
    for parameter in parameters:
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(kept.values())


def _measure_generation(
    model: TokenModel, rows: int, prefix: int | None, starts: Tensor | None, seconds: float
) -> float:
    """Return tokens a second, one symbol of each of `rows` strings at a time."""
    device = model.device
    first = None if starts is None else starts[:rows]
    if prefix is not None:
        tokens = torch.zeros(rows, prefix, dtype=torch.long, device=device)
        return rows * _calls_per_second(lambda: model.last_logits(tokens, starts=first), device, seconds)
    if isinstance(model, Classifier):  # it has code of its own for single symbols
        symbol = torch.zeros(rows, dtype=torch.long, device=device)
        read: Callable[..., tuple[Tensor, State]] = model.step
    else:
        symbol = torch.zeros(rows, 1, dtype=torch.long, device=device)
        read = model.advance
    state = read(symbol, starts=first)[1]

    def step() -> None:
        nonlocal state
        state = read(symbol, state)[1]

    return rows * _calls_per_second(step, device, seconds)


def _time_call(call: Callable[[], object], device: torch.device) -> float:
    started = perf_counter()
    call()
    _wait(device)
    return perf_counter() - started


def _calls_per_second(call: Callable[[], object], device: torch.device, least_seconds: float) -> float:
    """Return how often a call runs in a second, after a first one that is not counted unless it is slow."""
    first = _time_call(call, device)
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


def _state_numbers(model: TokenModel, starts: Tensor | None) -> int | None:
    """Return how many numbers the state of one string has; None without a state."""
    if not model.is_recurrent:
        return None
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    tensors = state_tensors(model.advance(token, starts=starts)[1])
    return sum(tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in tensors)
