"""The pages that the tests open, made from small runs that are trained once."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sdssm
from sdssm.automata import Machine
from sdssm.cli import main
from sdssm.tasks import Task
from tests.report.page.sample_runs import read_blocks

#: A text that is a picture, a script, the end of a script and the end of a line, wherever it is not escaped.
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028'\"&"
TINY = {"state": 8, "dictionary": 3, "batch": 8, "train_length": 8}
RESULTS = Path(__file__).parents[1] / "data" / "written-by-0.1.0" / "results"


@dataclass(frozen=True)
class SamplePage:
    """A page and the folder that its runs are in."""

    file: Path
    runs: Path

    @property
    def url(self) -> str:
        return self.file.as_uri()

    def read_data(self) -> dict[str, Any]:
        """Return the data of the page but for the heavy parts of each run."""
        data: dict[str, Any] = read_blocks(self.file.read_text())["sdssm-report"]
        return data

    def find_run(self, folder: str) -> dict[str, Any]:
        """Return the data of the run in a folder below `runs`."""
        runs: dict[str, dict[str, Any]] = {run["folder"]: run for run in self.read_data()["runs"]}
        return runs[str(self.runs / folder)]

    def list_views(self) -> dict[str, str]:
        """Return an address for each kind of view, and for each kind of run."""
        data = self.read_data()
        first, other = self.find_run("parity/seed-0"), self.find_run("parity/seed-1")
        return {
            "overview": "#/",
            "task": f"#/task/{first['task']}",
            "run of an SD-SSM": f"#/run/{first['id']}",
            "run of an RNN": f"#/run/{self.find_run('rnn/seed-0')['id']}",
            "run without a folder": f"#/run/{next(run['id'] for run in data['runs'] if run['folder'] is None)}",
            "table": f"#/table/{data['tables'][0]['id']}",
            "comparison": f"#/compare/{first['id']}%2C{other['id']}",
            "playground": "#/playground",
            "unknown": "#/task/unknown",
        }


def make_sample_page(folder: Path) -> SamplePage:
    """Train small models, find out what a page shows about them, damage some folders, and write the page."""
    runs = folder / "runs"
    train_runs(runs)
    damage_runs(runs)
    return write_page(folder / "report.html", runs, RESULTS)


def make_hostile_page(folder: Path) -> SamplePage:
    """Write a page about a run whose names, paths and versions are markup."""
    runs = folder / HOSTILE.replace("/", "-")
    (run,) = sdssm.train(hostile_task(), settings=TINY, steps=10, device="cpu", progress=False, out=runs / "run")
    sdssm.evaluate(run, max_length=20, strings=16, device="cpu")
    find_all(run.path)
    config = json.loads((run.path / "config.json").read_text())
    del config["checksum"]  # edited on purpose
    config |= {"versions": {HOSTILE: HOSTILE}, "preset": HOSTILE}
    (run.path / "config.json").write_text(json.dumps(config))
    (runs / "broken").mkdir()
    (runs / "broken" / "config.json").write_text(json.dumps({"format": HOSTILE, "task": HOSTILE}))
    return write_page(folder / "report.html", runs, "--title", HOSTILE)


def make_large_page(folder: Path, sample: SamplePage, number: int) -> SamplePage:
    """Write a page about copies of a run, each with a seed of its own."""
    runs = folder / "runs"
    for seed in range(number):
        run = shutil.copytree(sample.runs / "parity" / "seed-0", runs / f"seed-{seed}")
        config = json.loads((run / "config.json").read_text())
        del config["checksum"]
        (run / "config.json").write_text(json.dumps(config | {"seed": seed}))
    return write_page(folder / "report.html", runs)


def write_page(file: Path, runs: Path, *arguments: str | Path) -> SamplePage:
    assert main(["report", str(runs), *map(str, arguments), "-o", str(file)]) == 0
    return SamplePage(file, runs)


def train_runs(folder: Path) -> None:
    """Train two seeds of an SD-SSM and an RNN, and write all that a page shows about them."""
    small: dict[str, Any] = {"steps": 40, "device": "cpu", "progress": False}
    sd_ssm = sdssm.train("parity", seeds=2, settings=TINY, out=folder / "parity", **small)
    settings = {"batch": 8, "train_length": 8}
    rnn = sdssm.train("parity", model="rnn", settings=settings, out=folder / "rnn", **small)
    sdssm.evaluate([*sd_ssm, *rnn], max_length=60, strings=32, device="cpu")
    find_all(sd_ssm[0].path)


def find_all(run: Path) -> None:
    """Write extraction, certificate and horizon into a run folder."""
    for command in (["extract"], ["certify"], ["horizon", "--max-length", "200"]):
        assert main([command[0], str(run), *command[1:]]) == 0, command


def damage_runs(folder: Path) -> None:
    """Add a folder without a usable config, and one whose evaluation is not JSON."""
    source = folder / "rnn" / "seed-0"
    (shutil.copytree(source, folder / "no-config") / "config.json").write_text("{")
    (shutil.copytree(source, folder / "no-evaluation") / "evaluation.json").write_text("[1, 2")


def hostile_task() -> Task:
    """A task whose name, symbols and states are markup."""
    machine = Machine(
        table=[[1, 0], [0, 1]],
        outputs=[0, 1],
        states=[f"{HOSTILE}-{number}" for number in range(2)],
        symbols=[f"{HOSTILE}={number}" for number in range(2)],
    )
    return Task(name=HOSTILE, machine=machine, train_length=8, test_length=40)
