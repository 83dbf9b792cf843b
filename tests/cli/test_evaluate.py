"""`sdssm evaluate`, run as a command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sdssm import progress
from sdssm.automata import get_machine
from tests.edited_files import edit_json
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import create_run
from tests.programs import run_command

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed, ones in enumerate((6, 9, 12)):
        create_run(tmp_path / "parity" / f"seed-{seed}", tiring_parity(ones, states=26), seed)
    return tmp_path / "parity"


def test_tables_and_plot_of_all_runs(runs: Path, capsys: Capture) -> None:
    code, out, err = run_command(capsys, "evaluate", str(runs), "--max-length", "100")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[2].split()[:4] == ["task", "model", "seed", "to"]
    assert [line.split()[2] for line in lines[3:6]] == ["0", "1", "2"]
    assert lines[5].split()[:2] == ["parity", "sd-ssm"]
    assert " ".join(lines[7].split()) == "task model seeds measure max mean min best constant"
    rows = [line.split() for line in lines[8:11] if line]
    assert [row[3] for row in rows][0 :: len(rows) - 1] == ["balanced", "accuracy"]
    assert all(row[-1] == "50" for row in rows)
    assert "radius: the largest absolute eigenvalue of a symbol's matrix" in out
    assert "accuracy in %, parity, sd-ssm, mean of 3 seeds" in out
    assert "==== training lengths, up to 40" in out
    assert "\x1b" not in out
    assert (runs / "seed-1" / "evaluation.json").exists()


def test_each_measure_has_its_own_baseline(tmp_path: Path, capsys: Capture) -> None:
    """Of the 8 states of d4, 4 are possible at a length: a constant answer has 25 %, a random guess 12.5 %."""
    exact(get_machine("d4")).save(tmp_path / "d4")
    options = ("--strings", "8", "--max-length", "20")
    code, out, err = run_command(capsys, "evaluate", str(tmp_path / "d4"), "--task", "d4", *options)
    assert (code, err) == (0, "")
    header, row = (re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[2:4])
    cells = dict(zip(header, row, strict=True))
    assert cells["balanced chance"] == cells["covering constant"] == "25" and "chance" not in cells
    assert header.index("balanced chance") == header.index("balanced") + 1
    assert header.index("best constant") == header.index("accuracy") + 1
    assert header.index("covering constant") == header.index("covering") + 1
    assert ".... chance of a random guess, 12.5 %; best constant answer" in out
    assert "best constant: the accuracy, on the same strings, of always giving the most frequent label" in out


def test_json_has_all_runs_and_their_aggregate(runs: Path, capsys: Capture) -> None:
    code, out, err = run_command(
        capsys, "evaluate", str(runs / "seed-0"), str(runs / "seed-1"), "--json", "--strings", "64"
    )
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert set(data) == {"runs", "aggregate"}
    assert [(run["task"], run["model"], run["seed"], run["max_length"]) for run in data["runs"]] == [
        ("parity", "sd-ssm", 0, 500),
        ("parity", "sd-ssm", 1, 500),
    ]
    assert len(data["runs"][0]["accuracy"]) == 500
    assert data["aggregate"][0]["seeds"] == 2
    assert data["aggregate"][0]["max"] == data["runs"][1]["mean"]
    stored = json.loads((runs / "seed-0" / "evaluation.json").read_text())
    assert stored.pop("checksum").startswith("sha256:")
    assert stored == data["runs"][0]


def test_listed_lengths_and_a_plot_file(runs: Path, capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "parity.svg"
    code, out, _ = run_command(
        capsys, "evaluate", str(runs), "--lengths", "10, 5_000", "--plot", str(plot), "--strings", "32"
    )
    assert code == 0
    assert "at 10" in out and "mean to 5,000" in out
    table = out[: out.index("radius:")].split("\n\n")[2]
    rows = [line.split() for line in table.splitlines() if "accuracy" in line]
    assert [row[5] for row in rows] == ["10", "5,000"]  # a row for each length
    assert "\naccuracy in %" not in out  # two lengths are too few for a curve
    assert "<svg" in plot.read_text()
    assert str(plot) in out


def test_views_of_a_plot(runs: Path, capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = {}
    for view in ("accuracy", "error"):
        plot = tmp_path / f"{view}.svg"
        arguments = ["--max-length", "20", "--plot", str(plot), "--view", view, "--strings", "32"]
        assert run_command(capsys, "evaluate", str(runs), *arguments)[0] == 0
        shown[view] = plot.read_text()
    assert "error" in shown["error"] and "error" not in shown["accuracy"]


def test_columns_distinguish_runs(tmp_path: Path, capsys: Capture) -> None:
    for seed in range(2):
        create_run(tmp_path / f"seed-{seed}", get_machine("parity"), seed)
    create_run(tmp_path / "a", get_machine("parity"), train_length=20)
    create_run(tmp_path / "b", get_machine("parity"), lr=0.5)
    for more in (["--max-length", "3"], ["--lengths", "2,4"]):
        code, out, err = run_command(capsys, "evaluate", str(tmp_path), *more)
        assert (code, err) == (0, "")
        rows = [line for line in out.splitlines() if line.startswith("parity")]
        assert [row.split("sd-ssm")[1].split("  ")[1].strip() for row in rows[:4]] == [
            "scale-free, trained to 20",
            "scale-free, trained to 40, lr 0.5",
            "scale-free, trained to 40",
            "scale-free, trained to 40",
        ]
        listed = "--lengths" in more
        rows = [row for row in rows[4:] if "accuracy" in row]
        seeds = [row.split()[row.split().index("accuracy") - 1] for row in rows]
        assert seeds == (["1", "1", "1", "1", "2", "2"] if listed else ["1", "1", "2"])
    create_run(tmp_path / "again", get_machine("parity"), 1)
    _, out, _ = run_command(capsys, "evaluate", str(tmp_path), "--max-length", "3")
    assert str(tmp_path / "again") in out  # with the same settings and seed, only the folders differ


def test_a_diverged_run_is_shown_but_left_out_of_the_summary(runs: Path, capsys: Capture) -> None:
    create_run(runs / "seed-3", tiring_parity(6, states=26), 3, ended="diverged")
    for more in ([], ["--lengths", "5"]):
        code, out, err = run_command(capsys, "evaluate", str(runs), *more)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        [header] = [line for line in lines if "diverged" in line and "max" in line]
        assert header.split()[:4] == ["task", "model", "seeds", "diverged"]
        assert lines[lines.index(header) + 1].split()[2:4] == ["3", "1"]
        note = f"Note: {runs}/seed-3: diverged: read as it was at step 0 of "
        assert lines[1].startswith(note) and lines[1].endswith("and left out of the best, mean and worst")


def test_a_result_that_cannot_be_written_is_printed_with_a_warning(runs: Path, capsys: Capture) -> None:
    (runs / "seed-1" / "evaluation.json").mkdir()
    code, out, err = run_command(capsys, "evaluate", str(runs), "--max-length", "9")
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[3:6]] == ["0", "1", "2"]
    lines = err.splitlines()
    assert all(line.startswith("sdssm: warning:") for line in lines)
    assert "is damaged" in lines[0] and "not kept" in lines[-1] and len(lines) <= 3


def test_a_saved_model_is_evaluated_with_its_task(runs: Path, tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "model"
    exact(get_machine("parity")).save(model)
    code, out, err = run_command(capsys, "evaluate", str(model))
    assert (code, out) == (2, "")
    assert err == (f"sdssm: {model} holds a model without its task; add it, as in sdssm evaluate {model} --task a5\n")
    code, out, err = run_command(capsys, "evaluate", str(model), "--task", "parity", "--max-length", "9")
    assert (code, err) == (0, "")
    assert out.splitlines()[3].split()[:5] == ["parity", "sd-ssm", "-", "9", "100.00"]
    code, out, err = run_command(capsys, "evaluate", str(runs / "seed-0"), "--task", "d4")
    assert (code, out) == (2, "")
    assert err == f"sdssm: {runs / 'seed-0'} is a run and knows its own task; leave --task out\n"


def test_a_stored_result_that_covers_more_is_kept(runs: Path, capsys: Capture) -> None:
    run_command(capsys, "evaluate", str(runs), "--max-length", "20")
    code, out, err = run_command(capsys, "evaluate", str(runs), "--max-length", "9")
    assert (code, err) == (0, "")
    assert "Note: evaluation.json is kept, because it has 512 strings for 20 lengths up to 20; overwrite=True" in out
    assert out.count("Note:") == 1
    path = runs / "seed-0" / "evaluation.json"
    assert json.loads(path.read_text())["max_length"] == 20
    _, out, _ = run_command(capsys, "evaluate", str(runs), "--max-length", "9", "--overwrite")
    assert "Note:" not in out
    assert json.loads(path.read_text())["max_length"] == 9


def test_help_says_which_files_are_written(capsys: Capture) -> None:
    _, out, _ = run_command(capsys, "evaluate", "--help")
    words = " ".join(out.split())
    assert "as evaluation.json, or with --lengths as evaluation-lengths.json" in words


def test_progress_is_shown_on_standard_error(runs: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    for more in (["--json"], []):
        code, out, err = run_command(capsys, "evaluate", str(runs), "--max-length", "20", *more)
        assert code == 0
        assert err.startswith(f"evaluate {runs / 'seed-0'} and 2 more (runs 1 to 3 of 3): ") and " symbols, " in err
        assert "symbols" not in out
    assert run_command(capsys, "evaluate", str(runs), "--max-length", "20", "--quiet")[2] == ""


def test_a_curve_fits_a_narrow_terminal(runs: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = run_command(capsys, "evaluate", str(runs), "--max-length", "60")
    lines = out.splitlines()
    [title] = [k for k, line in enumerate(lines) if line.startswith("accuracy in %,")]
    [axis] = [k for k, line in enumerate(lines) if line.startswith("    +===")]
    assert axis - title > 5
    assert 30 <= max(map(len, lines[title + 1 : axis + 2])) <= 40


def test_fresh_strings_and_a_note_about_an_unfinished_run(tmp_path: Path, capsys: Capture) -> None:
    create_run(tmp_path / "seed-0", get_machine("parity"), ended=None)
    arguments = ("evaluate", str(tmp_path), "--fresh", "--max-length", "9", "--seed", "3")
    code, out, _ = run_command(capsys, *arguments)
    assert code == 0
    assert "100.00" in out
    lines = out.splitlines()
    assert re.fullmatch(
        r"Note: .*seed-0: not finished: read as it was at step \d+ of [\d,]+", lines[1]
    )  # above the table
    assert "status" in lines[3].split() and "running" in lines[4].split()
    assert out.count("not finished") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["."], "there is no run folder in ."),
        ([], "the following arguments are required: DIR"),
        ([".", "--max-length", "x"], "'x' is not a whole number"),
        ([".", "--max-length", "0"], "'0' is not a whole number from 1 to 1,000,000"),
        ([".", "--max-length", "5", "--lengths", "5"], "not allowed with argument"),
        ([".", "--lengths", "2000000"], "'2000000' is not a whole number from 1 to 1,000,000"),
        ([".", "--lengths", "5;6"], "'5;6' is not a whole number"),
        ([".", "--lengths", ","], "lengths is empty"),
        ([".", "--strings", "0"], "'0' is not a whole number from 1 to 65,536"),
        ([".", "--device", "gpu"], "there is no device 'gpu'"),
        ([".", "--plot", "a.jpg"], "plots are written as .png"),
        ([".", "--plot", "nowhere/a.png"], "there is no folder nowhere"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_command(capsys, "evaluate", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_changed_task_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    path = create_run(tmp_path / "seed-0", get_machine("parity")).path / "config.json"
    edit_json(path, digest="0" * 16)
    code, _, err = run_command(capsys, "evaluate", str(tmp_path))
    assert code == 2
    assert "changed since this run was started" in err
    assert err.count("\n") == 1
