"""The identifying length, against all machines of a few states."""

from itertools import product

import numpy as np
import pytest

from sdssm.automata import Machine
from sdssm.automata.refinement import separation_depths
from sdssm.tasks import Task, get_task
from sdssm.tasks.identification import identifying_length

#: The validity of a string is the output of a second machine; these use it as a third label.
INVALID = 2


def _signatures(tables: np.ndarray, outputs: np.ndarray, longest: int) -> list[np.ndarray]:
    """Return the labels of all strings of each length 1..longest for each machine, (machines, V^length)."""
    machines = np.arange(len(tables))[:, None]
    states, result = np.zeros((len(tables), 1), dtype=np.int64), []
    for _ in range(longest):
        states = tables[machines, states].reshape(len(tables), -1)
        result.append(outputs[machines, states])
    return result


@pytest.mark.parametrize(("n_states", "n_symbols", "n_labels"), [(1, 2, 2), (2, 2, 3), (3, 1, 3), (4, 1, 2), (3, 2, 2)])
def test_the_identifying_length_is_that_of_a_search_over_all_machines(
    n_states: int, n_symbols: int, n_labels: int
) -> None:
    cells = n_states * n_symbols
    # Machines with fewer states are among those with unreachable or equivalent states.
    all_machines = np.array(list(product(*[range(n_states)] * cells, *[range(n_labels)] * n_states)))
    tables, outputs = all_machines[:, :cells].reshape(-1, n_states, n_symbols), all_machines[:, cells:]
    longest = 2 * n_states  # different machines with n states differ on a string of at most 2 n - 1 symbols
    by_length = _signatures(tables, outputs, longest)
    classes = [
        np.unique(np.concatenate(by_length[:k], axis=1), axis=0, return_inverse=True)[1] for k in range(1, longest + 1)
    ]
    whole = classes[-1].ravel()
    seen: set[int] = set()
    compared = 0
    for index, behaviour in enumerate(whole.tolist()):
        if behaviour in seen:
            continue
        seen.add(behaviour)
        machine = Machine(table=tables[index], outputs=np.where(outputs[index] == INVALID, 0, outputs[index]))
        valid = Machine(table=tables[index], outputs=(outputs[index] != INVALID).astype(int))
        task = Task(name="machine", machine=machine, valid=valid)
        if len(task.minimal.table) < n_states:
            continue
        compared += 1
        agree = [set(whole[c.ravel() == c.ravel()[index]].tolist()) for c in classes]
        exact = next(k for k, others in enumerate(agree, 1) if others == {behaviour})
        assert identifying_length(task) == exact, (tables[index].tolist(), outputs[index].tolist())
    assert compared > 0


def test_separation_depths_are_those_of_a_plain_search() -> None:
    for name in ("tomita3", "regex:(ab|ba)*aab", "random:30x2:0", "even_pairs"):
        table, _, labels = get_task(name).minimal
        classes, depths, k = labels, np.full(len(table), -1), 0
        while (depths < 0).any():
            counts = np.bincount(np.unique(classes, return_inverse=True)[1])[np.unique(classes, return_inverse=True)[1]]
            depths[(depths < 0) & (counts == 1)] = k
            rows = np.concatenate([classes[:, None], classes[table]], axis=1)
            classes, k = np.unique(rows, axis=0, return_inverse=True)[1].ravel(), k + 1
        assert separation_depths(table, labels).tolist() == depths.tolist()
