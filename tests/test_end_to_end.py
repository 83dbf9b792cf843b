"""Every command once, on the smallest task: train, evaluate, extract, compile, certify, tabulate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run_command

SMALL = ["--device", "cpu", "--quiet"]
TRAINING = ["--steps", "60", "--batch", "8", "--train-length", "6", "--set", "state=4", "dictionary=2"]
EXPERIMENT = """
name = "tiny"
title = "A tiny table"
seeds = 1
tasks = ["parity"]
[evaluate]
max_length = 8
strings = 16
[[rows]]
model = "lstm"
settings = { state = 4, batch = 8, steps = 20, train_length = 4 }
"""
#: Commands in order, and whether they print an accuracy.
COMMANDS: list[tuple[list[str], bool]] = [
    (["tasks", "show", "parity"], False),
    (["models", "lstm"], False),
    (["settings", "lstm"], False),
    (["completion", "bash"], False),
    (["train", "parity", "--out", "runs/parity", *TRAINING, *SMALL], True),
    (["train", "parity", "--out", "runs/parity", "--seeds", "1,", *TRAINING, "--device", "cpu"], True),
    (["runs"], True),
    (["evaluate", "runs/parity", "--max-length", "30", "--strings", "32", "--device", "cpu"], True),
    (["evaluate", "runs/parity", "--lengths", "5,50", "--strings", "32", "--device", "cpu"], True),
    (["certify", "runs/parity/seed-0", "--strings", "1000", "--search", "50"], False),
    (["horizon", "runs/parity/seed-0", "--max-length", "100"], True),
    (["compile", "parity", "--out", "compiled", "--length", "100"], False),
    (["certify", "compiled", "--task", "parity"], False),
    (["extract", "compiled", "--strings", "16"], True),
    (["snap", "compiled", "--out", "snapped"], True),
    (["reproduce", "tiny.toml", "--dry-run", "--device", "cpu"], False),
    (["reproduce", "tiny.toml", *SMALL], False),
    (["sweep", "parity", "--grid", "lr=1e-3,1e-2", "--set", "state=4", "steps=20", "--dry-run", *SMALL], False),
]


def test_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(EXPERIMENT)
    for arguments, prints_accuracy in COMMANDS:
        code, out, err = run_command(capsys, *arguments)
        assert (code, err) == (0, ""), arguments
        assert out, arguments
        if prints_accuracy:
            assert "chance" in out.lower(), arguments
    assert Path("results/tiny/table.md").exists()
