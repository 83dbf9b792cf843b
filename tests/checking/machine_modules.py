"""Modules of "someone else" that emulate a machine exactly, and machines with a planted error."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from sdssm.automata import Machine
from sdssm.models import TokenModel, wrap_module
from sdssm.tasks import Task

#: How a module reads: one symbol at a time with a state, or one in a dict, all prefixes at once, or whole strings.
KINDS = ("recurrent", "recurrent, dict", "prefixes", "strings")


class PrefixModule(nn.Module):
    """Emulates a machine by table lookups: tokens (B, L) -> logits (B, L, C)."""

    table: Tensor
    outputs: Tensor

    def __init__(self, machine: Machine, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.tensor(machine.table))
        self.register_buffer("outputs", torch.tensor(machine.outputs))
        self.start, self.n_classes = machine.start, n_classes

    def read(self, tokens: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
        states = tokens.new_full((len(tokens),), self.start) if states is None else states
        trace = []
        for symbols in tokens.T:
            states = self.table[states, symbols]
            trace.append(states)
        return one_hot(self.outputs[torch.stack(trace, 1)], self.n_classes).float(), states

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(tokens, None)[0]


class RecurrentModule(PrefixModule):
    """The same, with its state as a one-hot vector (B, Q)."""

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        logits, states = self.read(tokens, None if state is None else state.argmax(1))
        return logits, one_hot(states, len(self.table)).float()


class DictStateModule(RecurrentModule):
    """The same, with its state in a dict."""

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, after = super().advance(tokens, None if state is None else state["one-hot"])
        return logits, {"one-hot": after}


class StringModule(PrefixModule):
    """The same, for whole strings: tokens (B, L) -> logits (B, C)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(tokens, None)[0][:, -1]


def machine_model(machine: Machine, kind: str, n_classes: int | None = None) -> TokenModel:
    """Return a wrapped module that emulates a machine."""
    classes = machine.n_outputs if n_classes is None else n_classes
    modules = (RecurrentModule, DictStateModule, PrefixModule, StringModule)
    module = dict(zip(KINDS, modules, strict=True))[kind](machine, classes)
    return wrap_module(module, machine.n_symbols, classes)


def wrong_on(machine: Machine, word: tuple[int, ...]) -> Machine:
    """Return a machine with another output after one word only."""
    n = len(word)  # states are (q, number of symbols of the word that were read, n + 1 for any other string)

    def follow(q: int, read: int, symbol: int) -> int:
        matches = read < n and word[read] == symbol
        return int(machine.table[q, symbol]) * (n + 2) + (read + 1 if matches else n + 1)

    pairs = list(product(range(machine.n_states), range(n + 2)))
    return Machine(
        table=[[follow(q, read, symbol) for symbol in range(machine.n_symbols)] for q, read in pairs],
        start=machine.start * (n + 2),
        outputs=[(int(machine.outputs[q]) + (read == n)) % machine.n_outputs for q, read in pairs],
    )


def wrong_from(machine: Machine, length: int) -> Machine:
    """Return a machine with another output after every string of at least this length."""
    pairs = list(product(range(machine.n_states), range(length + 1)))
    follow = [
        [int(machine.table[q, a]) * (length + 1) + min(k + 1, length) for a in range(machine.n_symbols)]
        for q, k in pairs
    ]
    outputs = [(int(machine.outputs[q]) + (k == length)) % machine.n_outputs for q, k in pairs]
    return Machine(table=follow, start=machine.start * (length + 1), outputs=outputs)


def wrong_transition(machine: Machine, state: int, symbol: int, target: int) -> Machine:
    """Return a machine in which one transition leads to another state."""
    table = machine.table.copy()
    table[state, symbol] = target
    return Machine(table=table, start=machine.start, outputs=machine.outputs)


def shortest_by_brute_force(machine: Machine, task: Task, longest: int) -> tuple[int, ...] | None:
    """Return the first shortest valid string on which a machine and a task differ, by trying all of them."""
    for length in range(1, longest + 1):
        for word in product(range(task.n_symbols), repeat=length):
            is_valid = task.valid is None or task.valid.output(word) != 0
            if is_valid and machine.output(word) != task.machine.output(word):
                return word
    return None
