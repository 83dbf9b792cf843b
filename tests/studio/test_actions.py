"""Commands of the page: one at a time, the end of their output, and an end with the studio."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from sdssm.errors import StudioError
from sdssm.studio.actions import MAX_OUTPUT, MAX_WAITING, ActionQueue, StartedAction
from tests.programs import is_running


def queue_of(code: str) -> ActionQueue:
    """A queue whose commands run this Python code; its arguments are the action and the folder."""
    return ActionQueue((sys.executable, "-c", code))


def wait_for_end(queue: ActionQueue, count: int = 1) -> list[StartedAction]:
    """Return the commands once this many have ended."""
    deadline = monotonic() + 30
    while monotonic() < deadline:
        ended = [started for started in queue.started() if not started.is_pending]
        if len(ended) >= count:
            return ended
        sleep(0.02)
    raise AssertionError(queue.started())


def test_a_command_gets_action_and_folder_as_arguments_without_a_shell() -> None:
    queue = queue_of("import sys; print(sys.argv[1:])")
    queue.submit("evaluate", "a", Path("runs/$(touch x); `id`"))
    (ended,) = wait_for_end(queue)
    assert ended.output == "['evaluate', 'runs/$(touch x); `id`']\n"
    assert (ended.state, ended.exit_code) == ("finished", 0)
    assert ended.command == "sdssm evaluate 'runs/$(touch x); `id`'"
    queue.close()


def test_a_folder_is_never_an_option() -> None:
    queue = queue_of("import sys; print(sys.argv[2])")
    queue.submit("extract", "a", Path("--trust"))
    assert wait_for_end(queue)[0].output == "./--trust\n"
    queue.close()


def test_a_failed_command_keeps_its_message_and_exit_code() -> None:
    queue = queue_of("import sys; print('sdssm: no model', file=sys.stderr); sys.exit(2)")
    queue.submit("certify", "a", Path("a"))
    (ended,) = wait_for_end(queue)
    assert (ended.state, ended.exit_code, ended.output) == ("failed", 2, "sdssm: no model\n")
    queue.close()


def test_a_program_that_does_not_exist_is_a_failed_command() -> None:
    queue = ActionQueue(("/nowhere/python",))
    queue.submit("evaluate", "a", Path("a"))
    assert "cannot be started" in wait_for_end(queue)[0].output
    queue.close()


def test_the_end_of_a_long_output_is_kept() -> None:
    queue = queue_of("print('x' * 200_000); print('\\rold\\rthe end')")
    queue.submit("horizon", "a", Path("a"))
    output = wait_for_end(queue)[0].output
    assert len(output) == MAX_OUTPUT and output.endswith("x\nthe end\n")
    queue.close()


def test_commands_run_one_after_the_other_and_are_not_repeated(tmp_path: Path) -> None:
    code = "import sys, time; print(time.monotonic()); time.sleep(0.2); print(time.monotonic())"
    queue = queue_of(code)
    first = queue.submit("evaluate", "a", tmp_path)
    assert queue.submit("evaluate", "a", tmp_path).id == first.id
    queue.submit("evaluate", "b", tmp_path)
    times = [[float(line) for line in ended.output.split()] for ended in wait_for_end(queue, 2)]
    assert len(queue.started()) == 2
    assert times[1][1] <= times[0][0]  # the newest is listed first
    assert queue.submit("evaluate", "a", tmp_path).id == 3  # ended: it may run again
    queue.close()


def test_the_queue_is_bounded() -> None:
    queue = queue_of("import time; time.sleep(60)")
    with pytest.raises(StudioError, match=f"{MAX_WAITING} commands wait"):
        for number in range(MAX_WAITING + 2):
            queue.submit("evaluate", str(number), Path("a"))
    queue.close()


@pytest.mark.parametrize("leader_ignores", [True, False])
def test_closing_ends_the_command_and_what_it_started(tmp_path: Path, leader_ignores: bool) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if leader_ignores else ""
    code = (
        f"import os, subprocess, sys, signal; {ignore}"
        "child = subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo ready; sleep 60'], stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(os.getpid(), child.pid, flush=True); child.wait()"
    )
    queue = queue_of(code)
    queue.submit("evaluate", "a", tmp_path)
    waiting = queue.submit("evaluate", "b", tmp_path)
    while not queue.started()[1].output:
        sleep(0.02)
    processes = [int(number) for number in queue.started()[1].output.split()]
    start = monotonic()
    queue.close()
    assert monotonic() - start < 5
    while any(map(is_running, processes)) and monotonic() - start < 20:  # the kernel ends a killed process by and by
        sleep(0.02)
    assert not any(map(is_running, processes))
    assert [started.state for started in queue.started()] == [waiting.state, "stopped"]
