"""What training strings cover, against the enumeration of all strings."""

import numpy as np
import pytest

from sdssm.automata import Machine
from sdssm.tasks import PAPER_TASKS, Task, get_task
from sdssm.tasks.coverage import choose_sampling


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
