"""What training strings cover, against the enumeration of all strings."""

from itertools import product

import numpy as np
import pytest

from sdssm.automata import Machine
from sdssm.tasks import PAPER_TASKS, Task, get_task
from sdssm.tasks.coverage import Coverage, choose_sampling
from sdssm.tasks.reach import Reach
from sdssm.tasks.sampling import MIXTURE, SAMPLINGS
from sdssm.tasks.state_coverage import cover_states


def test_the_papers_tasks_are_trained_on_uniform_strings() -> None:
    for name in PAPER_TASKS:
        task = get_task(name)
        assert choose_sampling(task, task.train_length).sampling == "uniform"


@pytest.mark.parametrize("name", ["tomita1", "tomita2", "regex:(ab|c)*", "z97"])
def test_languages_that_uniform_strings_miss_are_covered(name: str) -> None:
    assert choose_sampling(get_task(name), 40).sampling == "covering"


def test_the_minimal_machine_has_the_labels_of_the_task() -> None:
    for name in (*PAPER_TASKS, "regex:(ab)*", "regex:(ab)+", "tomita7", "random:10x2:0"):
        task = get_task(name)
        table, start, labels = task.minimal
        rng = np.random.default_rng(0)
        for word in rng.integers(task.n_symbols, size=(50, 12)).tolist():
            state = start
            for position, symbol in enumerate(word):
                state = table[state, symbol]
                valid = task.valid is None or task.valid.output(word[: position + 1]) != 0
                assert labels[state] == (task.machine.output(word[: position + 1]) if valid else -1)


def test_a_start_state_to_which_no_string_returns_is_merged() -> None:
    plus = get_task("regex:(ab)+").minimal
    star = get_task("regex:(ab)*").minimal
    assert len(plus.table) == len(star.table) == 3
    one_label = Task(name="one", machine=Machine(table=[[1], [1]], outputs=[0, 1]))
    assert one_label.minimal.labels.tolist() == [1]


NAMES = ("regex:(ab|c)*", "regex:ab+", "arithmetic", "tomita4", "z7")


def _enumerate(task: Task, longest: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the shares of last transitions by sampling, and which transitions strings take, from all strings."""
    table, start, labels = task.minimal
    shares = {sampling: np.zeros(table.shape) for sampling in SAMPLINGS}
    taken = np.zeros(table.shape, dtype=bool)
    lengths = 0
    for length in range(1, longest + 1):
        last, label = list[tuple[int, int]](), list[int]()
        for word in product(range(task.n_symbols), repeat=length):
            path = [start]
            for symbol in word:
                path.append(int(table[path[-1], symbol]))
            if labels[path[-1]] >= 0:
                last.append((path[-2], word[-1]))
                label.append(int(labels[path[-1]]))
                taken[path[:-1], word] = True
        if not last:
            continue
        lengths += 1
        for pair, own in zip(last, label, strict=True):
            shares["uniform"][pair] += 1 / len(last)
            shares["balanced"][pair] += 1 / len(set(label)) / label.count(own)
        for pair in set(last):
            shares["covering"][pair] += 1 / len(set(last))
    return {sampling: share / lengths for sampling, share in shares.items()}, taken


@pytest.mark.parametrize("name", NAMES)
def test_shares_of_transitions_are_those_of_all_strings(name: str) -> None:
    task = get_task(name)
    longest = 3 if task.n_symbols > 4 else 5
    shares, taken = _enumerate(task, longest)
    shares["mixed"] = sum(shares[part] for part in MIXTURE) / len(MIXTURE)  # type: ignore[assignment]  # not 0
    for sampling, expected in shares.items():
        coverage = Coverage.measure(task, longest, sampling)
        np.testing.assert_allclose(coverage.transitions, expected, atol=1e-12)
    reach = Reach(task, longest)
    assert (reach.transitions == taken).all()
    visited = np.union1d(np.flatnonzero(taken.any(1)), task.minimal.table[taken])
    assert np.flatnonzero(reach.states).tolist() == visited.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_shares_of_states_are_those_of_all_strings(name: str) -> None:
    task = get_task(name)
    longest = 3 if task.n_symbols > 4 else 5
    shares, taken = _enumerate(task, longest)
    table = task.minimal.table
    expected = {sampling: np.bincount(table.ravel(), share.ravel()) for sampling, share in shares.items()}
    visited = np.union1d(np.flatnonzero(taken.any(1)), table[taken])
    for sampling in ("uniform", "balanced"):
        states = cover_states(task, longest, sampling)
        assert [row.uniform for row in states if row.reached] == sorted(row.uniform for row in states if row.reached)
        for row in states:
            assert row.uniform == pytest.approx(expected["uniform"][row.state])
            assert row.training == pytest.approx(expected[sampling][row.state])
            assert (row.reached, row.taken) == (row.state in visited, int(taken[row.state].sum()))
            state = task.minimal.start
            for symbol in row.string:
                state = int(table[state, symbol])
            assert state == row.state


def test_the_rarest_and_a_missing_transition_are_shown_by_a_string() -> None:
    task = get_task("regex:aaab*")
    strings = [word for length in range(1, 5) for word in product(range(2), repeat=length)]  # all that are long enough
    coverage = Coverage.measure(task, 4)
    machine = task.minimal
    state = machine.start
    for symbol in coverage.rarest_string[:-1]:
        state = int(machine.table[state, symbol])
    assert coverage.rarest_string in strings
    assert coverage.transitions[state, coverage.rarest_string[-1]] == coverage.rarest
    assert Reach(task, 4).unreached_string is None
    assert Reach(task, 2).unreached_string == (0, 0, 0) and Reach(task, 1).unreached_string == (0, 0)


def test_the_choice_compares_the_shares_of_transitions_and_labels() -> None:
    for name in (*NAMES, "tomita7", "d30"):
        task = get_task(name)
        uniform, balanced, covering = (Coverage.measure(task, 12, sampling) for sampling in SAMPLINGS)
        labels = task.minimal.labels[task.minimal.table]
        by_label = [np.bincount(labels[labels >= 0], c.transitions[labels >= 0]) for c in (uniform, balanced)]
        occurring, taken = by_label[1] > 0, covering.transitions > 0
        ratios = (
            uniform.transitions[taken] / covering.transitions[taken],
            by_label[0][occurring] / by_label[1][occurring],
        )
        if min(map(np.min, ratios)) < 0.25:
            assert choose_sampling(task, 12).sampling == "covering"


def test_the_sampling_of_one_length_is_chosen_too() -> None:
    assert choose_sampling(get_task("parity"), 1).sampling == "uniform"
    assert choose_sampling(get_task("arithmetic"), 1).sampling == "uniform"
