"""Check on random strings that a model emulates a machine, and measure how far its states drift."""

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
from sdssm.tasks.labels import PrefixLabeller

#: Limits on the numbers of a piece of strings in memory, and on its symbols.
MOST_NUMBERS, PIECE = 1 << 22, 4_096


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
    model: Classifier, machine: Machine, length: int, *, strings: int = 4, generator: torch.Generator
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
    _check_compatible(model, machine)
    if not isinstance(generator, torch.Generator):
        raise ExactError(f"generator is {format_value(generator)}; pass a torch.Generator to draw the strings from")
    if model.settings.name == "complex-diagonal" and machine.is_group:
        group = SymbolGroup.generate(machine)
        table, start, outputs = torch.tensor(group.table), 0, torch.tensor(group.labels)
    else:
        table, start, outputs = torch.tensor(machine.table), machine.start, torch.tensor(machine.outputs)
    device = model.readout.weight.device
    encodings, norms = _encodings(model, table, start)
    tracer = PrefixLabeller.build(table, start, torch.arange(len(table)))
    piece = max(1, min(PIECE, MOST_NUMBERS // (strings * model.numbers_per_symbol)))
    q, state = torch.full((strings,), start), None
    wrong, first_wrong, drift = 0, None, 0.0
    for done in range(0, length, piece):
        count = min(piece, length - done)
        tokens = torch.randint(machine.n_symbols, (strings, count), generator=generator, device=generator.device).cpu()
        logits, state = model.advance(tokens.to(device), state)
        states = _trace(tracer, q, tokens)
        q = states[:, -1]
        missed = logits.argmax(-1).cpu() != outputs[states]
        if missed.any():
            wrong += int(missed.sum())
            first_wrong = done + int(missed.any(0).int().argmax()) + 1 if first_wrong is None else first_wrong
        distance = (_flatten(state).double() - encodings[q]).norm(dim=-1) / norms[q]
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


def _trace(tracer: PrefixLabeller, q: Tensor, tokens: Tensor) -> Tensor:
    """Return the machine state after each symbol, from states q (B,): tokens (B, T) -> (B, T)."""
    rows = [replace(tracer, start=int(start))(row[None])[0] for start, row in zip(q, tokens, strict=True)]
    return torch.stack(rows)


def _encodings(model: Classifier, table: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return the state after the shortest non-empty string to each machine state (Q, N), and its norm."""
    double = copy.deepcopy(model).double()
    device, symbols = model.readout.weight.device, table.shape[1]
    # A breadth-first search that extends all strings of one length at a time.
    states, before = torch.tensor([start]), None
    seen, encodings = torch.zeros(len(table), dtype=torch.bool), None
    while len(states):
        tokens = torch.arange(symbols).repeat(len(states))[:, None]
        successors = table[states].flatten()
        after = double.advance_state(tokens.to(device), None if before is None else _repeat_rows(before, symbols))
        flat = _flatten(after).cpu()
        encodings = flat.new_zeros(len(table), flat.shape[1]) if encodings is None else encodings
        count = len(successors)
        first = torch.full((len(table),), count).scatter_reduce(0, successors, torch.arange(count), "amin")
        fresh = torch.nonzero((first < count) & ~seen).flatten()
        seen[fresh] = True
        rows = first[fresh]
        encodings[fresh] = flat[rows]
        states, before = fresh, _select_rows(after, rows.to(device))
    assert encodings is not None
    encodings = encodings.to(device)
    return encodings, encodings.norm(dim=-1)


def _repeat_rows(state: State, times: int) -> State:
    assert state is not None
    return tuple(x.repeat_interleave(times, 0) for x in state)


def _select_rows(state: State, rows: Tensor) -> State:
    assert state is not None
    return tuple(x[rows] for x in state)


def _flatten(state: State) -> Tensor:
    """Concatenate the states of all layers, as real numbers: (B, ...) -> (B, N)."""
    assert state is not None
    parts = [(torch.view_as_real(x) if x.is_complex() else x).flatten(1) for x in state]
    return torch.cat(parts, 1)
