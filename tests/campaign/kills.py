"""Kill trainings of the command line at random moments, resume them, and compare the weights with a run left alone.

Each function makes one attempt in an empty folder, and returns how many things were tried, how many held, and what did
not hold, one line each. All choices come from the random numbers; the moment of a kill also depends on the machine.

    python -m tests.campaign.kills 60 --seed 1
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held

#: Options of all trainings: small models, and checkpoints so often that many kills hit one.
SMALL = ("--batch", "8", "--state", "6", "--train-length", "6", "--device", "cpu", "--quiet")
#: One thread, so that the machine's load does not choose the order of sums.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
#: Seconds after which a process counts as hanging.
PATIENCE = 240.0
#: How often a training is killed again while it resumes.
MIN_KILLS, MAX_KILLS = 2, 4
#: An experiment of two groups of two runs.
SPEC = """name = "tiny"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 12
strings = 16
[[rows]]
model = "sd-ssm"
settings = { state = 6, batch = 8, steps = 60, train_length = 6, checkpoint_every = 10 }
[[rows]]
model = "lstm"
settings = { state = 6, batch = 8, steps = 60, train_length = 6, checkpoint_every = 10 }
"""

#: Tried, held, and what did not hold.
Outcome = tuple[int, int, list[str]]


@dataclass(frozen=True)
class Case:
    """A training, and what its kills aim at."""

    name: str
    options: tuple[str, ...]
    is_experiment: bool = False  #: whether the same command continues it, and where its runs and tables are

    def command(self, out: Path) -> list[str]:
        """Return the command that starts or continues it, with all that it writes below `out`."""
        if self.is_experiment:
            out.mkdir(exist_ok=True)
            (out / "tiny.toml").write_text(SPEC)
            words = [str(out / word) if word.endswith(".toml") else word for word in self.options]
            return [*words, "--out", str(out / "runs"), "--reuse", "--results", str(out / "results")]
        has_started = any(out.rglob("config.json")) or any(out.glob("plan-*.json"))
        return ["train", "--resume", str(out)] if has_started else ["train", *self.options, "--out", str(out)]


CASES = (
    Case("steps", ("parity", "--seeds", "3", "--steps", "300", "--set", "checkpoint_every=10", *SMALL)),
    # Two tasks, and so two groups.
    Case("groups", ("parity", "cycle", "--seeds", "2", "--steps", "150", "--set", "checkpoint_every=25", *SMALL)),
    # So many seeds that most kills hit the creation of their folders, or their first and last checkpoints.
    Case("folders", ("parity", "--seeds", "40", "--steps", "20", *SMALL)),
)


EXPERIMENTS = (
    Case("reproduce", ("reproduce", "tiny.toml", "--device", "cpu", "--quiet"), is_experiment=True),
    Case(
        "sweep",
        ("sweep", "parity", "--grid", "lr=1e-3,1e-2,1e-4", "--seeds", "1", "--max-length", "12", "--device", "cpu",
         "--quiet", "--set", "steps=60", "state=6", "batch=8", "train_length=6", "checkpoint_every=10"),
        is_experiment=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Blow:
    """Signals that are sent one after the other, some seconds apart; `to_group` sends them to the process group too."""

    name: str
    numbers: tuple[signal.Signals, ...]
    seconds: float = 0.0
    to_group: bool = False


BLOWS = (
    Blow("SIGKILL", (signal.SIGKILL,)),
    Blow("SIGTERM", (signal.SIGTERM,)),
    Blow("SIGINT twice", (signal.SIGINT, signal.SIGINT), seconds=0.05),
    Blow("SIGHUP", (signal.SIGHUP,)),
    Blow("SIGTERM as of timeout", (signal.SIGTERM,), to_group=True),
    Blow("SIGTERM, then SIGKILL", (signal.SIGTERM, signal.SIGKILL), seconds=0.02),
)


def kill_training(random: Random, folder: Path) -> Outcome:
    """Kill a training several times, resume it to its end, and compare its weights."""
    return _kill_often(random.choice(CASES), random, folder)


def kill_experiment(random: Random, folder: Path) -> Outcome:
    """Kill an experiment or a sweep several times, repeat its command, and compare its weights and its table."""
    return _kill_often(random.choice(EXPERIMENTS), random, folder)


def prepare_training() -> None:
    """Run the trainings without kills, once for all attempts."""
    for case in CASES:
        _reference(case)


def prepare_experiments() -> None:
    """Run the experiments without kills, once for all attempts."""
    for case in EXPERIMENTS:
        _reference(case)


def _kill_often(case: Case, random: Random, folder: Path) -> Outcome:
    """Kill a command several times, let it end, and compare what it leaves; each kill counts."""
    out = folder / "out"
    expected, seconds = _reference(case)
    told = list[str]()
    kills = random.randint(MIN_KILLS, MAX_KILLS)
    for _ in range(kills):
        blow = random.choice(BLOWS)
        # Twice as often in the first third, where folders are created.
        delay = random.uniform(0.0, seconds * random.choice((0.1, 0.3, 1.0)))
        code, problem = _kill(case.command(out), out, blow, delay)
        told.append(f"{blow.name} {delay:.2f} s after its start, exit code {code}")
        if problem is not None:
            return len(told), 0, [f"{case.name}: {'; '.join(told)}: {problem}"]
    code, text = _run(case.command(out))
    problem = None
    if code != 0:
        problem = f"the last command ended with {code}: {text.strip().splitlines()[-1:]}"
    elif (found := _hashes(out)) != expected:
        missing = sorted(expected.keys() - found.keys())
        different = sorted(name for name in found if found[name] != expected.get(name))
        problem = f"missing {missing}, different {different}"
    elif any(out.rglob("plan-*")):
        problem = f"a plan was left: {[path.name for path in out.rglob('plan-*')]}"
    return kills, 0 if problem else kills, [f"{case.name}: {'; '.join(told)}: {problem}"] if problem else []


def flood_with_signals(random: Random, folder: Path) -> Outcome:
    """Send hundreds of pairs of signals to a process that does nothing but receive them: none may deadlock it."""
    script = (
        "import sys, time\nfrom sdssm.training import signals\nsignals.REPEAT_SECONDS = 1e9\n"
        "with signals.stop_on_signal() as stop:\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
        "sys.exit(0 if stop() else 1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        pairs = 500
        for _ in range(pairs):
            process.send_signal(random.choice((signal.SIGTERM, signal.SIGINT)))
            process.send_signal(random.choice((signal.SIGTERM, signal.SIGINT)))
            time.sleep(random.uniform(0.0, 0.0005))
        process.stdin.close()
        try:
            code: int | str = process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            code = "none: it hangs"
    return pairs, pairs if code == 0 else 0, [] if code == 0 else [f"{pairs} pairs of signals, exit code {code}"]


@cache
def _reference(case: Case) -> tuple[dict[str, str], float]:
    """Return the hashes of the weights of an uninterrupted training, and its seconds from its first folder on."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        with _start(case.command(out)) as process:
            _wait_for_start(process, out)
            start = time.monotonic()
            process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        return _hashes(out), time.monotonic() - start


def _start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sdssm", *arguments]
    pipe = subprocess.PIPE
    # A session of its own: no signal of this process's group reaches it, and signals to its group reach nothing else.
    return subprocess.Popen(
        command,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # `nohup` may have ignored it
    )


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    with _start(arguments) as process:
        text, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, text


def _wait_for_start(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until a training writes: its plan, or the mark of its process in a folder."""
    deadline, before = time.monotonic() + PATIENCE, set(out.rglob("plan-*"))
    while process.poll() is None and time.monotonic() < deadline:
        if set(out.rglob("plan-*")) - before or any(_owner(path) == process.pid for path in out.rglob("owner")):
            return
        time.sleep(0.002)


def _owner(path: Path) -> int | None:
    """Return the process that an owner file names, None if there is no such file or it is just being written."""
    try:
        return int(path.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _is_unsaved(run: RunFolder, process: int) -> bool:
    """Return whether a process that has ended on a signal has left a run that it trained as it was.

    A run may also be running since an earlier process was killed, if this one has not come to claim it.
    """
    if run.status != "running":
        return False
    owner = _owner(run.path / "owner")
    return owner == process or (owner is None and run.progress.step > max(run.checkpoints(), default=0))


def _kill(arguments: Sequence[str], out: Path, blow: Blow, delay: float) -> tuple[int, str | None]:
    """Start a training and kill it; return its exit code, and what is wrong with what it left."""
    with _start(arguments) as process:
        _wait_for_start(process, out)
        time.sleep(delay)
        for number in blow.numbers:
            process.send_signal(number)
            if blow.to_group and process.poll() is None:
                os.killpg(process.pid, number)
            time.sleep(blow.seconds)
        try:
            text, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return -1, "it hangs"
    code = process.returncode
    number = blow.numbers[0]
    # It may have ended before, or the signal has killed it before it could be handled, or after everything was saved.
    if code not in (0, 128 + number, *(-each for each in blow.numbers)):
        return code, f"exit code {code}: {text.strip().splitlines()[-1:]}"
    if "Traceback" in text:
        return code, "a traceback"
    runs = [RunFolder.open(path.parent) for path in out.rglob("config.json")]
    if any(is_held(run.path) for run in runs):
        return code, "a folder is still held"
    unsaved = [run.path.name for run in runs if code == 128 + number and _is_unsaved(run, process.pid)]
    if unsaved:
        return code, f"not saved: {unsaved}"
    return code, None


def _hashes(out: Path) -> dict[str, str]:
    """Return the hashes of all weights and tables."""
    files = [*out.rglob("model.safetensors"), *out.rglob("table.csv"), *out.rglob("ranking.csv")]
    return {str(file.relative_to(out)): sha256(file.read_bytes()).hexdigest() for file in files}


def main() -> None:
    """Make many attempts and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("attempts", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tried, held = 0, 0
    for attempt in range(options.attempts):
        with TemporaryDirectory() as folder:
            outcome = kill_training(Random(f"{options.seed} {attempt}"), Path(folder))
        tried, held = tried + outcome[0], held + outcome[1]
        for line in outcome[2]:
            sys.stdout.write(f"attempt {attempt}: {line}\n")
        sys.stdout.write(f"{held} of {tried} held\n")
        sys.stdout.flush()
    sys.stdout.write(f"signals: {flood_with_signals(Random(options.seed), Path())}\n")


if __name__ == "__main__":
    main()
