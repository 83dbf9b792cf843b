"""A saved model keeps its task; results print as tables; every function takes every kind of model and machine."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sdssm
from sdssm import files
from sdssm.automata import Machine, get_machine, write_machine
from sdssm.cli import main
from sdssm.cli.parser import make_parser
from sdssm.errors import AutomatonError, ModelError, OutputError, SdssmError
from sdssm.exact import Certificate, certify, extract, horizon, snap
from sdssm.exact.certification.certifier import describe_misclassified
from sdssm.exact.certification.linear_system import build_system
from sdssm.exact.compilation import compile as compiled
from sdssm.exact.errors import ExactError, WrongMachineWarning
from sdssm.exact.extraction import Fidelity
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.models.saved import load_saved_task
from sdssm.runs import load
from sdssm.tasks import Task, get_task
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import create_run

# -- the task of a saved model -----------------------------------------------------------------------------------------


def test_a_saved_model_keeps_its_task(tmp_path: Path) -> None:
    for name in ("regex:(ab|cd)*", "arithmetic"):
        compiled(name).save(tmp_path, overwrite=True)
        task, expected = load_saved_task(tmp_path), get_task(name)
        assert task is not None and (task.name, task.digest) == (name, expected.digest)
        assert task.machine.symbols == expected.machine.symbols and task.test_length == expected.test_length
        model = load(tmp_path)
        assert model.task is not None and model.task.digest == expected.digest
        assert extract(tmp_path, lengths=[9], strings=16).machine.symbols == expected.machine.symbols
        assert certify(tmp_path).horizon is None and horizon(tmp_path, max_length=20, strings=4).task == name
    assert main(["evaluate", str(tmp_path), "--lengths", "9", "--strings", "16", "--device", "cpu"]) == 0


def test_a_folder_without_a_task_loads_as_before(tmp_path: Path) -> None:
    exact(get_machine("parity")).save(tmp_path)
    assert not (tmp_path / "task.json").exists() and load(tmp_path).task is None and load_saved_task(tmp_path) is None
    compiled("parity").save(tmp_path, overwrite=True)
    assert load(tmp_path).task is not None
    exact(get_machine("d4")).save(tmp_path, overwrite=True)  # the task of the replaced model is gone
    assert load(tmp_path).task is None
    for text in ("{", '{"name": "a5"}', '{"name": "a", "machine": {"table": [[7]]}, "valid": null}'):
        (tmp_path / "task.json").write_text(text)
        with pytest.raises(ModelError, match="does not describe a task"):
            load(tmp_path)


def test_models_and_files_of_others_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, folder, out = compiled("parity"), tmp_path / "model", str(tmp_path / "model")
    model.save(folder)
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(OutputError, match="already holds a model; replace it with overwrite=True"):
        compiled("d4").save(folder)
    for command in (["compile", "d4"], ["snap", out]):
        assert main([*command, "--out", out]) == 2
        assert "already holds a model; replace it with --overwrite" in capsys.readouterr().err
    assert (folder / "model.safetensors").read_bytes() == before
    snap(model).save(folder, overwrite=True)
    assert main(["compile", "d4", "--out", out, "--overwrite", "--length", "9", "--quiet"]) == 0
    assert load(folder).n_classes == 8 and not (folder / "extraction.json").exists()
    for name in ("config.json", "model.safetensors", "task.json"):
        stranger = tmp_path / f"with {name}"
        stranger.mkdir()
        (stranger / name).write_text('{"mine": 1}')
        assert main(["compile", "d4", "--out", str(stranger), "--overwrite"]) == 2
        assert f"holds a {name} of another program" in capsys.readouterr().err
        assert (stranger / name).read_text() == '{"mine": 1}'


def test_saving_removes_no_file_of_the_user(tmp_path: Path) -> None:
    """Results are removed only with the model that they describe."""
    mine = {name: f"my {name}" for name in ("extraction.json", "evaluation.json", "evaluation-2024.json")}
    for name, text in mine.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(OutputError, match=r"holds another extraction\.json"):
        snap(compiled("parity")).save(tmp_path)
    assert main(["snap", str(tmp_path), "--out", str(tmp_path)]) == 2
    compiled("parity").save(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in mine} == mine
    snap(compiled("d4")).save(tmp_path, overwrite=True)
    compiled("parity").save(tmp_path, overwrite=True)
    assert not (tmp_path / "extraction.json").exists() and (tmp_path / "evaluation.json").exists()


def test_a_full_disk_leaves_the_model_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snap(compiled("parity")).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"config.json", "model.safetensors", "task.json", "extraction.json"}
    write_part = files._write_part

    def write_until_full(part: str, folder: int | None, data: bytes, durable: bool) -> None:
        if Path(part).name.startswith(full):
            raise OSError(ENOSPC, "no space left")
        write_part(part, folder, data, durable)

    monkeypatch.setattr(files, "_write_part", write_until_full)
    for full in before:
        if full != "extraction.json":
            with pytest.raises(OutputError, match="the disk is full"):
                compiled("d4").save(tmp_path, overwrite=True)
            assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# -- certify -----------------------------------------------------------------------------------------------------------


def test_a_misclassified_string_is_reported_in_plain_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled("d4").save(tmp_path / "d4")
    settings = ModelSettings(mixer=SelectiveDenseSettings(state=8))
    untrained = Classifier(settings, 2, 8, generator=torch.Generator().manual_seed(0))
    untrained.task = get_task("d4")
    untrained.save(tmp_path / "untrained")
    assert main(["certify", str(tmp_path / "d4"), "--strict"]) == 0
    capsys.readouterr()
    for name, task in (("d4", "c2xc4"), ("untrained", "d4")):
        words = ["certify", str(tmp_path / name), "--task", task, "--quiet", "--strings", "500"]
        assert main(words) == 0  # the exit code is 1 only if that is asked for
        out = capsys.readouterr().out
        assert f"{task}: the model misclassifies a string of length" in out
        assert "has the label" in out and "but the model predicts" in out
        assert "None" not in out and "inf" not in out and "subspace" not in out
        with pytest.raises(SystemExit) as caught:
            main([*words, "--strict"])
        assert caught.value.code == 1
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        values = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
        wrong, machine = values["misclassified"], get_machine(task)
        assert wrong["correct"] == machine.output(values["counterexample"]) != wrong["predicted"]
        logits = load(tmp_path / name)(torch.tensor([values["counterexample"]]))
        assert wrong["predicted"] == int(logits[0, -1].argmax())
    assert main(["certify", str(tmp_path / "d4"), "--task", "a5"]) == 2
    assert "has 2 symbols and 8 classes, but a5 has 2 and 60" in capsys.readouterr().err
    with pytest.raises(SdssmError, match="calls a symbol 'toggle' that other calls 'x'"):
        certify(compiled("d4"), Task(name="other", machine=Machine(table=get_machine("d4").table, symbols=["x", "y"])))


def test_nothing_proved_is_strict_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing = Certificate(0, 0, 0, False, "the method does not apply")
    compiled("parity").save(tmp_path / "model")
    monkeypatch.setattr("sdssm.exact.certify", lambda *args, **options: nothing)
    with pytest.raises(SystemExit) as caught:
        main(["certify", str(tmp_path / "model"), "--strict"])
    assert caught.value.code == 1
    assert "certificate: nothing is proved" in str(nothing)
    assert "Nothing is proved because the method does not apply." in str(nothing)


def test_the_sentence_says_if_only_exact_arithmetic_misclassifies() -> None:
    model, machine = compiled("parity"), get_machine("parity")
    system = build_system(model, machine, None)
    wrong = describe_misclassified(model, replace(system, rows=system.rows[::-1]), machine, (1, 0))
    assert (wrong.predicted, wrong.correct, wrong.computed_exactly) == (0, 1, True)
    assert wrong.describe() == "the string '10' (length 2) has the label 1, but the model, computed exactly, predicts 0"


# -- snap --------------------------------------------------------------------------------------------------------------


def test_snap_warns_of_a_wrong_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = exact(tiring_parity(5))
    with pytest.warns(WrongMachineWarning, match="where the extracted machine has the output 0 and the task 1"):
        snapped = snap(wrong, task="parity")
    assert snapped.difference == (1,) * 5 and str(snapped).startswith("WARNING: the extracted machine is not")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert snap(wrong).difference is None  # no task is known
        assert snap(compiled("parity")).difference is None
    run = create_run(tmp_path / "run", tiring_parity(5), task="parity")
    assert main(["snap", str(run.path), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "sdssm: warning: the extracted machine is not the machine of parity" in captured.err  # after progress lines
    assert captured.out.startswith("WARNING: ")


# -- extract -----------------------------------------------------------------------------------------------------------


def test_the_suffix_decides_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled("parity").save(tmp_path / "parity")
    words = ["extract", str(tmp_path / "parity"), "--lengths", "5", "--strings", "8"]
    for option, name in (("--svg", "x.png"), ("--out", "x.txt")):
        assert main([*words, option, str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert f"{option} {tmp_path / name}: " in error and f"use {option} {tmp_path / 'x.'}" in error
        assert not (tmp_path / name).exists()
    assert main([*words, "--svg", str(tmp_path / "x.dot")]) == 0
    assert (tmp_path / "x.dot").read_text().startswith("digraph")


def test_a_machine_too_large_to_draw_is_reported_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(machine: Machine, *, title: str | None) -> str:
        raise AutomatonError("a diagram shows at most 200 states and this machine has 201; draw machine.minimise()")

    monkeypatch.setattr("sdssm.automata.draw", refuse)
    compiled("z7").save(tmp_path / "z7")
    words = ["extract", str(tmp_path / "z7"), "--lengths", "5", "--strings", "8"]
    assert main([*words, "--svg", str(tmp_path / "x.svg"), "--out", str(tmp_path / "x.json")]) == 2
    captured = capsys.readouterr()
    assert "machine of 7 states" in captured.out and (tmp_path / "x.json").exists()
    assert "no state diagram: a diagram shows at most 200 states" in captured.err and "--out FILE.json" in captured.err
    assert not (tmp_path / "x.svg").exists()


# -- horizon -----------------------------------------------------------------------------------------------------------


def test_nothing_is_predicted_for_a_model_that_has_failed() -> None:
    model = Classifier(ModelSettings(), 2, 2, generator=torch.Generator().manual_seed(0))
    result = horizon(model, task="parity", max_length=8_192, strings=16)
    assert result.first_failure is not None and result.predicted is None
    text = str(result)
    assert "Predicted" not in text and f"The model fails at length {result.first_failure.length}: " in text
    assert "Chance of a random guess: 50 %" in text


# -- one calling convention --------------------------------------------------------------------------------------------


def test_every_kind_of_model_and_machine(tmp_path: Path) -> None:
    run = create_run(tmp_path / "runs" / "seed-0", get_machine("parity"), task="parity")
    for source in (run, [run], str(run.path), run.path, tmp_path / "runs", compiled("parity")):
        assert certify(source).horizon is None
    for source in (run, [run], str(run.path), compiled("parity")):
        assert extract(source, lengths=[5], strings=8).difference is None
        assert horizon(source, max_length=10, strings=4).reached
    assert snap([run]).difference is None and snap(run.path).difference is None
    path, machine = tmp_path / "my.json", get_machine("parity")
    write_machine(machine, path)
    table = [[0, 1], [1, 0]]
    for kind in ("parity", path, str(path), machine, get_task("parity"), table, np.array(table), {"table": table}):
        assert certify(run, kind).horizon is None and certify(compiled("parity"), kind).horizon is None
        assert horizon(run, task=kind, max_length=10, strings=4).reached
        assert compiled(kind).n_classes == 2
    assert extract(run, task=path, lengths=[5], strings=8).difference is None
    assert certify(compiled("arithmetic"), "arithmetic").horizon is None  # with its valid strings
    other = create_run(tmp_path / "runs" / "seed-1", machine, seed=1, task="parity")
    with pytest.raises(SdssmError, match="the list holds 2 runs; choose one of them"):
        certify([run, other])
    with pytest.raises(ExactError, match="is not a token model"):
        certify(3)  # type: ignore[arg-type]


# -- how results print -------------------------------------------------------------------------------------------------


def test_results_print_as_tables() -> None:
    pandas = pytest.importorskip("pandas")
    model = compiled("parity")
    results = [
        certify(model),
        extract(model, lengths=[5, 9], strings=8),
        horizon(model, max_length=8, strings=4),
        snap(model),
    ]
    for result, rows in zip(results, (2, 2, 4, 6), strict=True):
        assert "\n" not in repr(result) and len(repr(result)) < 120
        assert "parity" in str(result) and "None" not in str(result)
        assert result._repr_html_().count("<table>") == 1
        frame = result.to_pandas()
        assert isinstance(frame, pandas.DataFrame) and len(frame) == rows and set(frame["task"]) == {"parity"}


def test_the_package_exports_what_is_documented() -> None:
    assert sdssm.certify(sdssm.compile("parity")).horizon is None


def test_only_a_hundred_percent_prints_as_such() -> None:
    fidelity = Fidelity(length=5, strings=20_000, agree=19_999, throughout=19_998)
    extraction = replace(extract(compiled("parity"), lengths=[5], strings=8), fidelity=(fidelity,))
    assert extraction.to_table().rows[0] == ["5", "20,000", "99.99", "99.99"]
    measured = horizon(compiled("parity"), max_length=1, strings=4)
    reading = replace(measured.readings[0], accuracy=100 * 99_899 / 100_000)
    table = replace(measured, readings=(reading,), longest=0).to_table()
    assert table.rows[0][3] == "99.89" and "99.89 % of the labels are correct" in table.notes[1]
    assert replace(measured, readings=(replace(reading, accuracy=99.9999),)).to_table().rows[0][3] == "99.99"


def test_results_fit_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(tmp_path / "run", tiring_parity(5), task="parity")
    monkeypatch.setattr("sdssm.cli.output.terminal_width", lambda: 60)
    assert main(["snap", str(run.path), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 60 and lines[0].startswith("WARNING: the extracted machine")
    assert any(line.startswith("machine of ") for line in lines)


def test_commands_have_the_defaults_of_the_functions(capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    functions: dict[str, Callable[..., Any]]
    functions = {"certify": certify, "extract": extract, "snap": snap, "horizon": horizon}
    for name, function in functions.items():
        arguments = [name, "run", *(["--out", "folder"] if name == "snap" else [])]
        for option, value in vars(parser.parse_args(arguments)).items():
            parameter = signature(function).parameters.get(option)
            if parameter is not None and option not in ("lengths", "progress", "model"):
                assert value == parameter.default, (name, option)
    options = vars(parser.parse_args(["compile", "a5", "--out", "folder"]))
    for option in ("model", "layers", "encoding", "column_norm", "minimise"):
        assert options[option] == signature(compiled).parameters[option].default
    assert parser.parse_args(["compile", "a5", "--out", "x", "--length", "5_000"]).length == 5_000
    for words in (["--layers", "0"], ["--strings", "-1"], ["--seed", "x"], ["--length", "--5"], ["--seed", "9" * 20]):
        with pytest.raises(SystemExit):
            main(["compile", "a5", "--out", "x", f"{words[0]}={words[1]}"])
        assert "is not a whole number from" in capsys.readouterr().err


def test_a_model_is_not_saved_above_runs(tmp_path: Path) -> None:
    """It would hide them: commands that are given the folder would read the model."""
    create_run(tmp_path / "runs" / "seed-0", get_machine("parity"))
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="seed-0, a run or another model, which this one would hide"):
            compiled("parity").save(tmp_path / "runs", overwrite=overwrite)


def test_a_machine_above_the_limit_of_states_is_refused_at_once() -> None:
    with pytest.raises(ExactError, match="z40 has 40 states, more than the limit of 30; pass max_states=40"):
        extract(compiled("z40"), max_states=30)
