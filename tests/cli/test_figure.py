"""`sdssm figure`: figures from run folders, and errors in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sdssm.cli.figure import KINDS as DESCRIBED
from sdssm.report.figures import FIGURES
from sdssm.runs.own_files import EXTRACTION_FILE, STATES_FILE
from tests.programs import run_command
from tests.report.page.sample_runs import train_samples

pytest.importorskip("matplotlib")

Capture = pytest.CaptureFixture[str]
KINDS = tuple(FIGURES)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of an SD-SSM and an RNN on parity; the first has states and an extracted automaton."""
    folder = tmp_path_factory.mktemp("samples")
    first = train_samples(folder)[0]
    write_states(first.path)
    status = json.loads((first.path / "status.json").read_text())["status"]
    machine = {"table": [[0, 1], [1, 0]], "start": 0, "outputs": [0, 1]}
    extraction = {"machine": machine, "equals_task": True, "faithful": True, "difference": None, "note": None}
    record = {**extraction, "status": status, "digest": first.config.digest}
    (first.path / EXTRACTION_FILE).write_text(json.dumps(record))
    return folder


def write_states(folder: Path) -> None:
    """Write states as `sdssm evaluate` stores them."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (3, 20))
    tensors: dict[str, np.ndarray] = {
        "states": random.normal(size=(3, 20, 8)).astype(np.float32),
        "machine_states": labels,
        "labels": labels,
        "predictions": np.where(np.arange(20) < 2, 1 - labels, labels),
        "lengths": np.array([5, 8, 40]),
    }
    save_file(tensors, folder / STATES_FILE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", ["1", "2"])
def test_every_figure_is_written(kind: str, columns: str, samples: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / f"{kind}.svg"
    run = samples / "parity" / "seed-0"
    code, printed, err = run_command(capsys, "figure", kind, str(run), "-o", str(out), "--columns", columns)
    assert (code, err) == (0, "")
    width = {"1": "3.3", "2": "7.0"}[columns]
    assert printed.startswith(f"Figure: {out}, {width} by ")
    assert "Caption: " in printed
    assert out.read_text().startswith("<?xml")


def test_what_the_figures_show(samples: Path, tmp_path: Path, capsys: Capture) -> None:
    def draw(*arguments: str) -> str:
        code, _, err = run_command(capsys, "figure", *arguments, "-o", str(tmp_path / "out.svg"))
        assert (code, err) == (0, "")
        return (tmp_path / "out.svg").read_text()

    first = str(samples / "parity" / "seed-0")
    accuracy = draw("accuracy", str(samples))
    assert ">sd-ssm (2 seeds)<" in accuracy and ">rnn (1 seed)<" in accuracy and ">chance 50 %<" in accuracy
    assert ">training lengths, up to 8<" in accuracy
    automaton = draw("automaton", first)
    assert automaton.count(">even<") == 1 and ">extracted from sd-ssm, seed 0: equal<" in automaton
    assert ">symbol 1<" in draw("matrices", first)
    assert ">matrix 2<" in draw("matrices", first, "--dictionary")
    several = draw("eigenvalues", str(samples / "parity"))
    assert ">parity, sd-ssm, seed 0<" in several and ">parity, sd-ssm, seed 1<" in several
    assert ">length 40<" in draw("states", first)


def test_runs_without_what_a_figure_needs(samples: Path, tmp_path: Path, capsys: Capture) -> None:
    def refuse(*arguments: str, out: str = "out.pdf") -> str:
        code, printed, err = run_command(capsys, "figure", *arguments, "-o", str(tmp_path / out))
        assert (code, printed) == (2, "")
        assert err.count("\n") == 1
        assert not (tmp_path / out).exists()
        return err

    bare = tmp_path / "bare"
    shutil.copytree(samples / "parity" / "seed-1", bare)
    (bare / "evaluation.json").unlink()
    (bare / STATES_FILE).unlink()
    assert f"{bare} was not evaluated; run sdssm evaluate {bare} first" in refuse("accuracy", str(bare))
    rnn = str(samples / "rnn" / "seed-0")
    message = "is a run of rnn; only an SD-SSM with one layer has a matrix for each symbol"
    assert message in refuse("matrices", rnn) and message in refuse("eigenvalues", rnn)
    assert "states are not stored; sdssm evaluate" in refuse("states", str(bare))
    (bare / "model.safetensors").unlink()
    assert "has no model.safetensors yet" in refuse("matrices", str(bare))
    assert "ends in '.jpg'; plots are written as .png, .svg or .pdf" in refuse("states", "nowhere", out="x.jpg")
    assert "nowhere: there is no such folder" in refuse("states", "nowhere")
    assert "FIGURE is 'state'; did you mean 'states'?" in refuse("state", rnn)
    (bare / "evaluation.json").write_text("{")
    assert "evaluation.json" in refuse("accuracy", str(bare))
    assert "--strings: '0' is not a whole number from 1 to 65,536" in refuse("states", rnn, "--strings", "0")


def test_every_figure_is_described() -> None:
    assert tuple(DESCRIBED) == KINDS


def test_fewer_points_make_a_smaller_file(samples: Path, tmp_path: Path, capsys: Capture) -> None:
    run = str(samples / "parity" / "seed-0")
    sizes = []
    for strings in ("5", "20"):
        out = tmp_path / "states.svg"
        assert run_command(capsys, "figure", "states", run, "-o", str(out), "--strings", strings)[0] == 0
        sizes.append(out.read_text().count("<use "))
    assert sizes[0] < sizes[1]
