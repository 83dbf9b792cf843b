"""How far the states of a model that emulates a machine move away from where they should be, and its labels."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.exact.compilation.characters import SymbolGroup
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier
from sdssm.models.stack import State
from sdssm.settings import check_at_least
from sdssm.tasks.labels import Labeller

#: Numbers of a piece of strings in memory, and the most places of one.
MOST_NUMBERS, PIECE = 1 << 22, 4_096


@dataclass(frozen=True)
class EmulationCheck:
    """What a model said of random strings, at every prefix."""

    strings: int
    length: int
    wrong: int  #: labels that are not the machine's
    first_wrong: int | None  #: the shortest prefix with such a label
    drift: float  #: the largest deviation of a state from its encoding, relative to the encoding's size


@torch.no_grad()
def check_emulation(
    model: Classifier, machine: Machine, length: int, *, strings: int = 4, generator: torch.Generator
) -> EmulationCheck:
    """Read random strings in pieces, with the state carried, and compare with the machine.

    The encoding of a state is where the model, in float64, is after the shortest string that leads to the state. A
    diagonal model has one for each element of the group, which may have more elements than the machine has states.

    >>> from sdssm.automata import get_machine
    >>> from sdssm.exact import compile
    >>> check_emulation(compile("a5"), get_machine("a5"), 1_000, generator=torch.Generator().manual_seed(0))
    EmulationCheck(strings=4, length=1000, wrong=0, first_wrong=None, drift=0.0)
    """
    check_at_least("length", length, 1)
    check_at_least("strings", strings, 1)
    _check_fit(model, machine)
    if not isinstance(generator, torch.Generator):
        raise ExactError(f"the generator is {format_value(generator)}; strings are drawn from a torch.Generator")
    if model.settings.name == "complex-diagonal" and machine.is_group:
        group = SymbolGroup.of(machine)
        table, start, outputs = torch.tensor(group.table), 0, torch.tensor(group.labels)
    else:
        table, start, outputs = torch.tensor(machine.table), machine.start, torch.tensor(machine.outputs)
    device = model.readout.weight.device
    codes, sizes = _encodings(model, table, start)
    words = Labeller.build(table, start, torch.arange(len(table)))
    piece = max(1, min(PIECE, MOST_NUMBERS // (strings * model.numbers)))
    at, state = torch.full((strings,), start), None
    wrong, first, furthest = 0, None, 0.0
    for done in range(0, length, piece):
        count = min(piece, length - done)
        tokens = torch.randint(machine.n_symbols, (strings, count), generator=generator, device=generator.device).cpu()
        logits, state = model.advance(tokens.to(device), state)
        walked = _walk(words, at, tokens)
        at = walked[:, -1]
        missed = logits.argmax(-1).cpu() != outputs[walked]
        if missed.any():
            wrong += int(missed.sum())
            first = done + int(missed.any(0).int().argmax()) + 1 if first is None else first
        gap = (_flat(state).double() - codes[at]).norm(dim=-1) / sizes[at]
        furthest = max(furthest, float(gap.nan_to_num(nan=torch.inf).max()))
    return EmulationCheck(strings=strings, length=length, wrong=wrong, first_wrong=first, drift=furthest)


def largest_drift(
    model: Classifier, machine: Machine, length: int, *, strings: int = 4, generator: torch.Generator
) -> float:
    """The largest deviation of a state from its encoding after up to `length` steps of random strings; see
    `check_emulation`."""
    return check_emulation(model, machine, length, strings=strings, generator=generator).drift


def _check_fit(model: Classifier, machine: Machine) -> None:
    if not isinstance(model, Classifier):
        raise ExactError(
            f"the model is {format_value(model)}; give a Classifier, as sdssm.compile or sdssm.load return one"
        )
    if model.n_symbols != machine.n_symbols:
        raise ExactError(
            f"the model reads {model.n_symbols} symbols and the machine {machine.n_symbols}; both need the same"
        )
    if not model.recurrent:
        raise ExactError(f"{model.settings.name} carries no state from one piece of a string to the next")


def _walk(words: Labeller, at: Tensor, tokens: Tensor) -> Tensor:
    """The machine's state after each symbol, from states `at` (B,): tokens (B, T) -> (B, T)."""
    rows = [replace(words, start=int(q))(row[None])[0] for q, row in zip(at, tokens, strict=True)]
    return torch.stack(rows)


def _encodings(model: Classifier, table: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Where the model is after the shortest non-empty string to each state: (Q, N), and the sizes of these (Q,)."""
    double = copy.deepcopy(model).double()
    device, symbols = model.readout.weight.device, table.shape[1]
    # A breadth-first search with many states at a time.
    states, before = torch.tensor([start]), None
    seen, codes = torch.zeros(len(table), dtype=torch.bool), None
    while len(states):
        tokens = torch.arange(symbols).repeat(len(states))[:, None]
        at = table[states].flatten()
        after = double.carry(tokens.to(device), None if before is None else _rows(before, symbols))
        flat = _flat(after).cpu()
        codes = flat.new_zeros(len(table), flat.shape[1]) if codes is None else codes
        first = torch.full((len(table),), len(at)).scatter_reduce(0, at, torch.arange(len(at)), "amin")
        fresh = torch.nonzero((first < len(at)) & ~seen).flatten()
        seen[fresh] = True
        places = first[fresh]
        codes[fresh] = flat[places]
        states, before = fresh, _pick(after, places.to(device))
    assert codes is not None
    codes = codes.to(device)
    return codes, codes.norm(dim=-1)


def _rows(state: State, times: int) -> State:
    assert state is not None
    return tuple(x.repeat_interleave(times, 0) for x in state)


def _pick(state: State, places: Tensor) -> State:
    assert state is not None
    return tuple(x[places] for x in state)


def _flat(state: State) -> Tensor:
    """The states of all layers side by side, real: (B, ...) -> (B, N)."""
    assert state is not None
    parts = [(torch.view_as_real(x) if x.is_complex() else x).flatten(1) for x in state]
    return torch.cat(parts, 1)
