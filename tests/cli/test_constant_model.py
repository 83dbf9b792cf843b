"""A model that always gives the same answer: no command may make it look as if it had learned something.

On a sparse language a constant answer is right on nearly all uniformly drawn strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.cli.parser import COMMANDS
from sdssm.evaluation import RunEvaluation
from sdssm.exact.measurement.length_readings import HorizonReading
from sdssm.models.evidence import find_evidence
from sdssm.models.model_card import make_card
from sdssm.models.registry import find_entry, forget
from sdssm.runs import find_runs
from sdssm.studio import RunsWatcher
from sdssm.tasks import get_task
from tests.programs import run_command

Capture = pytest.CaptureFixture[str]
SPARSE = "regex:(a|b|c)*aa(a|b|c)*"
#: One string in 59,049 is accepted, and none of less than ten symbols: the constant model answers 0 and looks perfect.
RARE, ALL_REJECTED = "regex:aaaaaaaaaa(a|b|c)*", 9
MODEL = f"{__file__}:Constant"


class Constant(nn.Module):
    """Answer 0 after every symbol, trained or not."""

    def __init__(self, n_symbols: int, n_classes: int, answer: int = 0) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.register_buffer("logits", nn.functional.one_hot(torch.tensor(answer), n_classes).float())
        self.logits: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        return self.advance(tokens, None)[0]

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Carry a state, so that every command reads the model."""
        return self.logits.expand(*tokens.shape, -1) + 0 * self.unused, torch.zeros(len(tokens), 1)


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder above the runs of a constant model, which are evaluated."""
    folder = tmp_path_factory.mktemp("constant")
    settings = {"batch": 8, "train_length": 20}
    runs = sdssm.train(RARE, model=MODEL, steps=4, settings=settings, out=folder / "runs", device="cpu")
    sdssm.evaluate(runs, device="cpu")
    yield folder
    forget(find_entry(MODEL).name)


@pytest.fixture
def run(trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Callable[..., str]:
    """Run a command in that folder and return what it prints, without an accuracy that stands alone."""
    monkeypatch.chdir(trained)

    def run_here(*arguments: str, code: int = 0) -> str:
        got, out, err = run_command(capsys, *arguments)
        assert got == code, err
        assert_accuracy_stands_beside_the_best_constant(out)
        return out

    return run_here


def assert_accuracy_stands_beside_the_best_constant(out: str) -> None:
    """In every header of a table, and in every line with a number."""
    for line in out.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) > 2 and any(cell.startswith("accuracy") for cell in cells):
            assert any("constant" in cell for cell in cells), line
        if re.search(r"(?<!balanced )(?<!covering )accuracy (min |mean )?[\d.]+", line):
            assert "constant" in line, line


def column(out: str, header: str) -> list[str]:
    """The cells of a column of the first table that has it; columns are two spaces apart."""
    lines = out.splitlines()
    first = next(k for k, line in enumerate(lines) if header in re.split(r"\s{2,}", line.strip()))
    end = lines[first].index(header) + len(header)
    cells = []
    for line in lines[first + 1 :]:
        if not line.strip():
            break
        cells.append(line[:end].split()[-1] if "to length" not in header else line[:end].split()[-3])
    return cells


#: The numbers that a command shows of a model, in percent, each with the chance level beside it.
Shown = list[tuple[str, str]]
Run = Callable[..., str]
TINY = ("--set", "steps=4", "batch=8", "train_length=20")
TRAIN = ("train", RARE, "--model", MODEL, "--steps", "4", "--batch", "8", "--train-length", "20", "--device", "cpu")


def shown_by_train(run: Run) -> Shown:
    out = run(*TRAIN, "--out", "again", "--overwrite")
    quiet = run(*TRAIN, "--out", "again", "--overwrite", "--quiet")
    found = re.search(
        r"balanced accuracy at training lengths: mean ([\d.]+) %, min [\d.]+ %, balanced chance ([\d.]+) %;", quiet
    )
    assert found is not None and re.search(r"accuracy of the last steps: .*, best constant answer [\d.]+ %", quiet)
    return [(column(out, "balanced %")[0], column(out, "balanced chance %")[0]), (found[1], found[2])]


def shown_by_evaluate(run: Run) -> Shown:
    out = run("evaluate", "runs", "--model", MODEL, "--device", "cpu")
    data = json.loads(run("evaluate", "runs", "--model", MODEL, "--device", "cpu", "--json"))["runs"][0]
    assert data["headline_name"] == "balanced accuracy" and len(data["best_constant"]) == 500
    assert column(out, "accuracy") == ["100.00"]  # this is what a constant answer looks like on uniform strings
    assert int(column(out, "first below 99")[0]) == ALL_REJECTED + 1
    listed = run("evaluate", "runs", "--model", MODEL, "--device", "cpu", "--lengths", "50,100")
    pairs = [(column(text, "balanced")[0], column(text, "balanced chance")[0]) for text in (out, listed)]
    return [*pairs, (str(data["headline"]), str(data["headline_chance"]))]


def shown_by_runs(run: Run) -> Shown:
    out = run("runs", "runs")
    assert "constant % to length" in out
    return [(column(out, "balanced % to length")[0], column(out, "balanced chance %")[0])]


def shown_by_check(run: Run) -> Shown:
    options = ("--trust", "--sections", "accuracy", "automaton", "forecast", "--device", "cpu", "--max-length", "60")
    out = run("check", "runs", *options)
    for line in out.splitlines():
        if re.match(r" +length \d", line):
            assert line.count("best constant") == (2 if "covering" in line else 1)
        if found := re.match(r" +at least \d+ % +up to length ([\d,]+)", line):
            assert int(found[1]) <= ALL_REJECTED
    assert "no forecast: the balanced accuracy at training length 20 is 50.0 % (chance 50.0 %)" in out
    assert "an automaton of 1 state" in out and f"not that of {RARE}" in out
    run("check", "runs", *options, "--strict", code=1)
    pairs = re.findall(r"length (\d+) +balanced ([\d.]+) % \(chance ([\d.]+) %\)", out)
    return [(share, chance) for length, share, chance in pairs if int(length) > ALL_REJECTED]


def shown_by_horizon(run: Run) -> Shown:
    out = run("horizon", "runs/seed-0", "--model", MODEL, "--max-length", "200")
    found = re.search(r"as at all shorter ones: ([\d,]+)\n", out)
    assert found is not None and int(found[1]) <= ALL_REJECTED
    failed = re.search(r"balanced accuracy ([\d.]+) % \(balanced chance ([\d.]+) %\)", out)
    assert failed is not None
    return [(failed[1], failed[2])]


def shown_by_extract(run: Run) -> Shown:
    out = run("extract", "runs/seed-0", "--model", MODEL)
    assert f"The extracted machine is not the machine of {RARE}" in out
    return []


def shown_by_snap(run: Run) -> Shown:
    out = run("snap", "runs/seed-0", "--model", MODEL, "--out", "snapped", "--overwrite")
    assert out.startswith(f"WARNING: the extracted machine is not the machine of {RARE}")
    return []


def shown_by_certify(run: Run) -> Shown:
    run("certify", "runs/seed-0", "--model", MODEL, code=2)  # no proof without matrices
    return []


def shown_by_export(run: Run) -> Shown:
    model = sdssm.load(find_runs("runs")[0], trust=True)  # the card of a model that is saved, exported or published
    lines = [line for line in make_card(model, find_evidence(model)).splitlines() if line.startswith("| ")]
    rows = {row[1].strip(): row[3].strip() for row in (line.split("|") for line in lines)}
    assert "best constant answer" in rows and "covering: all transitions equally frequent" in rows
    return [(rows["balanced: all labels equally frequent"].rstrip(" %"), rows["chance"].rstrip(" %"))]


def shown_by_sweep(run: Run) -> Shown:
    out = run("sweep", RARE, "--model", MODEL, "--grid", "answer=0,1", *TINY, "--max-length", "60", "--device", "cpu")
    assert "2 candidates by balanced accuracy at training lengths" in out
    assert "; chance 50; best constant answer within 50, balanced 50" in out
    return [(share, "50") for share in column(out, "within")] + first_cells(out)


def shown_by_reproduce(run: Run) -> Shown:
    Path("constant.toml").write_text(EXPERIMENT.format(model=MODEL, task=RARE, scores=""))
    return first_cells(run("reproduce", "constant.toml", "--results", "results", "--device", "cpu", "--quiet"))


def shown_by_report(run: Run) -> Shown:
    run("report", "runs", "-o", "page.html")
    text = Path("page.html").read_text()
    data = re.search(r'<script type="application/json" id="sdssm-report">(.*?)</script>', text)
    assert data is not None
    entries = evaluated(json.loads(data[1])["runs"])
    for entry in entries:
        assert f"{entry['headline']} % {entry['headline_name']}, balanced chance {entry['headline_chance']} %" in text
    return [(str(entry["headline"]), str(entry["headline_chance"])) for entry in entries]


def shown_by_playground(run: Run) -> Shown:
    run("playground", "runs", "-o", "playground.html", code=2)  # a page has no module of others
    return []


def shown_by_studio(run: Run) -> Shown:
    snapshot = RunsWatcher(Path("runs")).snapshot()  # what the server sends; the command itself waits for Ctrl-C
    entries = evaluated(snapshot.runs.values())
    assert {entry["headline_name"] for entry in entries} == {"balanced accuracy"}
    return [(str(entry["headline"]), str(entry["headline_chance"])) for entry in entries]


def evaluated(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The runs of a page that have a headline: other commands of this file may have trained more of them."""
    known = [entry for entry in entries if entry["headline"] is not None]
    assert known
    return known


def shown_by_figure(run: Run) -> Shown:
    run("figure", "accuracy", "runs", "-o", "figure.svg")
    text = Path("figure.svg").read_text()
    assert ">best constant 100 %<" in text and ">chance 50 %<" in text  # the curve lies on a line with this name
    return []


def first_cells(out: str) -> Shown:
    """The scores of the first table of an experiment beside chance."""
    lines = out[out.index("over seeds") :].splitlines()
    assert lines[0].endswith("in %, on balanced strings")
    cells = {line.split("  ")[0]: re.split(r"\s{2,}", line)[1:] for line in lines[2:5]}
    [model] = set(cells) - {"best constant", "chance"}
    return [(score.split(" ")[0], chance) for score, chance in zip(cells[model], cells["chance"], strict=True)]


SHOWN: dict[str, Callable[[Run], Shown]] = {
    name.removeprefix("shown_by_"): function
    for name, function in list(globals().items())
    if name.startswith("shown_by")
}
#: Commands that say nothing about how good a trained model is.
WITHOUT_NUMBERS = ("tasks", "models", "settings", "compile", "completion")


def test_every_command_is_in_this_file() -> None:
    """A new command must say here what it shows of a model that has learned nothing."""
    assert sorted([*SHOWN, *WITHOUT_NUMBERS]) == sorted(COMMANDS)


def assert_chance(shown: Shown) -> None:
    assert [(share, chance) for share, chance in shown if float(share) > float(chance) or float(chance) > 50] == []


@pytest.mark.parametrize("command", SHOWN)
def test_no_command_lets_a_constant_model_look_good(command: str, run: Run) -> None:
    assert_chance(SHOWN[command](run))


def test_a_command_that_shows_the_accuracy_as_its_headline_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests of this file are able to fail."""
    monkeypatch.setattr(
        "sdssm.evaluation.tables._balanced", lambda run: {"balanced": f"{run.mean:.2f}", "balanced chance": "50"}
    )
    with pytest.raises(AssertionError):
        assert_chance(SHOWN["evaluate"](run))
    monkeypatch.setattr(HorizonReading, "is_at_least", lambda reading, level: reading.accuracy >= level)
    with pytest.raises(AssertionError):
        SHOWN["horizon"](run)
    with pytest.raises(AssertionError):
        assert_accuracy_stands_beside_the_best_constant("task  accuracy  chance\nparity  100.00  50")
    with pytest.raises(AssertionError):
        assert_accuracy_stands_beside_the_best_constant("step 4 of 4: accuracy 75.00 %")


EXPERIMENT = """
name = "constant"
title = "A constant model"
seeds = 1

[evaluate]
max_length = 60
strings = 64
{scores}

[[rows]]
model = "{model}"
label = "constant"
tasks = ["{task}", "parity"]
settings = {{ steps = 4, batch = 8 }}
"""


def test_an_experiment_shows_the_best_constant_answer_of_each_score(run: Run) -> None:
    scores = 'scores = ["balanced", "covering", "all", "balanced at 20"]'
    Path("scores.toml").write_text(EXPERIMENT.format(model=MODEL, task=SPARSE, scores=scores))
    out = run("reproduce", "scores.toml", "--out", "scores", "--results", "scores", "--device", "cpu", "--quiet")
    cells = json.loads(Path("scores/constant/results.json").read_text())["cells"]
    for cell in cells:
        assert cell["max"] is not None and cell["best_constant"] is not None
        limit = 0.0 if cell["score"].startswith("balanced") else 100 * 3 / 64**0.5
        assert cell["max"] <= cell["best_constant"] + limit
    assert {cell["best_constant"] for cell in cells if cell["score"].startswith("balanced")} == {50.0}
    assert out.count("best constant") == 4 and "on balanced strings at 20" in out
