"""A plug-in as another author would publish it, installed beside sdssm and used from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from sdssm.runs import RunFolder
from tests.experiments.test_ray import Cluster
from tests.programs import SDSSM

pytest.importorskip("hatchling", reason="builds the plug-in")
pytest.importorskip("minGRU_pytorch", reason="one of its models needs it")
PACKAGE = Path(__file__).parent / "data" / "plugin-package"
#: Enough steps that a process can be killed between its first checkpoint and its last step.
STEPS = 600
SMALL = ["--set", "batch=16", "train_length=8", "checkpoint_every=20"]
TRAIN = ["train", "parity", "--model", "example-gru", "--steps", str(STEPS), *SMALL, "width=8", "--device", "cpu"]
SPEC = """
name = "plugged"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 12
strings = 32
[[rows]]
model = "example-gru"
settings = { width = 8, batch = 16, steps = 60, train_length = 6 }
[[rows]]
model = "example-leaky"
settings = { state = 8, batch = 16, steps = 60, train_length = 6 }
"""
#: The models of examples/own_models.py, which the plug-in contains.
EXAMPLES = ("torch-gru", "torch-transformer", "linear-rnn", "min-gru")
SPEC += "".join(
    f"""
[[rows]]
model = "{name}"
settings = {{ batch = 16, steps = 20, train_length = 6 }}
"""
    for name in EXAMPLES
)
MODELS = ("example-gru", "example-leaky", *EXAMPLES)


class InstalledPlugin:
    """The command `sdssm` in an environment that has the plug-in."""

    def __init__(self, packages: Path) -> None:
        paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
        # One thread: the result of a sum depends on how it is divided among threads.
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}

    def start(self, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*SDSSM, *arguments], cwd=folder, env=self.environment, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, folder: Path, *arguments: str) -> str:
        """Run a command and return what it prints."""
        process = self.start(folder, *arguments)
        out, err = process.communicate()
        assert process.returncode == 0, f"sdssm {' '.join(arguments)}\n{out}\n{err}"
        return out


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> InstalledPlugin:
    """Build and install the plug-in; nothing is downloaded."""
    packages = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(packages)]
    subprocess.run([*pip, *options, str(PACKAGE)], check=True)
    return InstalledPlugin(packages)


@pytest.fixture(scope="session")
def uninterrupted(plugin: InstalledPlugin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the plug-in's GRU, trained in one go."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    plugin.run(folder, *TRAIN, "--out", "runs")
    return folder / "runs" / "seed-0"


@pytest.fixture(scope="session")
def reproduced(plugin: InstalledPlugin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs and the table of an experiment with all models of the plug-in."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "spec.toml").write_text(SPEC)
    plugin.run(folder, "reproduce", "spec.toml", "--device", "cpu", "--out", "runs", "--quiet")
    return folder


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a run learned and logged, without times."""
    run = RunFolder.open(folder)
    return {
        "weights": (folder / "model.safetensors").read_bytes(),
        "events": [{**event, "seconds": 0} for event in run.events()],
        "status": run.status,
        "step": run.step,
    }


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a run has a checkpoint after its first step."""
    deadline = monotonic() + 120
    while monotonic() < deadline and process.poll() is None:
        if (folder / "config.json").exists() and max(RunFolder.open(folder).checkpoints(), default=0) > 0:
            return
        sleep(0.01)
    raise AssertionError(f"no checkpoint in {folder}: {process.communicate()}")


def test_models_of_the_plugin_are_listed_beside_the_catalogue(plugin: InstalledPlugin, tmp_path: Path) -> None:
    models = {facts["model"]: facts for facts in json.loads(plugin.run(tmp_path, "models", "--json"))}
    assert {"sd-ssm", *MODELS} <= set(models)
    assert models["example-gru"]["what"] == "The GRU of torch with a linear readout."
    assert models["example-gru"]["recurrent"] and models["example-leaky"]["recurrent"]
    assert models["example-gru"]["parameters"] > 0


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(
    plugin: InstalledPlugin, uninterrupted: Path, tmp_path: Path
) -> None:
    with plugin.start(tmp_path, *TRAIN, "--out", "runs") as process:
        wait_for_checkpoint(tmp_path / "runs" / "seed-0", process)
        process.send_signal(signal.SIGKILL)
    run = RunFolder.open(tmp_path / "runs" / "seed-0")
    assert run.status == "running" and 0 < max(run.checkpoints()) < STEPS
    plugin.run(tmp_path, "train", "--resume", "runs", "--quiet")
    assert read_run(run.path) == read_run(uninterrupted)


def test_a_run_of_an_installed_plugin_is_evaluated(plugin: InstalledPlugin, uninterrupted: Path) -> None:
    out = plugin.run(uninterrupted.parent, "evaluate", str(uninterrupted), "--lengths", "1,8,40", "--json")
    (run,) = json.loads(out)["runs"]
    assert (run["model"], run["chance"]) == ("example-gru", 50.0)
    assert len(run["accuracy"]) == 3 and run["accuracy"][0] > 50
    config = json.loads((uninterrupted / "config.json").read_text())
    assert config["model"]["import_path"] == "sdssm_plugin_example.gru:Gru"


def test_a_folder_imports_nothing_where_the_plugin_is_not_installed(
    plugin: InstalledPlugin, uninterrupted: Path
) -> None:
    process = subprocess.run(
        [*SDSSM, "evaluate", str(uninterrupted)], cwd=uninterrupted.parent, capture_output=True, text=True, check=False
    )
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    assert "would import sdssm_plugin_example.gru:Gru" in process.stderr and "--trust" in process.stderr


def test_a_sweep_ranks_candidates_of_the_plugin(plugin: InstalledPlugin, tmp_path: Path) -> None:
    small = ["--set", "steps=40", "batch=16", "train_length=6", "--max-length", "12", "--device", "cpu", "--quiet"]
    out = plugin.run(tmp_path, "sweep", "parity", "--model", "example-gru", "--grid", "width=4,8", *small)
    assert "best of 2 by accuracy at training lengths: width" in out
    (table,) = tmp_path.glob("results/*/table.md")
    assert "example-gru" in table.read_text() and "chance" in table.read_text()


def test_an_experiment_with_models_of_the_plugin_is_reproduced(reproduced: Path) -> None:
    runs = [RunFolder.open(config.parent) for config in sorted(reproduced.glob("runs/**/config.json"))]
    assert sorted(run.config.model.name for run in runs) == sorted(2 * MODELS)
    assert {run.status for run in runs} == {"finished"}
    table = (reproduced / "results" / "plugged" / "table.md").read_text()
    assert all(name in table for name in (*MODELS, "chance"))


def test_two_ray_nodes_train_the_models_of_the_plugin_as_one_machine_does(
    plugin: InstalledPlugin, reproduced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", plugin.environment["PYTHONPATH"])  # the nodes have the plug-in as well
    (tmp_path / "spec.toml").write_text(SPEC)
    cluster = Cluster()
    try:
        ray = ["--engine", "ray", "--address", cluster.address]
        plugin.run(tmp_path, "reproduce", "spec.toml", "--device", "cpu", "--out", "runs", "--quiet", *ray)
    finally:
        cluster.end()
    folders = sorted(path.parent.relative_to(reproduced) for path in reproduced.glob("runs/**/config.json"))
    assert len(folders) == 2 * len(MODELS)
    for folder in folders:
        assert read_run(tmp_path / folder) == read_run(reproduced / folder), folder
