"""The command that repeats a run: parsed and resolved, it leads to the config of the run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm.automata import Machine, get_machine, write_machine
from sdssm.cli.options import collect_settings
from sdssm.cli.parser import make_parser
from sdssm.models import forget
from sdssm.models.registry import find_entry
from sdssm.runs.repeating import repeat_command
from sdssm.runs.schema import RunConfig, choose_preset, create_config, resolve_settings
from sdssm.tasks import Task, get_task
from sdssm.training.planning import plan_runs
from tests.test_compatibility import WRITTEN

#: model, preset (None: the default), task, settings
RUNS: list[tuple[str, str | None, str, dict[str, Any]]] = [
    ("sd-ssm", None, "a5", {}),
    ("sd-ssm", None, "a5", {"steps": 4000, "lr": 3e-4, "train_length": 20, "state": 16}),
    ("sd-ssm", None, "random:100x4:0", {"sampling": "uniform", "allow_unidentified": True}),
    ("sd-ssm", "paper", "d4", {"steps": 10}),
    ("sd-ssm", "readme", "d4", {}),
    ("sd-ssm", "states", "parity", {"targets": "label"}),  # the size of the state depends on the targets
    ("sd-ssm", "states", "d4", {"next_state": 5.0}),
    ("sd-ssm", None, "arithmetic", {"layers": 2}),
    ("sd-ssm", None, "regex:(a|b|c)*ab(a|c)*", {"log_every": 7}),
    ("sd-ssm", None, "regex[ab'\"$ ]:a*b", {}),
    ("lstm", None, "c2xc30", {"state": 8, "betas": [0.8, 0.9]}),
    ("mamba", None, "cycle", {"layers": 2, "norm": "none"}),
    ("transformer", None, "parity", {"readout": "mlp", "dropout": 0.25}),
]


def resolve(command: str) -> list[RunConfig]:
    """Return the configs that the command leads to."""
    words = shlex.split(command, comments=True)
    assert words[:2] == ["sdssm", "train"]
    options = make_parser("train").parse_args(words[1:])
    settings = collect_settings(options)
    _, plans = plan_runs(
        options.tasks,
        model=options.model,
        preset=options.preset,
        seeds=options.seeds,
        steps=None,
        out=None,
        settings=settings,
        variants=None,
        device=torch.device("cpu"),
    )
    return [config for _, _, config in plans]


def make_config(model: str, preset: str | None, task: Task, values: Mapping[str, Any], seed: int = 3) -> RunConfig:
    preset = preset or choose_preset(find_entry(model).name, task)
    return create_config(task, seed, resolve_settings(model, preset, task, values), preset)


@pytest.mark.parametrize(("model", "preset", "task", "values"), RUNS)
def test_the_command_leads_to_the_config_of_the_run(
    model: str, preset: str | None, task: str, values: dict[str, Any]
) -> None:
    config = make_config(model, preset, get_task(task), values)
    command = repeat_command(config)
    (repeated,) = resolve(command)
    assert repeated.matches(config), command
    assert "#" not in command


def test_only_changed_settings_are_in_the_command() -> None:
    config = make_config("sd-ssm", None, get_task("a5"), {"lr": 1e-4, "sampling": "uniform"})
    assert repeat_command(config) == "sdssm train a5 --model sd-ssm --preset scale-free --seeds 3, --set lr=0.0001"


def test_a_task_that_was_passed_with_a_length_of_its_own() -> None:
    config = make_config("rnn", None, replace(get_task("parity"), train_length=7), {})
    assert repeat_command(config).endswith("--set train_length=7")
    assert resolve(repeat_command(config))[0].train_length == config.train_length


def test_a_preset_that_this_version_does_not_have() -> None:
    config = replace(make_config("rnn", None, get_task("parity"), {"batch": 5}), preset="forgotten")
    (repeated,) = resolve(repeat_command(config))
    assert (repeated.settings, repeated.preset) == (config.settings, "default")


def test_a_machine_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_machine(get_machine("parity"), tmp_path / "my machine.json")
    config = make_config("rnn", None, get_task("my machine.json"), {"steps": 4})
    command = repeat_command(config)
    assert command.startswith("sdssm train 'my machine.json' --model rnn")
    assert "  # my machine.json must hold the machine of the run: sdssm.automata.write_machine(" in command
    assert resolve(command)[0].matches(config)
    (tmp_path / "my machine.json").unlink()
    assert repeat_command(config) == command  # the config has the machine


def test_a_machine_that_was_passed_as_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = make_config("rnn", None, get_task(Machine(table=[[0, 1], [1, 0]], outputs=[1, 0])), {})
    command = repeat_command(config)
    assert command.startswith("sdssm train machine.json ") and "  # machine.json must hold the machine" in command
    write_machine(config.load_task().machine, tmp_path / "machine.json")  # as the comment says
    (repeated,) = resolve(command)
    assert (repeated.digest, repeated.settings, repeated.seed) == (config.digest, config.settings, config.seed)


def test_a_task_with_valid_strings_of_its_own_cannot_be_repeated_by_a_command() -> None:
    machine = get_machine("parity")
    task = Task(name="odd lengths", machine=machine, valid=Machine(table=[[1, 1], [0, 0]], outputs=[0, 1]))
    assert "  # not all strings of this task are valid" in repeat_command(make_config("rnn", None, task, {}))


GRU = """
from torch import nn
from sdssm import register
class Gru(nn.Module):
    def __init__(self, n_symbols, n_classes, width=8, kind="1", scale: float | None = None):
        super().__init__()
        self.embedding, self.readout = nn.Embedding(n_symbols, width), nn.Linear(width, n_classes)
        self.gru = nn.GRU(width, width, batch_first=True)
    def forward(self, tokens):
        return self.readout(self.gru(self.embedding(tokens))[0])
"""


def test_a_model_of_others_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_gru.py").write_text(GRU)
    config = make_config("my_gru.py:Gru", None, get_task("parity"), {"width": 4, "kind": "5", "lr": 0.5})
    known = repeat_command(config)
    stored = config.to_json()
    forget(config.model.name)
    unknown = repeat_command(RunConfig.from_json(stored))
    assert "my_gru.py:Gru" not in sys.modules and "my_gru" not in sys.modules
    for command in (known, unknown):
        (repeated,) = resolve(command)
        assert repeated.settings.values_by_name() == config.settings.values_by_name()
        forget(config.model.name)
    assert "scale" not in known and "scale=none" in unknown  # the defaults of its code are not known


def test_a_model_that_was_passed_as_an_object() -> None:
    def mine(n_symbols: int, n_classes: int) -> torch.nn.Module:
        return torch.nn.Embedding(n_symbols, n_classes)

    entry = find_entry(mine)
    config = make_config(entry.name, None, get_task("parity"), {})
    forget(entry.name)
    assert "  # the model was passed as an object of Python" in repeat_command(config)


def test_it_needs_no_torch() -> None:
    code = (
        "import sys\nfrom sdssm.runs.folder import RunFolder\nfrom sdssm.runs.repeating import repeat_command\n"
        "print(repeat_command(RunFolder.open(sys.argv[1]).config), 'torch' in sys.modules)"
    )
    path = WRITTEN / "runs" / "parity" / "seed-0"
    out = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True).stdout
    command, _, has_torch = out.rstrip().rpartition(" ")
    assert has_torch == "False"
    settings = "--set state=4 batch=8 train_length=8"
    assert command == f"sdssm train parity --model sd-ssm --preset scale-free --seeds 0, --steps 30 {settings}"
