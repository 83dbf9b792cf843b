"""A model that always gives the same answer: no command may make it look as if it had learned something.

On a sparse language a constant answer is right on nearly all uniformly drawn strings.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.evaluation import RunEvaluation
from sdssm.models.evidence import find_evidence
from sdssm.models.model_card import make_card
from sdssm.models.registry import find_entry, forget
from sdssm.runs import find_runs
from sdssm.tasks import get_task
from tests.programs import run_command

Capture = pytest.CaptureFixture[str]
SPARSE = "regex:(a|b|c)*aa(a|b|c)*"
MODEL = f"{__file__}:Constant"


class Constant(nn.Module):
    """Answer 0 after every symbol, trained or not."""

    def __init__(self, n_symbols: int, n_classes: int, answer: int = 0) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.register_buffer("logits", nn.functional.one_hot(torch.tensor(answer), n_classes).float())
        self.logits: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.logits.expand(*tokens.shape, -1) + 0 * self.unused
        return logits


def file_task(folder: Path) -> str:
    """Return a file with a language whose automaton has a sink, as those of benchmarks have."""
    path = folder / "sparse.json"
    path.write_text(json.dumps({"table": [[0, 1, 2, 2], [0, 1, 2, 2], [2, 2, 2, 2]], "outputs": [0, 1, 0]}))
    return str(path)


@pytest.mark.parametrize("answer", [0, 1])
def test_the_headline_of_a_constant_model_is_chance(answer: int, tmp_path: Path) -> None:
    for task in (SPARSE, "regex:(ab|c)*", file_task(tmp_path), "parity", "cycle", "arithmetic", "a5"):
        sizes = get_task(task)
        model = Constant(sizes.n_symbols, sizes.n_classes, answer)
        for lengths in (None, [10, 50]):
            [run] = sdssm.evaluate(model, task=task, lengths=lengths, strings=256)
            assert run.headline_name == "balanced accuracy" and run.headline_chance is not None
            assert run.headline <= run.headline_chance + 1e-9
            assert f"{run!r}".count("best constant answer") == 1
            assert_accuracy_is_at_most_the_best_constant(run)


def assert_accuracy_is_at_most_the_best_constant(run: RunEvaluation) -> None:
    """On average over the lengths, up to the error of a sample; covering strings likewise."""
    assert run.best_constant_mean is not None and run.mean_band is not None
    assert run.mean_band[0] <= run.best_constant_mean + 1
    assert run.covering is not None and run.covering.band is not None
    assert run.covering.band[0] <= run.covering.best_constant_mean + 1


def test_a_constant_answer_is_nearly_always_right_on_a_sparse_language() -> None:
    """Otherwise the other tests of this file would show nothing."""
    [run] = sdssm.evaluate(Constant(3, 2, 1), task=SPARSE)
    assert run.mean > 85 and run.accuracy[-1] == 100 and run.headline == 50


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder of runs of a constant model, as `sdssm train` made them."""
    monkeypatch.chdir(tmp_path)
    yield Path("runs")
    forget(find_entry(MODEL).name)


def column(out: str, header: str) -> list[str]:
    """The cells of a column of the first table that has it; columns are two spaces apart."""
    lines = out.splitlines()
    first = next(k for k, line in enumerate(lines) if header in re.split(r"\s{2,}", line.strip()))
    end = lines[first].index(header) + len(header)
    cells = []
    for line in lines[first + 1 :]:
        if not line.strip():
            break
        cells.append(line[:end].split()[-1] if "to length" not in header else " ".join(line[:end].split()[-3:]))
    return cells


def test_no_command_lets_a_constant_model_look_good(runs: Path, capsys: Capture) -> None:
    trained = ["--steps", "4", "--batch", "8", "--train-length", "20", "--device", "cpu", "--out", str(runs)]
    code, out, _ = run_command(capsys, "train", SPARSE, "--model", MODEL, *trained)
    assert code == 0
    assert column(out, "balanced %") == ["50.00"] and column(out, "chance %") == ["50"]
    assert column(out, "best constant %") != ["50"]  # beside the accuracy on training strings
    assert "accuracy" not in re.sub(r"accuracy [\d.]+ % \(best constant", "", out.split("balanced %")[0])
    code, out, _ = run_command(capsys, "train", SPARSE, "--model", MODEL, *trained, "--quiet", "--overwrite")
    assert code == 0 and "balanced accuracy at training lengths: mean 50.00 %, min 50.00 %, chance 50 %" in out
    assert re.search(r"accuracy of the last steps: mean [\d.]+ %, min [\d.]+ %, best constant answer [\d.]+ %", out)

    code, out, _ = run_command(capsys, "evaluate", str(runs), "--model", MODEL, "--device", "cpu")
    assert code == 0
    assert (column(out, "balanced"), column(out, "chance")) == (["50.00"], ["50"])
    assert float(column(out, "best constant")[0]) > 85 and "; best constant answer" in out
    code, out, _ = run_command(capsys, "evaluate", str(runs), "--model", MODEL, "--device", "cpu", "--json")
    [run] = json.loads(out)["runs"]
    assert (run["headline"], run["headline_name"], run["headline_chance"]) == (50.0, "balanced accuracy", 50.0)
    assert len(run["best_constant"]) == 500 and run["balanced"]["lengths"] == [10, 20, 40, 100, 500]

    code, out, _ = run_command(capsys, "runs", str(runs))
    assert code == 0 and column(out, "balanced % to length") == ["50.00 to 500"]
    assert "best constant %" in out and "constant % to length" in out

    options = ["--trust", "--sections", "accuracy", "--device", "cpu", "--max-length", "60"]
    code, out, _ = run_command(capsys, "check", str(runs), *options)
    assert code == 0
    for line in out.splitlines():
        if re.match(r" +length \d", line):
            assert line.count("best constant") == (2 if "covering" in line else 1)
        for share, chance in re.findall(r"balanced ([\d.]+) % \(chance ([\d.]+) %\)", line):
            assert float(share) <= float(chance)
    assert re.search(r"at least 99 % +at no length|at least 99 % +up to length [1-9]\b", out)
    assert run_command(capsys, "check", str(runs), *options, "--strict")[0] == 1

    model = sdssm.load(find_runs(runs)[0], trust=True)
    card = make_card(model, find_evidence(model))
    rows = {row[1].strip(): row[3].strip() for row in (line.split("|") for line in card.splitlines() if "|" in line)}
    assert rows["balanced: all labels equally frequent"] == rows["chance"] == "50 %"
    assert "best constant answer" in rows


EXPERIMENT = """
name = "constant"
title = "A constant model"
seeds = 1

[evaluate]
max_length = 60
strings = 64
scores = ["balanced", "covering", "all", "balanced at 20"]

[[rows]]
model = "{model}"
label = "constant"
tasks = ["{task}", "parity"]
settings = {{ steps = 4, batch = 8 }}
"""


def test_an_experiment_shows_the_best_constant_answer_of_each_score(runs: Path, capsys: Capture) -> None:
    Path("constant.toml").write_text(EXPERIMENT.format(model=MODEL, task=SPARSE))
    code, out, _ = run_command(
        capsys, "reproduce", "constant.toml", "--out", str(runs), "--results", "results", "--device", "cpu", "--quiet"
    )
    assert code == 0
    cells = json.loads(Path("results/constant/results.json").read_text())["cells"]
    for cell in cells:
        assert cell["max"] is not None and cell["best_constant"] is not None
        limit = 0.0 if cell["score"].startswith("balanced") else 100 * 3 / 64**0.5
        assert cell["max"] <= cell["best_constant"] + limit
    assert {cell["best_constant"] for cell in cells if cell["score"].startswith("balanced")} == {50.0}
    assert out.count("best constant") == 4 and "on balanced strings at 20" in out
