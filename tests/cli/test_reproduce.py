"""`sdssm reproduce` with several experiments, run as a command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from sdssm.experiments import list_experiments
from sdssm.experiments.planning.estimates import StepTime
from tests.edited_files import edit_json
from tests.experiments.test_runner import ONE_SECOND
from tests.programs import run_command

HEAD = 'name = "{}"\ntitle = "Table {}"\nseeds = 1\ntasks = [{}]\n[evaluate]\nmax_length = 8\nstrings = 16\n'
ROW = '[[rows]]\nmodel = "{}"\nsettings = {{ state = 4, batch = 8, steps = 20, train_length = 4 }}\n'
TIMES = (
    'name = "times"\nkind = "timing"\n[timing]\nlengths = [4]\nbatch = 2\nstate = 4\ndictionary = 2\nseconds = 0.01\n'
)
CLAIMS = (
    'name = "said"\nkind = "claims"\npublished = "said.csv"\n'
    '[[claims]]\nid = "A"\nspec = "table1"\nrows = ["RNN"]\ncolumns = ["parity"]\n'
)
CPU = ("--device", "cpu")
SOURCE = Path(__file__).parents[2] / "src" / "sdssm"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two experiments that share a run, the LSTM on parity, and one that measures times."""
    monkeypatch.chdir(tmp_path)
    Path("my files").mkdir()
    Path("my files/one.toml").write_text(HEAD.format("one", 1, '"parity"') + ROW.format("lstm"))
    rows = ROW.format("rnn") + ROW.format("lstm")
    Path("other.toml").write_text(HEAD.format("other", 2, '"parity", "cycle"') + rows)
    Path("times.toml").write_text(TIMES)
    return tmp_path


def recorded_commands(name: str) -> list[str]:
    """The commands that a results folder was made with."""
    return [made["command"] for made in json.loads(Path("results", name, "spec.json").read_text())["made"]]


def test_several_experiments_share_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ("reproduce", "times.toml", "my files/one.toml", "other.toml", *CPU)
    monkeypatch.setattr("sdssm.experiments.planning.estimates._time_steps", lambda *_: ONE_SECOND)
    code, out, err = run_command(capsys, *typed, "--dry-run")
    assert (code, err) == (0, "")
    assert "times\nNothing is trained for it.\n" in out and "Table 1\n1 run: 1 missing\n" in out
    assert "Table 2\n4 runs: 4 missing; 1 of them are listed above\n" in out
    assert out.count("side by side") == 1 and "about 64 to 100 s; nothing was started" in out
    assert not Path("results").exists()

    code, out, err = run_command(capsys, *typed, "--quiet")
    assert (code, err) == (0, "")
    places = [
        out.index(f"Tables in results/{name}") for name in ("one", "other", "times")
    ]  # timings after all training
    assert places == sorted(places)
    command = "sdssm reproduce times.toml one.toml other.toml"
    assert [recorded_commands(name) for name in ("one", "other", "times")] == [[command]] * 3
    folders = [path.parent for path in Path("runs/experiments").rglob("config.json")]
    assert len(folders) == 4

    code, out, err = run_command(capsys, *typed, "--dry-run")
    assert code == 0 and out.endswith("\n\nNothing is left to train, or to evaluate.\n")


@pytest.mark.parametrize("names", [("runtime",), ("claims",), ("times.toml", "runtime")])
def test_dry_run_of_experiments_that_train_nothing(names: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "reproduce", *names, "--dry-run", *CPU)
    assert (code, err) == (0, "")
    assert out.count("\nNothing is trained for it.\n") == len(names)
    assert not Path("results").exists()


def test_an_experiment_of_which_nothing_is_left_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ("reproduce", "my files/one.toml", "other.toml", "times.toml", *CPU, "--quiet")
    code, out, err = run_command(capsys, *typed, "--models", "rnn", "--tasks", "cycle", "--budget", "0.5")
    assert (code, err) == (0, "sdssm: one is skipped: --models and --tasks leave nothing of it\n")
    assert "Table 1" not in out and "Table 2" in out
    assert sorted(path.name for path in Path("results").iterdir()) == ["other", "times"]
    assert recorded_commands("other") == [
        "sdssm reproduce one.toml other.toml times.toml --budget 0.5 --models rnn --tasks cycle"
    ]


def test_the_table_shows_what_was_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files keep the runs of earlier commands."""
    monkeypatch.setattr("sdssm.cli.tables.find_spec", lambda _: None)  # plots take seconds
    typed = ("reproduce", "other.toml", *CPU, "--quiet")
    code, out, err = run_command(capsys, *typed, "--models", "rnn", "--tasks", "cycle")
    assert (code, err) == (0, "")
    grid = out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in grid[1:]] == ["model", "rnn", "best", "chance"] and grid[1].split() == [
        "model",
        "cycle",
    ]
    assert "parity" not in out and "lstm" not in out and "other commands" not in out
    table = Path("results/other/table.md").read_text()
    assert "| model | cycle |\n" in table and "- not trained yet, and left out: lstm\n" in table

    code, out, err = run_command(capsys, *typed, "--tasks", "parity", "--seeds", "0,1")
    assert (code, err) == (0, "")
    grid = out.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in grid[1:]] == ["model", "rnn", "lstm", "best", "chance"] and "cycle" not in out
    assert out.endswith("\nThey also hold 1 run of other commands.\n")
    table = Path("results/other/table.md").read_text()
    assert "| model | parity | cycle |\n" in table and "not trained" not in table

    code, out, err = run_command(capsys, *typed, "--tasks", "parity", "--seeds", "1", "--models", "lstm")
    assert code == 0 and "20 steps, 1 seed\n" in out
    assert len(json.loads(Path("results/other/results.json").read_text())["runs"]) == 5
    # A shorter training is shown because it was asked for, and does not replace the longer one in the files.
    code, out, err = run_command(capsys, *typed, "--rows", "lstm", "--tasks", "parity", "--budget", "0.5")
    assert code == 0 and "10 steps, 1 seed\n" in out
    assert out.endswith("\nWhere the folder has runs with more steps, its tables show these.\n")
    assert {run["steps"] for run in json.loads(Path("results/other/results.json").read_text())["runs"]} == {20}


def test_groups_of_a_dry_run_differ(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of one model on one task are named by their settings, and the time says on what it is based."""
    wide = ROW.format("lstm").replace("state = 4", "state = 6") + 'label = "wide"\n'
    Path("widths.toml").write_text(HEAD.format("widths", 3, '"parity"') + ROW.format("lstm") + wide)
    typed = ("reproduce", "widths.toml", *CPU, "--dry-run")
    estimates = import_module("sdssm.experiments.planning.estimates")
    estimate_plan = estimates.estimate_plan
    monkeypatch.setattr(estimates, "estimate_plan", partial(estimate_plan, limit=0.0))  # no time to measure
    code, out, err = run_command(capsys, *typed)
    assert (code, err) == (0, "") and "without evaluation: unknown; nothing was started" in out
    assert "-: not measured, because a dry run measures for at most 30 s; run it again to measure more." in out

    times = iter([StepTime.around(86_400.0, 100_000.0, 172_800.0), ONE_SECOND])
    monkeypatch.setattr(estimates, "_time_steps", lambda *_: next(times))
    monkeypatch.setattr(estimates, "estimate_plan", estimate_plan)
    code, out, err = run_command(capsys, *typed)
    assert (code, err) == (0, "") and "not measured" not in out
    assert out.splitlines()[3:6] == [
        "side by side             runs  steps left           time",
        "lstm on parity, state=4     1          20  19 to 40 days",
        "lstm on parity, state=6     1          20     16 to 25 s",
    ]
    assert "without evaluation: about 19 to 40 days; nothing was started" in out
    assert "Basis: a few training steps of each group, timed on CPU and stored in runs/experiments/calibration" in out


def test_labels_in_errors_are_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "reproduce", "two-layers", "--rows", "x", *CPU)
    assert code == 2 and "no row 'x'; known: 'S4, 1 layer', 'S4, 2 layers', 'S4D, 1 layer'" in err
    assert err.count("\n") == 1


def test_evaluations_show_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.progress.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("sdssm.progress.PIPE_SECONDS", 0.0)
    monkeypatch.setattr("sdssm.cli.tables.find_spec", lambda _: None)
    code, _, err = run_command(capsys, "reproduce", "other.toml", *CPU, "--tasks", "parity")
    assert code == 0
    assert "evaluate other: 0 of 2 evaluations, 0:00 so far\n" in err and "evaluate other: 2 of 2 evaluations" in err
    assert "evaluate runs" not in err  # the evaluation of a run reports to the line of the experiment
    code, _, err = run_command(capsys, "reproduce", "times.toml", *CPU)
    assert code == 0 and "time times: 100 %" in err
    assert run_command(capsys, "reproduce", "times.toml", *CPU, "--quiet")[2] == ""


def test_the_list_needs_no_torch() -> None:
    """The package itself is replaced by an empty one, to import nothing but what the list needs."""
    program = f"""
import sys, types
package = types.ModuleType("sdssm")
package.__path__ = [{str(SOURCE)!r}]
sys.modules["sdssm"], sys.modules["torch"], sys.modules["numpy"] = package, None, None
import sdssm.formatting, sdssm.display, sdssm.experiments
from sdssm.experiments.specs.catalogue import summarise_experiments
print(len(summarise_experiments()), len(sdssm.experiments.list_experiments()))
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.stdout.split() == [str(len(list_experiments()))] * 2, process.stderr


def test_claims_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    """They compare the results of the other experiments."""
    Path("said.toml").write_text(CLAIMS)
    Path("said.csv").write_text("id,model,task,quantity,value,unit,source\nA,LSTM,parity,accuracy,100,%,a text\n")
    code, out, err = run_command(capsys, "reproduce", "said.toml", "times.toml", "my files/one.toml", *CPU, "--quiet")
    assert (code, err) == (0, "")
    places = [out.index(f"Tables in results/{name}") for name in ("one", "times", "said")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("my files/one.toml", "my files/one.toml"), "two of the experiments are called one"),
        (("my files/one.toml", "on.toml"), "cannot read on.toml"),
        (("othr.toml",), "did you mean other.toml?\n"),
        (("my files/one.toml", "tabel1"), "did you mean 'table1'"),
        (("my files/one.toml", "other.toml", "--models", "lstn"), "none of these experiments has a model 'lstn'"),
        (("my files/one.toml", "other.toml", "times.toml", "--tasks", "d30"), "none of these experiments has a task"),
        (("my files/one.toml", "other.toml", "--models", "lstm", "--rows", "rnn"), "nothing is left of one, other"),
        (("my files/one.toml", "other.toml", "--models", "rnn", "--reuse", "nowhere"), "there is no folder nowhere"),
        (("times.toml", "claims", "--budget", "0.5"), "times trains nothing, and --budget is about training"),
        (("my files/one.toml", "bad.toml"), "row 'lstm': lr is 'x'"),
        (("my files/one.toml", "taken.toml"), "results/taken holds files of no experiment"),
        (("my files/one.toml", "--results", "other.toml"), "other.toml is a file, and results need a folder"),
        (
            ("my files/one.toml", "--workers", "0"),
            "argument --workers: '0' is not a whole number from 1 to 1,024",
        ),
        (("my files/one.toml", "unsaid.toml"), "has no claim 'A'"),
        (("my files/one.toml", "other.toml", "--device", "cuda:99"), "cuda:99"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    Path("bad.toml").write_text(HEAD.format("bad", 3, '"parity"') + ROW.format("lstm") + 'grid = { lr = [0.1, "x"] }\n')
    Path("taken.toml").write_text(HEAD.format("taken", 3, '"parity"') + ROW.format("lstm"))
    Path("results/taken").mkdir(parents=True)
    Path("results/taken/notes.txt").write_text("mine")
    Path("unsaid.toml").write_text(CLAIMS)
    Path("said.csv").write_text("id,model,task,quantity,value,unit,source\n")
    before = sorted(folder.rglob("*"))
    code, out, err = run_command(capsys, "reproduce", *arguments)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_no_train_tabulates_finished_runs(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ("reproduce", "other.toml", *CPU, "--quiet")
    code, out, err = run_command(capsys, *typed, "--no-train")
    assert (code, out) == (2, "")
    assert err == (
        "sdssm: runs/experiments holds no finished run of it, results no results, and --no-train trains nothing; "
        "leave out --no-train\n"
    )

    code, out, err = run_command(capsys, *typed, "--models", "rnn", "--tasks", "cycle")
    assert (code, err) == (0, "")
    Path("results/other").rename("before")
    code, out, err = run_command(capsys, *typed, "--no-train")
    assert (code, err) == (0, "")
    assert out.endswith("\n3 of 4 runs are not finished; --no-train trains none\n")
    after, before = (json.loads(Path(folder, "results.json").read_text()) for folder in ("results/other", "before"))
    assert after["runs"] == before["runs"] and len(after["runs"]) == 1
    assert len(list(Path("runs/experiments").rglob("config.json"))) == 1

    stored = Path("results/other/results.json").read_bytes()
    shutil.rmtree("runs")  # the results alone are enough to show them again
    Path("results/other/table.md").unlink()
    code, out, err = run_command(capsys, *typed, "--no-train")
    assert (code, err) == (0, "")
    assert out.endswith("all from results/other/results.json; no finished run is here\n")
    assert Path("results/other/results.json").read_bytes() == stored and Path("results/other/table.md").exists()

    Path("results/other/results.json").write_bytes(stored[:40])
    assert run_command(capsys, *typed, "--no-train") == (
        2,
        "",
        "sdssm: results/other/results.json is damaged; restore it, or leave out --no-train to write it again\n",
    )

    code, out, err = run_command(capsys, "reproduce", "times.toml", "--no-train", *CPU)
    assert (code, err) == (
        2,
        "sdssm: times trains nothing, and --no-train is about training; leave it out\n",
    )


def test_tables_name_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run_command(capsys, "reproduce", "other.toml", *CPU, "--quiet")
    assert code == 0
    table = Path("results/other/table.md").read_text()
    assert "\n- 20 steps, 1 seed\n- trained on CPU\n" in table
    statuses = [path for path in Path("runs/experiments").rglob("status.json") if "lstm" in str(path)]
    for path in statuses:  # as if they came from another machine
        edit_json(path, device="NVIDIA H200")
    code, _, _ = run_command(capsys, "reproduce", "other.toml", *CPU, "--quiet", "--no-train")
    assert code == 0
    table = Path("results/other/table.md").read_text()
    assert "\n- trained on CPU: rnn\n- trained on NVIDIA H200, evaluated on CPU: lstm\n" in table


def test_minutes_choose_the_budget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups of 20 steps, a second each: 80 seconds, of which --minutes gives 36."""
    monkeypatch.setattr("sdssm.experiments.planning.estimates._time_steps", lambda *_: ONE_SECOND)
    typed = ("reproduce", "other.toml", *CPU, "--quiet", "--minutes", "0.6")
    code, _, err = run_command(capsys, *typed)
    assert (code, err) == (0, "sdssm: --budget 0.45 takes about 0.6 minutes on this machine\n")
    code, _, few = run_command(capsys, "reproduce", "other.toml", *CPU, "--quiet", "--minutes", "0.1", "--dry-run")
    assert code == 0 and few.endswith(
        "sdssm: warning: that is 2 of 20 steps; most models need far more to learn, so expect accuracies near chance\n"
    )
    assert recorded_commands("other") == ["sdssm reproduce other.toml --budget 0.45"]
    steps = {run["steps"] for run in json.loads(Path("results/other/results.json").read_text())["runs"]}
    assert steps == {9}
    assert len(list(Path("runs/experiments").rglob("config.json"))) == 4

    code, _, again = run_command(capsys, *typed)
    assert (code, again) == (0, err)
    assert len(list(Path("runs/experiments").rglob("config.json"))) == 4  # the same runs
    assert run_command(capsys, "reproduce", "my files/one.toml", *CPU, "--quiet", "--minutes", "1000")[2] == (
        "sdssm: all steps take at most 1000 minutes on this machine\n"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("--minutes", "5", "--budget", "0.1"),
            "--minutes chooses the budget, so --budget cannot be given too; leave one",
        ),
        (("--minutes", "5", "--engine", "ray"), "--minutes measures this machine, but the engine trains on others"),
        (("--minutes", "soon"), "'soon' is not a number of minutes; give a number above 0, such as 10"),
        (("--minutes", "nan"), "'nan' is not a number of minutes"),
    ],
)
def test_bad_minutes_are_reported_in_one_line(
    more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_command(capsys, "reproduce", "other.toml", *CPU, *more)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    assert not Path("runs").exists()
