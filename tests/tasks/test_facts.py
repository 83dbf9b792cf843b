"""The facts about a task before training, and what is refused."""

import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest

from sdssm.automata import Machine
from sdssm.errors import TaskError
from sdssm.tasks import PAPER_TASKS, Task, describe_task, get_task, list_tasks
from sdssm.tasks.reach import Reach, check_reach


@pytest.mark.parametrize("name", [*list_tasks(), "a5:12:0", "s5:8:0", "a6"])
def test_every_task_of_the_library_is_identified_by_its_training_strings(name: str) -> None:
    task = get_task(name)
    facts = describe_task(task)
    assert facts.is_identified and facts.reached_transitions == facts.transitions
    check_reach(task, task.train_length)
    assert facts.best_constant is not None and facts.best_constant >= facts.chance - 1e-9
    assert 0 < facts.rarest_uniform <= facts.rarest or facts.sampling == "uniform"
    if name in PAPER_TASKS:
        assert facts.sampling == "uniform"


def test_a_length_that_does_not_reach_every_state_is_an_error_with_the_length_that_does() -> None:
    task = get_task("z97")
    with pytest.raises(TaskError, match=r"takes 114 of the 194 transitions.* 41 of 97 states.*train_length=97"):
        check_reach(task, 40)
    with pytest.raises(TaskError, match="takes 2 of the 194 transitions"):
        check_reach(task, 96)
    check_reach(task, 97)
    facts = describe_task(task)
    assert "not identified below length 97" in str(facts)
    assert facts.to_lines()["identified"].startswith("no; strings of up to 97 symbols")
    assert facts.to_dict()["identified"] is False
    assert "80 of 194 transitions, not the last of '+1 (40 times) stay'" in facts.to_lines()["reached"]
    assert "; the rarest of these, the last of '+1 (39 times) stay', ends 1 in" in facts.to_lines()["reached"]


def test_invalid_strings_are_no_part_of_what_can_be_reached() -> None:
    task = get_task("arithmetic")
    reach = Reach(task, 40)
    assert reach.is_complete and int((~reach.possible_states).sum()) == 1  # the strings that cannot become valid
    reached = describe_task(task).to_lines()["reached"]
    assert reached.startswith("50 of 50 states of the product with the automaton of valid strings and 200 of 200 ")


def test_a_set_sampling_is_described_with_the_default() -> None:
    facts = describe_task(get_task("tomita2"), 20, "uniform")
    assert (facts.sampling, facts.rarest) == ("uniform", facts.rarest_uniform)
    assert facts.reason.startswith(
        "as set; the default is covering, since the rarest transition ends 7.5 times fewer uniform"
    )
    with pytest.raises(TaskError, match="did you mean 'balanced'"):
        describe_task(get_task("tomita2"), 20, "balance")


def test_facts_need_no_torch() -> None:
    code = "import sys; from sdssm.tasks import describe_task, get_task; describe_task(get_task('z97')); "
    code += "print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_large_machines_are_described_in_seconds() -> None:
    generator = np.random.default_rng(0)
    table, outputs = generator.integers(2_000, size=(2_000, 64)), generator.integers(2, size=2_000)
    started = time.monotonic()
    facts = describe_task(Task(name="large", machine=Machine(table=table, outputs=outputs)))
    assert facts.states == 2_000 and time.monotonic() - started < 10  # 0.4 s on an idle core


def test_a_long_string_of_a_large_machine_takes_little_memory() -> None:
    reach = Reach(get_task("z3000"), 40)
    assert reach.possible_states.all()  # what else it computes
    tracemalloc.start()
    string, peak = reach.unreached_string, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert string is not None and len(string) == 41
    assert peak < 5_000_000  # the strings to all states would take 36 MB
