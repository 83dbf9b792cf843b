"""Files of a stranger whose checksums, headers and names are not what the package writes: one line, no traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sdssm
from sdssm.cli import main
from sdssm.errors import RunError, SdssmError
from sdssm.runs import RunFolder
from sdssm.runs.integrity import check_folder
from sdssm.runs.repair import repair_folder

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("checksum", ["\ud800", 7, None, "sha256:", ["x"]])
@pytest.mark.parametrize("name", ["config.json", "status.json"])
def test_a_checksum_that_is_none_is_damage(sample: Path, name: str, checksum: Any, capsys: Capture) -> None:
    content = json.loads((sample / name).read_text())
    (sample / name).write_text(json.dumps({**content, "checksum": checksum}))
    file = check_folder(sample).find(name)
    assert file is not None and file.state == "damaged"
    assert main(["runs", str(sample)]) == (2 if name == "config.json" else 0)
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"dictionary": {"data_offsets": [0, 1e999]}},
        {"dictionary": {"data_offsets": [0, 4.5]}},
        {"dictionary": {"dtype": ["F32"]}},
        {"dictionary": {"dtype": "F8_E8M0"}},
        {"dictionary": {"dtype": "\ud800"}},
        {"dictionary": {"shape": "x"}},
        {"__metadata__": {"sha256": "\ud800"}},
        {"__metadata__": {"other": "\ud800"}},
        {"__metadata__": {"other": 3}},
    ],
)
def test_a_strange_header_of_weights_is_damage(sample: Path, change: dict[str, dict[str, Any]]) -> None:
    path = sample / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    for name, values in change.items():
        header[name] = {**header[name], **values}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    with pytest.raises(SdssmError, match="model.safetensors is damaged"):
        sdssm.load(sample)
    assert check_folder(sample).is_damaged


def test_a_checkpoint_of_another_name_is_none(sample: Path) -> None:
    """`step-5` is not what the training writes; looking for its file again and again would never end."""
    shutil.rmtree(sample / "checkpoints")
    (sample / "checkpoints").mkdir()
    (sample / "checkpoints" / "step-5.safetensors").write_bytes(b"x")
    (sample / "checkpoints" / "step-000000006.safetensors").symlink_to(sample / "gone")
    run = RunFolder.open(sample)
    assert run.checkpoints() == [6]
    with pytest.warns(UserWarning, match="symbolic link"), pytest.raises(RunError, match="every checkpoint"):
        run.load_checkpoint()


def test_checkpoints_elsewhere_are_not_read_by_verify(sample: Path, tmp_path: Path) -> None:
    (sample / "checkpoints").rename(tmp_path / "elsewhere")
    (sample / "checkpoints").symlink_to(tmp_path / "elsewhere")
    check = check_folder(sample).find("checkpoints")
    assert check is not None and check.state == "damaged" and "symbolic link" in check.detail
    assert all(not repair.is_done for repair in repair_folder(sample))
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2


def test_what_cannot_be_repaired_does_not_keep_the_rest_from_repair(sample: Path) -> None:
    (sample / "horizon.json").unlink()
    (sample / "horizon.json").mkdir()
    (sample / "events.jsonl").unlink()
    (sample / "model.safetensors").write_bytes(b"x")
    repairs = {repair.path.name: repair for repair in repair_folder(sample)}
    assert repairs["model.safetensors"].is_done
    assert not repairs["horizon.json"].is_done and not repairs["events.jsonl"].is_done
    assert not (sample / "events.jsonl").exists()


def test_a_log_without_its_end_is_not_called_repaired(sample: Path) -> None:
    lines = (sample / "events.jsonl").read_bytes().splitlines(keepends=True)
    (sample / "events.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b'"step": 20', b'"step": 21'))
    (repair,) = repair_folder(sample)
    assert not repair.is_done and "1 damaged line removed, but the events that are lost" in repair.text


@pytest.mark.parametrize("text", ["00", "0", "99999999999999999999", "9999999999999999999,1"])
def test_numbers_that_are_no_seeds(text: str, tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "parity", "--seeds", text, "--out", str(tmp_path / "out"), "--steps", "1"])
    assert "--seeds" in capsys.readouterr().err and not (tmp_path / "out").exists()
