"""Damaged files of a run are noticed wherever they are read, named, and repaired from what is left."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save

import sdssm
from sdssm.checksums import FILE_CHECKSUM, add_tensor_checksum
from sdssm.cli import main
from sdssm.errors import ModelError, RunError, RunWarning
from sdssm.experiments.execution.evaluation_files import read_evaluations
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.report.page.page_sources import PageSources
from sdssm.runs import RunFolder, find_runs
from sdssm.runs.checkpoint import restore_model_file
from sdssm.runs.events import decode_event
from sdssm.runs.integrity import check_folder
from tests.runs.sample_run import KINDS
from tests.test_compatibility import WRITTEN


def flip_bits(folder: Path, name: str, count: int, seed: int) -> tuple[int, int]:
    """Flip one random bit of a file `count` times; return how many flips are noticed, and how many harmless."""
    path, generator = folder / name, random.Random(seed)
    original = path.read_bytes()
    noticed = harmless = 0
    for _ in range(count):
        bit = generator.randrange(8 * len(original))
        flipped = bytearray(original)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        file = check_folder(folder).find(name)
        if file is None or file.state != "intact":
            noticed += 1
        else:
            harmless += read_content(bytes(flipped), name) == read_content(original, name)
    path.write_bytes(original)
    return noticed, harmless


def read_content(data: bytes, name: str) -> Any:
    """What a file says, in a form that can be compared."""
    if name.endswith(".safetensors"):
        return {key: (value.dtype, value.tolist()) for key, value in load_tensors(data).items()}
    if name.endswith(".jsonl"):
        return [decode_event(line) for line in data.split(b"\n")[:-1]]
    return FILE_CHECKSUM.verify(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_noticed_or_changes_nothing(sample: Path, kind: str) -> None:
    noticed, harmless = flip_bits(sample, KINDS[kind], 40, seed=1)
    assert noticed + harmless == 40
    assert noticed >= 30  # what is harmless are spaces between the words of JSON


# -- reading -----------------------------------------------------------------------------------------------------------


def edit_json(path: Path, **values: Any) -> None:
    """Change values of a JSON file as a text editor does: its checksum stays what it was."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}, indent=1))


def damage_tensors(path: Path) -> None:
    """Change the last bytes of a file, which are weights."""
    data = path.read_bytes()
    path.write_bytes(data[:-64] + bytes(byte ^ 1 for byte in data[-64:]))


@pytest.mark.parametrize("command", ["evaluate", "certify", "extract", "export"])
def test_commands_name_a_damaged_model(sample: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage_tensors(sample / "model.safetensors")
    options = ["--out", str(sample.parent / "out")] if command == "export" else []
    assert main([command, str(sample), *options]) == 2
    error = capsys.readouterr().err
    assert "seed-0/model.safetensors is damaged" in error and "sdssm runs --repair" in error
    assert error.count("\n") == 1 and len(error) < 400


def test_weights_that_are_not_finite_are_refused_even_with_a_checksum(sample: Path) -> None:
    path = sample / "model.safetensors"
    for value in (float("nan"), float("inf")):
        weights = load_tensors(path.read_bytes())
        weights["dictionary"][0, 0, 0] = value
        path.write_bytes(add_tensor_checksum(save(weights)))
        with pytest.raises(ModelError, match=r"model.safetensors is damaged: 'dictionary' holds NaN or infinite"):
            sdssm.load(sample)


def test_weights_of_zero_are_refused_in_one_line(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stranger computes a right checksum too; the power of the column norm is then 0."""
    path = sample / "model.safetensors"
    weights = {name: torch.zeros_like(value) for name, value in load_tensors(path.read_bytes()).items()}
    path.write_bytes(add_tensor_checksum(save(weights)))
    for command in ("evaluate", "horizon"):
        assert main([command, str(sample), "--max-length", "5", "--quiet"]) == 2
        error = capsys.readouterr().err
        assert "p holds 0.0; a norm needs a finite p of at least 1" in error and error.count("\n") == 1


def test_a_saved_model_has_checksums_and_may_hold_what_its_owner_saved(tmp_path: Path) -> None:
    model = sdssm.compile("parity")
    model.save(tmp_path / "model")
    assert check_folder(tmp_path / "model").state == "intact"
    damage_tensors(tmp_path / "model" / "model.safetensors")
    with pytest.raises(ModelError, match=r"model.safetensors is damaged"):
        sdssm.load(tmp_path / "model")
    edit_json(tmp_path / "model" / "config.json", n_classes=3)
    with pytest.raises(ModelError, match=r"config.json is damaged"):
        sdssm.load(tmp_path / "model")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    model.save(tmp_path / "diverged")
    assert next(sdssm.load(tmp_path / "diverged").parameters()).isnan().all()


def test_a_missing_model_is_named(sample: Path) -> None:
    (sample / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"seed-0/model.safetensors is missing, although the run is finished"):
        sdssm.load(sample)


def test_a_damaged_config_is_refused_everywhere(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((sample / "config.json").read_text())
    edit_json(sample / "config.json", train={**config["train"], "lr": 0.021})
    for command in (["train", "--resume"], ["evaluate"], ["runs"], ["report"]):
        assert main([*command, str(sample)]) == 2
        error = capsys.readouterr().err
        assert "seed-0/config.json is damaged" in error and "remove its field checksum" in error
    with pytest.raises(SystemExit) as code:
        main(["runs", "--repair", str(sample)])
    assert code.value.code == 1
    assert "config.json: cannot be repaired: restore it from a copy" in capsys.readouterr().out
    del config["checksum"]  # edited on purpose
    (sample / "config.json").write_text(json.dumps({**config, "preset": "mine"}))
    assert RunFolder.open(sample).config.preset == "mine"


def test_an_edited_evaluation_is_not_listed_and_not_tabulated(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_json(sample / "evaluation.json", mean=100.0)
    assert main(["runs", str(sample), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["mean"] is None
    assert "seed-0/evaluation.json is damaged: its contents do not match its checksum" in captured.err
    run = RunFolder.open(sample)
    spec = EvaluationSpec(max_length=30, strings=32)
    with pytest.warns(RunWarning, match="evaluation.json is damaged"):
        assert read_evaluations(sample, run.config.load_task(), spec) == (None, {})


def test_a_damaged_line_of_the_log_is_left_out(sample: Path) -> None:
    path = sample / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace('"step": 10', '"step": 18'), *lines[2:]]))
    with pytest.warns(RunWarning, match=r"line 2 of .*events.jsonl is damaged; ignored"):
        events = RunFolder.open(sample).events()
    assert [event["step"] for event in events] == [5, 15, 20]
    assert all("crc" not in event for event in events)


def test_new_indentation_is_no_damage(sample: Path) -> None:
    values = json.loads((sample / "config.json").read_text())
    for text in (json.dumps(values), json.dumps(values, indent=4), json.dumps(values, separators=(",", ":"))):
        (sample / "config.json").write_text(text)
        assert check_folder(sample).state == "intact"


def test_folders_of_earlier_versions_are_unverified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--verify", str(WRITTEN), "--json"]) == 0
    folders = json.loads(capsys.readouterr().out)
    assert {folder["state"] for folder in folders} == {"unverified"}
    assert len(folders) == 15  # 13 runs and two models


# -- repair ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [damage_tensors, Path.unlink])
def test_resuming_a_finished_run_restores_its_model(
    sample: Path, sample_path: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(sample / "model.safetensors")
    assert main(["train", "--resume", str(sample), "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert "restored from the checkpoint of step 20" in captured.out + captured.err
    assert (sample / "model.safetensors").read_bytes() == (sample_path / "model.safetensors").read_bytes()
    assert not (sample / "owner").exists()


def test_the_best_weights_of_a_validation_are_restored(tmp_path: Path) -> None:
    settings = {"state": 8, "batch": 16, "validate_length": 20, "validate_every": 10, "lr": 0.1}
    (run,) = sdssm.train("parity", steps=20, out=tmp_path, settings=settings, device="cpu")
    assert restore_model_file(run.load_checkpoint()) == (run.path / "model.safetensors").read_bytes()


def test_verify_and_repair(sample: Path, sample_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--verify", str(sample)]) == 0
    assert "11 of 11 intact" in capsys.readouterr().out
    for name in ("model.safetensors", "evaluation-states.safetensors", "checkpoints/step-000000000.safetensors"):
        damage_tensors(sample / name)
    edit_json(sample / "certificate.json", horizon=7)
    (sample / "status.json").write_text("{")
    (sample / "events.jsonl").write_text((sample / "events.jsonl").read_text().replace('"step": 10', '"step": 11'))
    with pytest.raises(SystemExit) as code:
        main(["runs", "--verify", str(sample)])
    assert code.value.code == 1
    assert "5 of 11 intact" in capsys.readouterr().out
    assert main(["runs", "--repair", str(sample)]) == 0
    assert [line.removeprefix(f"{sample}/") for line in capsys.readouterr().out.splitlines()] == [
        "events.jsonl: 1 damaged line removed",
        "status.json: written again: finished, step 20",
        "model.safetensors: restored from the checkpoint of step 20",
        "checkpoints/step-000000000.safetensors: removed; another one is intact",
        "evaluation-states.safetensors: removed, to be computed again",
        "certificate.json: removed, to be computed again",
    ]
    assert (sample / "model.safetensors").read_bytes() == (sample_path / "model.safetensors").read_bytes()
    assert check_folder(sample).state == "intact"
    assert main(["runs", "--repair", str(sample)]) == 0
    assert capsys.readouterr().out == "nothing is damaged\n"


def test_a_model_without_a_checkpoint_of_its_step_is_not_repaired(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sample / "model.safetensors").unlink()
    damage_tensors(sample / "checkpoints/step-000000020.safetensors")
    with pytest.raises(SystemExit) as code:
        main(["runs", "--repair", str(sample)])
    assert code.value.code == 1
    assert "the last intact checkpoint is of step 0, and the model was of step 20" in capsys.readouterr().out
    assert not (sample / "model.safetensors").exists()


def test_without_a_status_a_finished_run_is_recognised(sample: Path) -> None:
    run = RunFolder.open(sample)
    before = run.progress
    (sample / "status.json").unlink()
    assert (run.status, run.step, run.progress.steps) == ("finished", 20, 20)
    shutil.rmtree(sample / "checkpoints")  # the last event is of the last step too
    assert run.status == "finished"
    (sample / "model.safetensors").unlink()
    assert run.status == "running"
    assert before.status == "finished"


def test_partly_written_results_of_dead_processes_are_removed(sample: Path) -> None:
    run, old = RunFolder.open(sample), sample / f"horizon.json.{1 << 23}.part"
    old.write_text("{")
    run.write_json("horizon.json", {})
    assert not old.exists()


def test_a_damaged_end_of_the_last_line_is_noticed(sample: Path) -> None:
    path = sample / "events.jsonl"
    complete = path.read_bytes()
    path.write_bytes(complete[:-1])
    assert len(RunFolder.open(sample).events()) == 4  # the checksum says that it is complete
    path.write_bytes(complete[:-1] + b"\x0b")
    with pytest.warns(RunWarning, match="line 4 of"):
        assert len(RunFolder.open(sample).events()) == 3


@pytest.mark.parametrize(("kept", "state"), [(None, "missing"), (0, "damaged"), (-9, "damaged"), (-1, "damaged")])
def test_a_log_that_lacks_its_end_is_damaged_once_the_run_has_ended(sample: Path, kept: int | None, state: str) -> None:
    """-1 is a log without its last line, at a line end; a running run may be about to write more."""
    log = sample / "events.jsonl"
    data = log.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    log.unlink()
    if kept is not None:
        log.write_bytes(data[:last] if kept == -1 else data[:kept])
    check = check_folder(sample).find("events.jsonl")
    assert check is not None and check.state == state


def test_zeros_at_the_end_of_a_log_are_damage(sample: Path) -> None:
    log = sample / "events.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[:-20] + bytes(20))
    with pytest.warns(RunWarning, match="is damaged"):
        RunFolder.open(sample).events()


def test_a_run_whose_config_is_lost_is_named(sample: Path) -> None:
    (sample / "config.json").unlink()
    with pytest.raises(RunError, match=r"has checkpoints of a run, but its config\.json is missing"):
        find_runs(sample.parent)
    assert "config.json of this run is missing" in PageSources.find([sample.parent]).problems[0]["message"]
