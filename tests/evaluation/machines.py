"""Models that emulate a machine exactly, and machines with a planted flaw."""

from __future__ import annotations

import torch

from sdssm.automata import Machine
from sdssm.layers import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.models.names import load_tensors, tensors_for_file


def exact(machine: Machine, *, query: bool = False) -> Classifier:
    """The paper's mapping: one 0/1 matrix a symbol, the state one-hot, the readout the outputs of the states."""
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
    load_tensors(model, {**tensors_for_file(model), **values})
    return model.eval()


def tiring_parity(ones: int, states: int = 0) -> Machine:
    """Parity that tells the opposite after so many ones in a row: the longer a string, the less it is right.

    It has at least so many `states`, of which some are never reached.
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
