"""Learn an automaton from a log file, and check new logs with it.

The log is of a login service; the script writes it, 300 sessions. A line names a session, an event, and the status of
the session after it: `s017 wrong-password anonymous`. What the log does not say is the rule behind the status: after
three wrong passwords in a row a session is locked. RPNI, an algorithm that merges the states of a prefix tree, finds an
automaton that agrees with every line (package AALpy: `pip install 'sdssm[aalpy]'`).

Prints the automaton and whether it is the rule, then compiles it to a model that is exact at every length, and lets
the model watch a second log, of a service with a fault: a session that was locked lets the user in. Guessing a status
is correct in 33.3 % of cases; always guessing the most frequent one in about half.

    python examples/automaton_from_a_log.py                     # 5 seconds; writes logs and a state diagram
    python examples/automaton_from_a_log.py --out log --sessions 1000
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

import torch

import sdssm
from sdssm.automata import draw, from_aalpy
from sdssm.extras import import_extra

OUT = Path("examples-output")
EVENTS = ("password", "wrong-password", "logout", "unlock")
STATUSES = ("anonymous", "user", "locked")
#: The rule of the service: states are no, one and two wrong passwords, logged in, locked.
SERVICE = sdssm.Machine(
    table=[[3, 1, 0, 0], [3, 2, 0, 1], [3, 4, 0, 2], [3, 3, 0, 3], [4, 4, 4, 0]],
    outputs=[0, 0, 0, 1, 2],
    symbols=EVENTS,
)
#: The same service with a fault: in the locked state the right password logs in.
FAULTY_SERVICE = sdssm.Machine(
    table=[*SERVICE.table[:4], [3, 4, 4, 0]], outputs=SERVICE.outputs, symbols=SERVICE.symbols
)

#: The events of a session, and the status after each.
Session = list[tuple[str, str]]


def write_log(path: Path, service: sdssm.Machine, sessions: int, seed: int) -> None:
    """Write sessions of random events, wrong passwords more often than others."""
    source, lines = random.Random(seed), []
    for session in range(sessions):
        events = source.choices(EVENTS, weights=(2, 5, 1, 1), k=source.randint(2, 15))
        for event, state in zip(events, service.trace(events), strict=True):
            lines.append(f"s{session:03} {event} {STATUSES[service.outputs[state]]}\n")
    path.write_text("".join(lines))


def read_log(path: Path) -> dict[str, Session]:
    """Return the sessions of a log by their names."""
    sessions: dict[str, Session] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        fields = line.split()
        if len(fields) != 3 or fields[1] not in EVENTS or fields[2] not in STATUSES:
            raise SystemExit(f"{path}, line {number}: expected SESSION EVENT STATUS, got {line!r}")
        sessions.setdefault(fields[0], []).append((fields[1], fields[2]))
    return sessions


def learn(sessions: dict[str, Session]) -> sdssm.Machine:
    """Return the automaton that RPNI finds; every prefix of a session is an example, its status the output."""
    learning = import_extra("aalpy.learning_algs", "learning from a log")
    examples: list[tuple[tuple[str, ...], int]] = [((), STATUSES.index("anonymous"))]  # before the first event
    for session in sessions.values():
        events = tuple(event for event, _ in session)
        examples += [(events[: i + 1], STATUSES.index(status)) for i, (_, status) in enumerate(session)]
    # An event that the log never has in some state leaves the state unchanged.
    return from_aalpy(learning.run_RPNI(examples, "moore", input_completeness="self_loop", print_info=False))


@torch.no_grad()
def watch(model: sdssm.Classifier, machine: sdssm.Machine, sessions: dict[str, Session]) -> tuple[int, dict[str, int]]:
    """Read each session event by event; return the number of expected statuses, and where sessions first differ."""
    expected = 0
    faults: dict[str, int] = {}
    for name, session in sessions.items():
        state = None
        for position, (event, status) in enumerate(session, start=1):
            logits, state = model.step(torch.tensor(machine.encode([event])[0]), state)
            if int(logits.argmax()) == STATUSES.index(status):
                expected += 1
            else:
                faults.setdefault(name, position)
    return expected, faults


def reorder_events(machine: sdssm.Machine) -> sdssm.Machine:
    """Return the automaton with its symbols in the order of EVENTS, to compare it with another one."""
    table = machine.table[:, machine.encode(EVENTS)]
    return sdssm.Machine(table=table, start=machine.start, outputs=machine.outputs, symbols=EVENTS)


def print_automaton(machine: sdssm.Machine) -> None:
    """Print a row for each state: its status, and the next state after each event."""
    print("state  status     " + "".join(f"{event:>16}" for event in machine.symbol_names))
    for state, row in enumerate(machine.table):
        print(f"{state:>5}  {STATUSES[machine.outputs[state]]:<11}" + "".join(f"{target:>16}" for target in row))


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn an automaton from a log, and check another log with it.")
    parser.add_argument("--sessions", type=int, default=300, help="sessions to learn from (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the files (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log, new_log, diagram = (arguments.out / name for name in ("sessions.log", "new-sessions.log", "automaton.svg"))

    write_log(log, SERVICE, arguments.sessions, seed=0)
    sessions = read_log(log)
    machine = learn(sessions)
    print(f"From {len(sessions)} sessions in {log}: {machine}\n")
    print_automaton(machine)
    diagram.write_text(draw(machine))
    print(f"\nThe start state is {machine.start}; the state diagram is in {diagram}.")
    difference = reorder_events(machine).distinguish(SERVICE)
    if difference is None:
        print("It is the rule of the service: the outputs agree on every sequence of events (proved).")
    else:
        print(
            f"It is not the rule of the service: they differ after {SERVICE.decode(difference)!r}; try more --sessions."
        )

    model = sdssm.compile(machine)
    write_log(new_log, FAULTY_SERVICE, 200, seed=1)
    sessions = read_log(new_log)
    expected, faults = watch(model, machine, sessions)
    statuses = Counter(status for session in sessions.values() for _, status in session)
    events = sum(statuses.values())
    chance, most_frequent = 100 / len(STATUSES), 100 * max(statuses.values()) / events
    print(f"\nThe model expects {100 * expected / events:.1f} % of the {events} statuses in {new_log};")
    print(f"chance is {chance:.1f} %, always guessing the most frequent status {most_frequent:.1f} %.")
    print(f"{len(faults)} of {len(sessions)} sessions differ from the automaton. The first:\n")
    for name, position in list(faults.items())[:3]:
        event, status = sessions[name][position - 1]
        print(f"  {name}, event {position}: {event} gives {status}")


if __name__ == "__main__":
    main()
