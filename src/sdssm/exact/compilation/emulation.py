"""Check on random strings that a model emulates a machine, and measure how far its states drift."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.exact.compilation.characters import SymbolGroup
from sdssm.exact.defaults import CHECKED_STRINGS
from sdssm.exact.errors import ExactError
from sdssm.exact.sources import MachineSource
from sdssm.exact.watch import Watch, open_watch
from sdssm.layers.mixer import flatten_state, select_state_rows
from sdssm.models import Classifier
from sdssm.models.stack import State
from sdssm.progress import ProgressOption
from sdssm.settings import check_at_least
from sdssm.tasks import get_task
from sdssm.tasks.labels import LabelWalk, PrefixLabeller

#: Limits on the numbers of a piece of strings in memory, and on its symbols.
MOST_NUMBERS, PIECE = 1 << 22, 4_096
#: The default length of a check, and the multiplications from which on it is shorter.
LONGEST, MOST_WORK = 10_000, 10**10


@dataclass(frozen=True)
class EmulationCheck:
    """The predictions of a model on random strings, at every prefix, compared with a machine."""

    strings: int
    length: int
    wrong: int  #: number of labels that differ from the machine's
    first_wrong: int | None  #: the length of the shortest misclassified prefix
    drift: float  #: the largest distance of a state from its encoding, relative to the norm of the encoding


@torch.no_grad()
def check_emulation(
    model: Classifier,
    machine: MachineSource,
    length: int,
    *,
    strings: int = CHECKED_STRINGS,
    generator: torch.Generator,
    progress: ProgressOption = False,
) -> EmulationCheck:
    """Compare a model with a machine at every prefix of random strings.

    The strings are read in pieces, with the state carried from one to the next. The encoding of a machine state is the
    state of the model, in float64, after the shortest string that leads there. A diagonal model has one encoding for
    each element of the group, which may have more elements than the machine has states. The drift is measured at the
    end of every piece.

    >>> from sdssm.automata import get_machine
    >>> from sdssm.exact import compile
    >>> check_emulation(compile("a5"), get_machine("a5"), 1_000, generator=torch.Generator().manual_seed(0))
    EmulationCheck(strings=4, length=1000, wrong=0, first_wrong=None, drift=0.0)
    """
    check_at_least("length", length, 1)
    check_at_least("strings", strings, 1)
    task = get_task(machine)
    with open_watch(f"check {task.name}", progress, None) as watch:
        return _check_emulation(model, task.machine, length, strings, generator, watch)


def default_check_length(model: Classifier, strings: int) -> int:
    """Return a length whose check takes seconds: 10,000, and less for models with large states.

    >>> from sdssm.exact import compile
    >>> default_check_length(compile("a5"), 4)
    10000
    """
    size = getattr(model.settings.mixer, "state", 1) if model.is_single_sd_ssm else 1
    return max(100, min(LONGEST, MOST_WORK // (strings * size**2)))


def _check_emulation(
    model: Classifier, machine: Machine, length: int, strings: int, generator: torch.Generator, watch: Watch
) -> EmulationCheck:
    _check_compatible(model, machine)
    if not isinstance(generator, torch.Generator):
        raise ExactError(f"generator is {format_value(generator)}; pass a torch.Generator to draw the strings from")
    if model.settings.name == "complex-diagonal" and machine.is_group:
        group = SymbolGroup.generate(machine)
        table, start, outputs = torch.tensor(group.table), 0, torch.tensor(group.labels)
    else:
        table, start, outputs = torch.tensor(machine.table), machine.start, torch.tensor(machine.outputs)
    device = model.readout.weight.device
    encodings, norms = _encodings(model, table, start, watch)
    piece = max(1, min(PIECE, MOST_NUMBERS // (strings * model.numbers_per_symbol)))
    machine_states = torch.arange(len(table))  # as labels
    walk = LabelWalk(table, PrefixLabeller.build(table, start, machine_states), torch.full((strings,), start))
    state: State = None
    wrong, first_wrong, drift = 0, None, 0.0
    watch.start("read random strings", total=length, unit="symbols")
    for done in range(0, length, piece):
        watch.update(done)
        count = min(piece, length - done)
        tokens = torch.randint(machine.n_symbols, (strings, count), generator=generator, device=generator.device).cpu()
        logits, state = model.advance(tokens.to(device), state)
        states = walk.advance(tokens)  # of the machine, after each symbol
        missed = logits.argmax(-1).cpu() != outputs[states]
        if missed.any():
            wrong += int(missed.sum())
            first_wrong = done + int(missed.any(0).int().argmax()) + 1 if first_wrong is None else first_wrong
        last = states[:, -1]
        distance = (_flatten(state).double() - encodings[last]).norm(dim=-1) / norms[last]
        drift = max(drift, float(distance.nan_to_num(nan=torch.inf).max()))
    return EmulationCheck(strings=strings, length=length, wrong=wrong, first_wrong=first_wrong, drift=drift)


def _check_compatible(model: Classifier, machine: Machine) -> None:
    if not isinstance(model, Classifier):
        raise ExactError(
            f"the model is {format_value(model)}; pass a Classifier, as sdssm.compile and sdssm.load return it"
        )
    if model.n_symbols != machine.n_symbols:
        raise ExactError(
            f"the model reads {model.n_symbols} symbols and the machine {machine.n_symbols}; both must agree"
        )
    if not model.is_recurrent:
        raise ExactError(
            f"{model.settings.name} carries no state from one piece of a string to the next; use sdssm.evaluate"
        )


def _encodings(model: Classifier, table: Tensor, start: int, watch: Watch) -> tuple[Tensor, Tensor]:
    """Return the state after the shortest non-empty string to each machine state (Q, N), and its norm."""
    device, symbols = model.readout.weight.device, table.shape[1]
    advance = _make_step(model)
    # A breadth-first search that extends all strings of one length at a time.
    states, before = torch.tensor([start]), None
    seen, encodings = torch.zeros(len(table), dtype=torch.bool), None
    watch.start("encode the states of the machine", total=len(table), unit="states")
    while len(states):
        watch.update(int(seen.sum()))
        successors = table[states].flatten()
        after = advance(torch.arange(symbols).repeat(len(states)), before, symbols)
        flat = _flatten(after).cpu()
        encodings = flat.new_zeros(len(table), flat.shape[1]) if encodings is None else encodings
        count = len(successors)
        first = torch.full((len(table),), count).scatter_reduce(0, successors, torch.arange(count), "amin")
        fresh = torch.nonzero((first < count) & ~seen).flatten()
        seen[fresh] = True
        rows = first[fresh]
        encodings[fresh] = flat[rows]
        states, before = fresh, select_state_rows(after, rows)
    assert encodings is not None
    encodings = encodings.to(device)
    return encodings, encodings.norm(dim=-1)


def _make_step(model: Classifier) -> Callable[[Tensor, State, int], State]:
    """Return a function that reads one symbol in float64: symbols (B * V,), states (B, ...) -> states (B * V, ...).

    A linear SD-SSM reads it with matrices that are mixed once, and skips the entries of the states that are zero: all
    but one in a compiled model, which may have thousands.
    """
    double = copy.deepcopy(model).double()
    is_linear = model.is_single_sd_ssm and model.input_matrix is None and model.initial_state is not None
    if not is_linear or getattr(model.settings.mixer, "rescale", False):

        def advance(tokens: Tensor, before: State, symbols: int) -> State:
            expanded = None if before is None else _repeat_rows(before, symbols)
            return double.advance_state(tokens[:, None].to(model.readout.weight.device), expanded)

        return advance
    A = double.symbol_parts().A[: model.n_symbols]
    transposed = A.mT.contiguous()  # (V, N, N)
    start = double.first_state

    def multiply(tokens: Tensor, before: State, symbols: int) -> State:
        x = start[None] if before is None else before[0]
        used = torch.nonzero((x != 0).any(0)).flatten()
        ends = torch.stack([x[:, used] @ transposed[v, used] for v in range(symbols)], 1)
        return (ends.flatten(0, 1),)

    return multiply


def _repeat_rows(state: State, times: int) -> State:
    assert state is not None
    return tuple(x.repeat_interleave(times, 0) for x in state)


def _flatten(state: State) -> Tensor:
    """Concatenate the states of all layers, as real numbers: (B, ...) -> (B, N)."""
    return torch.cat([part.flatten(1) for part in flatten_state(state)], 1)
