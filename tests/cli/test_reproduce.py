"""`sdssm reproduce` with several experiments, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The LSTM on parity is in both tables."""
    monkeypatch.chdir(tmp_path)
    Path("of mine").mkdir()
    Path("of mine/one.toml").write_text(HEAD.format("one", 1, '"parity"') + ROW.format("lstm"))
    rows = ROW.format("rnn") + ROW.format("lstm")
    Path("other.toml").write_text(HEAD.format("other", 2, '"parity", "cycle"') + rows)
    Path("times.toml").write_text(TIMES)
    return tmp_path


def made(name: str) -> list[str]:
    told = json.loads(Path("results", name, "spec.json").read_text())["made"]
    return [one["command"] for one in told]


def test_several(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ("reproduce", "times.toml", "of mine/one.toml", "other.toml", *CPU)
    monkeypatch.setattr("sdssm.experiments.planning.estimates._seconds_a_step", lambda *_: 1.0)
    code, out, err = run_command(capsys, *typed, "--dry-run")
    assert (code, err) == (0, "")
    assert "times\nNothing is trained for it.\n" in out and "Table 1\n1 runs: 1 missing\n" in out
    assert "Table 2\n4 runs: 4 missing; 1 of them above too\n" in out
    assert out.count("side by side") == 1 and "about 80 s; nothing was begun" in out
    assert not Path("results").exists()

    code, out, err = run_command(capsys, *typed, "--quiet")
    assert (code, err) == (0, "")
    places = [out.index(f"Tables in results/{name}") for name in ("one", "other", "times")]  # times when all is trained
    assert places == sorted(places)
    command = "sdssm reproduce times.toml one.toml other.toml"
    assert [made(name) for name in ("one", "other", "times")] == [[command]] * 3
    folders = [path.parent for path in Path("runs/experiments").rglob("config.json")]
    assert len(folders) == 4

    code, out, err = run_command(capsys, *typed, "--dry-run")
    assert code == 0 and out.endswith("\n\nNothing is left to train, or to evaluate.\n")


def test_what_is_narrowed_away_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ("reproduce", "of mine/one.toml", "other.toml", "times.toml", *CPU, "--quiet")
    code, out, err = run_command(capsys, *typed, "--models", "rnn", "--tasks", "cycle", "--budget", "0.5")
    assert (code, err) == (0, "sdssm: one is skipped: --models and --tasks leave nothing of it\n")
    assert "Table 1" not in out and "Table 2" in out
    assert sorted(path.name for path in Path("results").iterdir()) == ["other", "times"]
    assert made("other") == ["sdssm reproduce one.toml other.toml times.toml --budget 0.5 --models rnn --tasks cycle"]


def test_claims_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    """They are about what the others left."""
    Path("said.toml").write_text(CLAIMS)
    Path("said.csv").write_text("id,model,task,quantity,value,unit,source\nA,LSTM,parity,accuracy,100,%,a text\n")
    code, out, err = run_command(capsys, "reproduce", "said.toml", "times.toml", "of mine/one.toml", *CPU, "--quiet")
    assert (code, err) == (0, "")
    places = [out.index(f"Tables in results/{name}") for name in ("one", "times", "said")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("of mine/one.toml", "of mine/one.toml"), "two of the experiments are called one"),
        (("of mine/one.toml", "on.toml"), "cannot read on.toml"),
        (("of mine/one.toml", "tabel1"), "did you mean 'table1'"),
        (("of mine/one.toml", "other.toml", "--models", "lstn"), "none of these experiments has a model 'lstn'"),
        (("of mine/one.toml", "other.toml", "times.toml", "--tasks", "d30"), "none of these experiments has a task"),
        (("of mine/one.toml", "other.toml", "--models", "lstm", "--rows", "rnn"), "nothing is left of one, other"),
        (("of mine/one.toml", "other.toml", "--models", "rnn", "--reuse", "nowhere"), "there is no folder nowhere"),
        (("times.toml", "claims", "--budget", "0.5"), "times trains nothing, and --budget is about training"),
        (("times.toml", "runtime", "--dry-run"), "times trains nothing, and --dry-run is about training"),
        (("of mine/one.toml", "bad.toml"), "row 'lstm': lr is 'x'"),
        (("of mine/one.toml", "taken.toml"), "results/taken holds files of no experiment"),
        (("of mine/one.toml", "unsaid.toml"), "has no claim 'A'"),
        (("of mine/one.toml", "other.toml", "--device", "cuda:99"), "cuda:99"),
    ],
)
def test_bad_input_begins_nothing(
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


def test_without_training_what_is_finished_is_tabulated(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ("reproduce", "other.toml", *CPU, "--quiet")
    code, out, err = run_command(capsys, *typed, "--no-train")
    assert (code, out) == (2, "")
    assert err == "sdssm: nothing of it is finished in runs/experiments, and --no-train trains nothing; leave it out\n"

    code, out, err = run_command(capsys, *typed, "--models", "rnn", "--tasks", "cycle")
    assert (code, err) == (0, "")
    Path("results/other").rename("before")
    code, out, err = run_command(capsys, *typed, "--no-train")
    assert (code, err) == (0, "")
    assert out.endswith("\n3 of 4 runs are not finished; --no-train trains none\n")
    found, before = (json.loads(Path(folder, "results.json").read_text()) for folder in ("results/other", "before"))
    assert found["runs"] == before["runs"] and len(found["runs"]) == 1
    assert len(list(Path("runs/experiments").rglob("config.json"))) == 1

    code, out, err = run_command(capsys, "reproduce", "times.toml", "--no-train", *CPU)
    assert (code, err) == (
        2,
        "sdssm: times trains nothing, and --no-train is about training; leave it out\n",
    )


def test_tables_say_on_which_device_they_were_made(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run_command(capsys, "reproduce", "other.toml", *CPU, "--quiet")
    assert code == 0
    table = Path("results/other/table.md").read_text()
    assert "\n- 20 steps, 1 seed\n- trained on CPU\n" in table
    statuses = [path for path in Path("runs/experiments").rglob("status.json") if "lstm" in str(path)]
    for path in statuses:  # as if brought here from another machine
        path.write_text(json.dumps({**json.loads(path.read_text()), "device": "NVIDIA H200"}))
    code, _, _ = run_command(capsys, "reproduce", "other.toml", *CPU, "--quiet", "--no-train")
    assert code == 0
    table = Path("results/other/table.md").read_text()
    assert "\n- trained on CPU: rnn\n- trained on NVIDIA H200, evaluated on CPU: lstm\n" in table


def test_minutes_choose_the_budget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups of 20 steps, a second each: 80 seconds, of which 36 are asked for."""
    monkeypatch.setattr("sdssm.experiments.planning.estimates._seconds_a_step", lambda *_: 1.0)
    typed = ("reproduce", "other.toml", *CPU, "--quiet", "--minutes", "0.6")
    code, _, err = run_command(capsys, *typed)
    assert (code, err) == (0, "sdssm: --budget 0.45 takes about 0.6 minutes here\n")
    assert made("other") == ["sdssm reproduce other.toml --budget 0.45"]
    steps = {run["steps"] for run in json.loads(Path("results/other/results.json").read_text())["runs"]}
    assert steps == {9}
    assert len(list(Path("runs/experiments").rglob("config.json"))) == 4

    code, _, again = run_command(capsys, *typed)
    assert (code, again) == (0, err)
    assert len(list(Path("runs/experiments").rglob("config.json"))) == 4  # the same runs
    assert run_command(capsys, "reproduce", "of mine/one.toml", *CPU, "--quiet", "--minutes", "1000")[2] == (
        "sdssm: all steps take at most 1000 minutes here\n"
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--minutes", "5", "--budget", "0.1"), "--minutes chooses the budget, and --budget is one; leave one"),
        (("--minutes", "5", "--engine", "ray"), "--minutes measures this machine, and the engine trains on others"),
        (("--minutes", "soon"), "'soon' are no minutes; give a number above 0, as 10"),
        (("--minutes", "nan"), "'nan' are no minutes"),
    ],
)
def test_bad_minutes(more: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "reproduce", "other.toml", *CPU, *more)
    assert (code, out) == (2, "") and told in err and err.count("\n") == 1
    assert not Path("runs").exists()
