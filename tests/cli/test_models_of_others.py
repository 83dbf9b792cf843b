"""Models of others on the command line: named by an import path, imported only if the user asks for it."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from sdssm.models import registry
from sdssm.runs import RunFolder
from tests.programs import run_command
from tests.strangers import NETS, PACKAGE, SUM, forget_models, is_imported, stranger

__all__ = ["stranger"]
Capture = pytest.CaptureFixture[str]
SMALL = ("--device", "cpu", "--set", "batch=8", "train_length=6", "state=3")
TRAIN = ("train", "parity", "--model", SUM, "--steps", "4", "--quiet", "--out", "runs", *SMALL)


def refused(capsys: Capture, *arguments: str) -> str:
    """Return the one line of a command that is refused."""
    code, out, err = run_command(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), (arguments, out, err)
    return err


def files() -> list[Path]:
    return sorted(Path().rglob("*"))


# -- what there is -----------------------------------------------------------------------------------------------------


def test_a_model_and_its_options_are_shown(stranger: Path, capsys: Capture) -> None:
    code, out, err = run_command(capsys, "models", SUM, "--task", "parity")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["origin"][1] == SUM and rows["parameters"][1] == str(2 * 4 + 4 * 2 + 2)
    assert rows["gain"][1] == "1.0" and "has no docstring" in out
    code, out, err = run_command(capsys, "settings", SUM, "--json")
    listed = json.loads(out)
    assert (code, err, [row["name"] for row in listed["options"]]) == (0, "", ["state", "gain"])
    training = {row["name"] for row in listed["training"]}
    assert {"steps", "lr"} <= training and "attraction" not in training  # only our classifier has class centres
    code, out, err = run_command(capsys, "settings", SUM)
    assert (code, err) == (0, "") and out.startswith(f"Options of {SUM}\n")
    assert f"sdssm train TASK --model {SUM} --set NAME=VALUE" in " ".join(out.split())


def install(monkeypatch: pytest.MonkeyPatch, **paths: str) -> None:
    """Add entry points as installed plug-ins have them."""
    points = EntryPoints([EntryPoint(name, path, registry.ENTRY_POINTS) for name, path in paths.items()])
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_plugins_are_listed_with_their_origin_and_a_broken_one_does_not_hide_others(
    stranger: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, summing=SUM, broken=f"{PACKAGE}.broken:Net", odd=f"{PACKAGE}.misspelt:Sum")
    code, out, err = run_command(capsys, "models", "--task", "parity")
    assert code == 0 and err.count("\n") == 2 and "a_module_that_is_missing" in err and "broken is not listed" in err
    assert "defaults of the model 'odd': there is no setting 'lrr'; did you mean 'lr'?" in err and "odd is not" in err
    assert any(line.split()[0] == "summing" and line.split()[-1] == SUM for line in out.splitlines() if line)
    assert any(line.split()[:1] == ["lstm"] and line.split()[-1] == "sdssm" for line in out.splitlines())


def test_plugins_are_completed_and_suggested_without_being_imported(
    stranger: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, summing=SUM)
    assert " summing" in run_command(capsys, "completion", "bash")[1]
    assert " summing" in run_command(capsys, "completion", "fish")[1]
    assert "did you mean 'summing'?" in refused(capsys, "train", "parity", "--model", "suming")
    assert "did you mean 'summing'?" in refused(capsys, "models", "suming")
    assert "did you mean 'summing' or 'sampling'?" in refused(capsys, "settings", "suming")  # also a setting
    assert "summing" in run_command(capsys, "settings")[1]
    assert not is_imported() and files() == []


# -- trust -------------------------------------------------------------------------------------------------------------


def test_training_and_what_needs_trust_afterwards(stranger: Path, capsys: Capture) -> None:
    code, out, err = run_command(capsys, *TRAIN)
    assert (code, err) == (0, "") and "chance 50 %" in out
    (run,) = Path("runs").iterdir()
    assert json.loads((run / "config.json").read_text())["model"] == {
        "name": SUM,
        "import_path": SUM,
        "options": {"state": 3, "gain": 1.0},
    }
    forget_models()
    before = files()
    code, out, _ = run_command(capsys, "runs")
    assert code == 0 and SUM in out
    for arguments in (
        ("evaluate", "runs", "--max-length", "8", "--device", "cpu"),
        ("extract", str(run), "--out", "a.json"),
        ("certify", str(run)),
        ("horizon", str(run)),
        ("snap", str(run), "--out", "exact"),
    ):
        line = refused(capsys, *arguments)
        assert f"would import {SUM}" in line and f"add --model {SUM}, or --trust" in line
    code, out, err = run_command(capsys, "train", "--resume", "runs")
    assert (code, err) == (0, "") and out.startswith("Nothing to do: all 1 runs")  # which needs no code
    assert not is_imported() and files() == before
    evaluate = ("evaluate", "runs", "--max-length", "8", "--strings", "16", "--device", "cpu", "--json")
    for allowed in (("--trust",), ("--model", SUM)):
        forget_models()
        code, out, err = run_command(capsys, *evaluate, *allowed)
        (result,) = json.loads(out)["runs"]
        assert (code, err, result["model"], result["chance"]) == (0, "", SUM, 50.0)
    forget_models()
    assert f"holds the model {SUM}, but --model names lstm" in refused(capsys, "certify", str(run), "--model", "lstm")


def test_resuming_with_trust_or_with_the_model(stranger: Path, capsys: Capture) -> None:
    whole = ("--steps", "6", "--quiet", *SMALL, "checkpoint_every=2")
    assert run_command(capsys, "train", "parity", "--model", SUM, "--out", "whole", *whole)[0] == 0
    for number, allowed in enumerate((("--trust",), ("--model", SUM))):
        assert run_command(capsys, "train", "parity", "--model", SUM, "--out", f"part-{number}", *whole)[0] == 0
        run = Path(f"part-{number}/seed-0")
        cut_off(run)
        forget_models()
        assert "would import" in refused(capsys, "train", "--resume", str(run), "--device", "cpu")
        code, _, err = run_command(capsys, "train", "--resume", str(run), "--quiet", "--device", "cpu", *allowed)
        assert (code, err, RunFolder.open(run).status) == (0, "", "finished")
        assert (run / "model.safetensors").read_bytes() == Path("whole/seed-0/model.safetensors").read_bytes()
    cut_off(Path("whole/seed-0"))
    for other in ("lstm", SUM.replace("Sum", "Ahead")):
        line = refused(capsys, "train", "--resume", "whole", "--model", other)
        assert f"holds the model {SUM}, but --model names {other}; write --model {SUM}" in line
    assert "--trust is about the folders" in refused(capsys, *TRAIN, "--trust")


def test_another_model_than_that_of_the_folder_is_refused(stranger: Path, capsys: Capture) -> None:
    assert run_command(capsys, *TRAIN)[0] == 0
    for arguments in (("--model", "lstm", "--trust"), ("--model", f"{PACKAGE}.nets:Ahead", "--trust")):
        line = refused(capsys, "evaluate", "runs", "--device", "cpu", *arguments)
        assert f"runs/seed-0 holds the model {SUM}, but --model names {arguments[1]}" in line
    shutil.copytree("runs", "moved/sum")
    assert run_command(capsys, "train", "parity", "--steps", "1", "--quiet", "--out", "moved/rnn", *SMALL[:4])[0] == 0
    forget_models()
    code, out, err = run_command(capsys, "evaluate", "moved", "--max-length", "4", "--device", "cpu", "--model", SUM)
    assert (code, err) == (0, "") and "sd-ssm" in out  # models of the catalogue beside it need no permission


def test_a_file_is_named_again_after_it_has_moved(stranger: Path, capsys: Capture) -> None:
    Path("old.py").write_text(NETS)
    assert run_command(capsys, *TRAIN[:2], "--model", "old.py:Sum", *TRAIN[4:])[0] == 0
    Path("old.py").rename("new.py")
    forget_models()
    evaluate = ("evaluate", "runs", "--max-length", "4", "--device", "cpu", "--json")
    assert "old.py:Sum" in refused(capsys, *evaluate)
    code, out, err = run_command(capsys, *evaluate, "--model", "new.py:Sum")
    assert (code, err, json.loads(out)["runs"][0]["model"]) == (0, "", "old.py:Sum")


def cut_off(run: Path) -> None:
    """Make a finished run look as if its process was killed after step 4."""
    (run / "model.safetensors").unlink()
    for path in (run / "checkpoints").iterdir():
        if int(path.stem.partition("-")[2]) > 4:
            path.unlink()
    status = json.loads((run / "status.json").read_text())
    del status["checksum"]  # edited on purpose
    (run / "status.json").write_text(json.dumps({**status, "status": "running", "step": 4}))


def test_a_config_cannot_make_a_command_import_code_by_its_name(stranger: Path, capsys: Capture) -> None:
    assert run_command(capsys, "train", "parity", "--steps", "1", "--quiet", "--out", "runs", *SMALL[:4])[0] == 0
    path = Path("runs/seed-0/config.json")
    config = json.loads(path.read_text())
    del config["checksum"]  # edited on purpose
    for model in ({**config["model"], "name": SUM}, {"name": SUM, "options": {}}, {"name": SUM}):
        path.write_text(json.dumps({**config, "model": model}))
        for arguments in (("runs",), ("evaluate", "runs"), ("train", "--resume", "runs"), ("certify", "runs")):
            run_command(capsys, *arguments, *([] if arguments[0] == "runs" else ["--trust"]))
            assert not is_imported(), (model, arguments)


# -- bad input ---------------------------------------------------------------------------------------------------------

BAD = {
    f"{PACKAGE}.nets:Wide": "it must be (3, 7, 2)",
    f"{PACKAGE}.nets:Ahead": "is not causal",
    f"{PACKAGE}.nets:Nan": "is not finite",
    f"{PACKAGE}.nets:OneSize": "the first two must be the number of symbols and of classes",
    f"{PACKAGE}.nets:value": "pass a class or a function",
    f"{PACKAGE}.nets:Aheda": "has no 'Aheda'; did you mean 'Ahead'?",
    f"{PACKAGE}.nets.Sum": f"did you mean the import path {SUM}?",
    f"{PACKAGE}.nets:": "write package.module:Name",
    f"{PACKAGE}.broken:Net": "cannot be imported: ModuleNotFoundError",
    f"{PACKAGE}.ends:Net": "cannot be imported: SystemExit",
    f"{PACKAGE}.taken:Sum": "'lstm' is already taken",
    "missing_package:Net": "there is no module 'missing_package'",
    "missing/file.py:Net": "does not exist",
}


@pytest.mark.parametrize("model", BAD, ids=[path.rpartition("/")[2] for path in BAD])
def test_bad_models_are_refused_in_one_line_and_nothing_is_written(
    model: str, stranger: Path, capsys: Capture, tmp_path: Path
) -> None:
    spec = tmp_path / "bad.toml"
    spec.write_text(f'name = "bad"\n[[rows]]\nmodel = "{model}"\ntasks = ["parity"]\n')
    for arguments in (
        ("train", "parity", "--device", "cpu", "--model", model),
        ("sweep", "parity", "--device", "cpu", "--grid", "lr=1e-3,1e-4", "--model", model),
        ("reproduce", str(spec), "--device", "cpu"),
        ("models", model, "--task", "parity"),
    ):
        assert BAD[model] in refused(capsys, *arguments)
    assert files() == []


def test_an_unknown_option_names_the_nearest(stranger: Path, capsys: Capture) -> None:
    assert f"did you mean the import path {SUM}?" in refused(capsys, "settings", SUM.replace(":", "."))
    line = refused(capsys, "train", "parity", "--model", SUM, "--set", "stat=3")
    assert "there is no setting 'stat'; did you mean 'state'?" in line
    assert "gain is 'loud'; it must be a finite number" in refused(
        capsys, "train", "parity", "--model", SUM, "--set", "gain=loud"
    )
    assert files() == []
