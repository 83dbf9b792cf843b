"""Run attacks for a given time: forked processes make attempts in turn, and each attack gets its share of the time."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import mkdtemp

from tests.campaign.attack import Attack, Trial
from tests.campaign.sandbox import describe_crash, wall_factor
from tests.campaign.tally import Tally

#: Seconds that a process makes attempts before the next attack gets its turn: the least and the most.
LEAST_TURN, MOST_TURN = 2.0, 15.0


def make_attempt(attack: Attack, seed: int, trial: int, parent: Path) -> list[Trial]:
    """Make one attempt in a folder of its own, which is removed afterwards."""
    folder = Path(mkdtemp(prefix=f"{attack.name}-{trial}-", dir=parent))
    try:
        return list(attack.attempt(attack.random_numbers(seed, trial), folder))
    except Exception as error:  # a fault of the attack must not pass as something that held
        return [Trial(kind="the attack itself", problem=f"the attempt failed: {describe_crash(error)}")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(kw_only=True)
class _Turn:
    """A forked process that makes the attempts of one attack from `trial` on."""

    attack: Attack
    process: int
    connection: Connection
    started: float
    trial: int
    is_trying: bool = True
    heard: float = field(default_factory=time.monotonic)


def _is_late(turn: _Turn) -> bool:
    return time.monotonic() - turn.heard > turn.attack.patience * wall_factor()


class Campaign:
    """Makes attempts in `workers` processes until the time is up. `tally` has the results at any time."""

    def __init__(self, attacks: Sequence[Attack], *, seed: int, seconds: float, workers: int, folder: Path) -> None:
        self.tally = Tally(seed)
        self._attacks, self._seed, self._workers, self._folder = attacks, seed, workers, folder
        self._end = time.monotonic() + seconds
        total = sum(attack.share for attack in attacks)
        self._turn_seconds = {
            attack.name: min(MOST_TURN, max(LEAST_TURN, 0.3 * seconds * workers * attack.share / total))
            for attack in attacks
        }
        self._used = dict.fromkeys((attack.name for attack in attacks), 0.0)
        self._next = dict.fromkeys((attack.name for attack in attacks), 0)
        self._turns: list[_Turn] = []

    def run(self, report: Callable[[str], None] = lambda line: None) -> Tally:
        """Run until the time is up, and call `report` with a line about once a minute."""
        said = time.monotonic()
        try:
            while self._turns or time.monotonic() < self._end:
                self._start_turns()
                for ready in wait([turn.connection for turn in self._turns], timeout=0.5):
                    self._receive(next(turn for turn in self._turns if turn.connection is ready))
                for turn in [turn for turn in self._turns if _is_late(turn)]:
                    self._kill(turn, f"the attempt did not end within {turn.attack.patience:.0f} s")
                if time.monotonic() - said > 60:
                    said = time.monotonic()
                    tried, failed = sum(self.tally.tried.values()), len(self.tally.failures)
                    left = max(0.0, self._end - said)
                    report(f"{tried:,} tried, {failed:,} failed, {left / 60:.0f} min left")
        finally:
            for turn in list(self._turns):
                self._end_turn(turn)
        return self.tally

    def _start_turns(self) -> None:
        """Start attacks that have used the least of their shares, one process for each."""
        while len(self._turns) < self._workers and time.monotonic() < self._end:
            busy = {turn.attack.name for turn in self._turns}
            free = [attack for attack in self._attacks if attack.name not in busy]
            if not free:
                return
            self._fork(min(free, key=lambda attack: self._used[attack.name] / attack.share))

    def _fork(self, attack: Attack) -> None:
        receiver, sender = Pipe(duplex=False)
        trial, deadline = self._next[attack.name], min(self._end, time.monotonic() + self._turn_seconds[attack.name])
        process = os.fork()
        if process == 0:
            try:
                os.setpgid(0, 0)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                receiver.close()
                self._serve(attack, trial, deadline, sender)
                os._exit(0)
            finally:
                os._exit(70)
        with suppress(OSError):  # the process may have done it, or have ended
            os.setpgid(process, process)
        sender.close()
        self._turns.append(
            _Turn(attack=attack, process=process, connection=receiver, started=time.monotonic(), trial=trial)
        )

    def _serve(self, attack: Attack, trial: int, deadline: float, sender: Connection) -> None:
        """Make attempts in the forked process, at least one, and send their results."""
        while True:
            results = make_attempt(attack, self._seed, trial, self._folder)
            trial += 1
            is_last = attack.isolated or time.monotonic() >= deadline
            sender.send((results, is_last))
            if is_last:
                return

    def _receive(self, turn: _Turn) -> None:
        try:
            results, is_last = turn.connection.recv()
        except EOFError:  # the process has ended without its last message
            self._kill(turn, "the process of the attempt died")
            return
        self.tally.add(turn.attack.name, turn.trial, results)
        turn.trial += 1
        turn.heard = time.monotonic()
        if is_last:
            self._end_turn(turn)

    def _kill(self, turn: _Turn, problem: str) -> None:
        self.tally.add(turn.attack.name, turn.trial, [Trial(kind="hang or crash", problem=problem)])
        turn.trial += 1
        self._end_turn(turn)

    def _end_turn(self, turn: _Turn) -> None:
        """Wait for the process; end it and all that it has started if it has not ended."""
        self._turns.remove(turn)
        self._used[turn.attack.name] += time.monotonic() - turn.started
        self._next[turn.attack.name] = turn.trial
        turn.connection.close()
        with suppress(ProcessLookupError):
            os.killpg(turn.process, signal.SIGKILL)  # the group of this process alone
        os.waitpid(turn.process, 0)
        for left in self._folder.glob(f"{turn.attack.name}-*"):  # a process that was killed could not remove it
            shutil.rmtree(left, ignore_errors=True)
