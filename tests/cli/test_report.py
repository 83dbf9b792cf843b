"""`sdssm report`: one page from run folders and results folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sdssm.formatting import count_of
from tests.programs import run_command, run_without
from tests.report.page.sample_runs import read_blocks, train_samples

Capture = pytest.CaptureFixture[str]
RESULTS = Path(__file__).parents[2] / "results"
#: The results of these experiments are shown: tables of accuracies.
TABLES = ("table1", "overview")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    train_samples(folder)
    return folder


def test_page_has_the_runs_below_a_folder(samples: Path, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    code, out, err = run_command(capsys, "report", str(samples), "-o", str(page), "--title", "Two models")
    assert (code, err) == (0, "")
    assert out.startswith(f"{page}: 3 runs, 1 task; 0.")
    assert f"2 runs have no extraction: sdssm extract {samples}/parity/seed-1" in out
    assert f"1 run has no certificate: sdssm certify {samples}/parity/seed-1" in out
    blocks = read_blocks(page.read_text())
    data = blocks["sdssm-report"]
    assert data["title"] == "Two models" and f"<title>{data['title']}</title>" in page.read_text()
    assert [run["folder"] for run in data["runs"]] == [
        f"{samples}/{name}" for name in ("parity/seed-0", "parity/seed-1", "rnn/seed-0")
    ]
    assert [(training["model"], len(training["runs"])) for training in data["trainings"]] == [("sd-ssm", 2), ("rnn", 1)]
    assert data["problems"] == [] and all(run["problems"] == [] for run in data["runs"])
    examined = data["runs"][0]
    for name in ("certified", "horizon", "extraction"):
        assert examined[name] is not None and data["runs"][1][name] is None
    assert examined["extraction"]["n_states"] == len(blocks[f"sdssm-run-{examined['id']}"]["extracted"]["states"])
    for run in data["runs"]:
        stored = json.loads(Path(run["folder"], "evaluation.json").read_text())
        assert run["headline"] == pytest.approx(stored["headline"], abs=0.01)
        detail = blocks[f"sdssm-run-{run['id']}"]
        assert detail["evaluation"]["accuracy"]["value"] == pytest.approx(stored["accuracy"], abs=0.01)
        assert (detail["matrices"] is None) == (run["model"] == "rnn") == ("matrices" in detail["missing"])
        assert detail["events"]["step"][-1] == run["step"] == run["steps"]


@pytest.mark.parametrize("name", TABLES)
def test_page_has_the_tables_of_results(name: str, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    code, out, err = run_command(capsys, "report", str(RESULTS / name), "-o", str(page))
    assert (code, err) == (0, "")
    results = json.loads((RESULTS / name / "results.json").read_text())
    data = read_blocks(page.read_text())["sdssm-report"]
    assert count_of(len(data["tables"]), "table") in out
    assert len(data["runs"]) == len(results["runs"])
    table = data["tables"][0]
    main = [cell for cell in results["cells"] if cell["first"] and cell["max"] is not None]
    assert [cell["published_best"] for cell in table["cells"] if cell["best"] is not None] == [
        cell["published_max"] for cell in main
    ]
    known = {run["id"]: run for run in data["runs"]}
    over_all = {(cell["row"], cell["column"]) for cell in main if cell["score"] == "all"}
    for cell in table["cells"]:
        scores = [known[identifier]["headline"] for identifier in cell["runs"]]
        assert len(scores) == cell["seeds"]
        if (cell["row"], cell["column"]) in over_all:
            assert max(scores) == pytest.approx(cell["best"], abs=0.01)


def test_runs_of_results_whose_folders_are_given_are_listed_once(
    samples: Path, tmp_path: Path, capsys: Capture
) -> None:
    page = tmp_path / "page.html"
    twice = [str(samples), str(samples / "rnn"), str(samples / "parity" / "..")]
    assert run_command(capsys, "report", *twice, "-o", str(page))[0] == 0
    assert len(read_blocks(page.read_text())["sdssm-report"]["runs"]) == 3


def test_command_needs_no_torch(samples: Path, tmp_path: Path) -> None:
    code = f"""
from sdssm.cli import main
assert main(["report", {str(samples)!r}, {str(RESULTS / "table1")!r}, "-o", {str(tmp_path / "page.html")!r}]) == 0
"""
    assert "135 runs" in run_without({"torch"}, code)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-o", "page.pdf"], "--out page.pdf: a page is written as .html or .htm; use --out page.html"),
        (["-o", "missing/page.html"], "cannot write missing/page.html: there is no folder missing; create it first"),
        (["-o", "folder.html"], "cannot write folder.html: Is a directory; choose another path"),
        (["--max-mb", "0.1"], "--max-mb must be from 0.5 to 1000, got 0.1"),
        (["nowhere"], "there is nothing to show; nowhere: there is no such folder"),
        (["empty"], "there is nothing to show; empty: there is no run folder and no results.json in it; sdssm train"),
        (["a-file"], "there is nothing to show; a-file: it is a file; pass the folder that it is in"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], problem: str, samples: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(samples, "runs")
    for folder in ("empty", "folder.html"):
        Path(folder).mkdir()
    Path("a-file").write_text("")
    code, out, err = run_command(capsys, "report", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"sdssm: {problem}") and err.count("\n") == 1
    assert not Path("report.html").exists()
