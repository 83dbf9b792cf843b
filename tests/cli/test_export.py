"""`sdssm export`: files, messages and errors."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdssm
from sdssm.cli import main
from sdssm.exporting.onnx_check import check_onnx
from tests.programs import run_without


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a compiled model, with an evaluation."""
    sdssm.compile("parity").save(tmp_path / "parity")
    (tmp_path / "parity" / "evaluation.json").write_text(json.dumps({"mean": 100.0, "max_length": 500, "chance": 50.0}))
    return tmp_path / "parity"


def test_onnx_is_checked_and_written_with_code_that_runs_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript", reason="exports to ONNX")
    onnxruntime = pytest.importorskip("onnxruntime", reason="runs ONNX models")
    assert main(["export", str(folder), "--format", "onnx", "--out", str(tmp_path / "onnx")]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""  # no remarks of torch
    assert "random strings up to length 200 in onnxruntime" in output and "model.onnx" in output
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    (logits,) = session.run(None, {"tokens": np.array([[1, 1, 0, 1]])})
    assert logits[0].argmax(-1).tolist() == [1, 0, 0, 1]
    readme = (tmp_path / "onnx" / "README.md").read_text()
    assert "The mean accuracy on strings of length 1 to 500 is 100 %; chance is 50 %." in readme
    monkeypatch.chdir(tmp_path / "onnx")
    whole, steps = (textwrap.dedent(code) for code in re.findall(r"(?:^    .*\n)+", readme, re.MULTILINE))
    names: dict[str, Any] = {}
    for code in (whole, steps):
        names.pop("labels", None)
        exec(code, names)
        assert names["labels"] == ["even", "odd"]
    properties = session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["sdssm.evaluation"]) == {"mean": 100.0, "chance": 50.0, "max_length": 500}


def test_without_onnxruntime_the_command_says_that_nothing_was_checked(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    model = sdssm.load(folder)
    assert check_onnx(model, b"", None, None) is None
    monkeypatch.setattr("sdssm.exporting.exporter.to_onnx_files", lambda *_: ({"model.onnx": b"x"}, None))
    assert main(["export", str(folder)]) == 0
    assert "because onnxruntime is not installed; install sdssm[onnx]" in capsys.readouterr().out
    assert (folder / "export" / "onnx" / "model.onnx").read_bytes() == b"x"


WITHOUT_EXTRAS = """
import sys
import sdssm
from sdssm.cli import main
try:
    main(["export", "--help"])
except SystemExit as stopped:
    assert stopped.code == 0
sys.stderr = sys.stdout
folder = {folder!r}
assert main(["export", folder]) == 2
model = sdssm.load(folder)
for call in (model.push_to_hub, sdssm.TokenModel.from_pretrained):
    try:
        call("me/parity")
    except sdssm.errors.MissingExtraError as error:
        print(error)
model.save_pretrained(folder + "-saved")
print("loaded", sdssm.TokenModel.from_pretrained(folder + "-saved").task.name)
assert main(["export", folder, "--format", "npz"]) == 0
"""


def test_without_the_extras_all_else_works_and_errors_name_them(folder: Path) -> None:
    hidden = {"onnx", "onnxruntime", "onnxscript", "huggingface_hub"}
    output = run_without(hidden, WITHOUT_EXTRAS.format(folder=str(folder)))
    assert "usage: sdssm export" in output and "needs sdssm[onnx]" in output
    assert "sdssm: export to ONNX needs onnx; install sdssm[onnx]\n" in output
    assert "uploading a model to the Hugging Face Hub needs huggingface_hub; install sdssm[hub]\n" in output
    assert "loading a model from the Hugging Face Hub needs huggingface_hub; install sdssm[hub]\n" in output
    assert "loaded parity\n" in output and "model.npz" in output
    assert not (folder / "export" / "onnx").exists()


@pytest.mark.parametrize("name", ["npz", "json"])
def test_arrays_are_written_next_to_the_model_by_default(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(folder), "--format", name, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"] == [str(folder / "export" / f"model.{name}")]
    assert Path(printed["files"][0]).exists() and printed["task"] == "parity"
    assert main(["evaluate", str(folder), "--max-length", "50"]) == 0  # the folder is a model as before


def test_errors_name_the_option_and_write_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "model.npz")

    def error(*arguments: str) -> str:
        assert main(["export", *arguments]) == 2
        return capsys.readouterr().err

    assert error(str(folder), "--format", "onxx") == "sdssm: there is no format 'onxx'; did you mean 'onnx'?\n"
    assert error(str(tmp_path / "nowhere"), "--out", target).count("\n") == 1
    message = error(str(folder), "--format", "npz", "--out", target, "--task", "a5")
    assert "sd-ssm has 2 symbols and 2 classes, but a5 has 2 and 60" in message
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "export to ONNX needs onnx; install sdssm[onnx]" in error(str(folder), "--out", str(tmp_path / "onnx"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parity"]
    assert main(["export", str(folder), "--format", "npz", "--out", target]) == 0
    assert "add --overwrite, or choose another --out" in error(str(folder), "--format", "npz", "--out", target)
    assert main(["export", str(folder), "--format", "npz", "--out", target, "--overwrite"]) == 0


def test_foreign_code_is_imported_only_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "from torch import nn\ndef table(n_symbols, n_classes):\n    return nn.Embedding(n_symbols, n_classes)\n"
    (tmp_path / "exported_table.py").write_text(source)
    path = "exported_table:table"
    sdssm.register(sdssm.models.registry.find_entry(path).target, name=path)
    model = sdssm.models.building.untrained_model(sdssm.models.settings.default_settings(path), 2, 2, seed=0)
    model.save(tmp_path / "table")
    sdssm.models.registry.forget(path)
    assert main(["export", "table", "--format", "json"]) == 2
    assert f"would import {path}" in capsys.readouterr().err
    assert main(["export", "table", "--format", "json", "--trust"]) == 0
    values = json.loads((tmp_path / "table" / "export" / "model.json").read_text())
    assert values["tensors"]["weight"]["shape"] == [2, 2] and values["settings"]["import_path"] == path
    sdssm.models.registry.forget(path)


def test_the_suffix_of_the_file_is_the_format(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.parent / "a.npz"
    assert main(["export", str(folder), "--out", str(out)]) == 0 and sorted(np.load(out))
    capsys.readouterr()
    wrong = folder.parent / "a.pt2"
    assert main(["export", str(folder), "--out", str(wrong)]) == 2 and not wrong.exists()
    assert "a.pt2 has the suffix of no format; the formats are onnx (a folder), npz, json" in capsys.readouterr().err
