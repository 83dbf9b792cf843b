"""Models that emulate a machine exactly, and a machine that fails on long strings."""

from __future__ import annotations

import torch

from sdssm.automata import Machine
from sdssm.layers import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings


def exact(machine: Machine, *, query: bool = False) -> Classifier:
    """Build the exact model of the paper: a 0/1 matrix per symbol, one-hot states, and a readout of their outputs."""
    states, symbols = machine.table.shape
    settings = ModelSettings(
        mixer=SelectiveDenseSettings(state=states, dictionary=symbols + query, input_matrix=False, rescale=True),
        norm="none",
        readout="linear",
        query=query,
    )
    model = Classifier(settings, symbols, machine.n_outputs, generator=torch.Generator().manual_seed(0))
    table = torch.tensor(machine.table)
    matrices = [torch.nn.functional.one_hot(table[:, v], states).T for v in range(symbols)]
    if query:
        matrices.append(torch.eye(states))
    values = {
        "dictionary": torch.stack([matrix.float() for matrix in matrices]),
        "selection.weight": 1000 * torch.eye(symbols + query),
        "selection.bias": torch.zeros(symbols + query),
        "initial_state": torch.eye(states)[machine.start],
        "readout.weight": torch.nn.functional.one_hot(torch.tensor(machine.outputs), machine.n_outputs).T.float(),
        "readout.bias": torch.zeros(machine.n_outputs),
    }
    model.load_state_dict({**model.state_dict(), **values})
    return model.eval()


def tiring_parity(ones: int, states: int = 0) -> Machine:
    """Parity whose output is inverted after `ones` ones in a row: the longer a string, the more likely it is wrong.

    The machine has at least `states` states, some of which are unreachable.
    """
    table, outputs = [], []
    for parity in range(2):
        for row in range(ones):
            table.append([parity * ones, (1 - parity) * ones + row + 1 if row + 1 < ones else 2 * ones + 1 - parity])
            outputs.append(parity)
    table += [[2 * ones, 2 * ones + 1], [2 * ones + 1, 2 * ones]]
    outputs += [1, 0]
    table += [[state, state] for state in range(len(table), states)]
    outputs += [0] * (len(table) - len(outputs))
    return Machine(table=table, start=0, outputs=outputs)
