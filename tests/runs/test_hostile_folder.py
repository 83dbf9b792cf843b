"""A run folder of a stranger: links, pipes, devices and huge files do no harm."""

from __future__ import annotations

import ast
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import sdssm
from sdssm.cli import main
from sdssm.errors import RunError, SdssmError
from sdssm.runs import RunFolder
from tests.runs.configs import make_config
from tests.test_package import SOURCE

TENSORS = {"w": torch.ones(3)}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of the user with a file, outside of all runs."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("mine.txt", "step-000000001.safetensors", "status.json"):
        (folder / name).write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["owner", "events.jsonl", "status.json", "model.safetensors", "config.json"])
def test_no_write_follows_a_link_in_place_of_a_file(tmp_path: Path, notes: Path, name: str) -> None:
    run = RunFolder.create(tmp_path / "run", make_config())
    run.log({"step": 1})
    run.finish("stopped")
    target = notes / "mine.txt"
    if name == "config.json":  # a link to a valid config
        target = Path(shutil.copy(run.path / name, notes))
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(target)
    before = contents(notes)
    for write in (
        run.claim,
        lambda: run.log({"step": 2}),
        lambda: run.save_checkpoint(10, TENSORS),
        lambda: run.rewind(0),
        lambda: RunFolder.create(run.path, make_config(), overwrite=True),
    ):
        with pytest.raises(RunError, match=rf"{name} is a symbolic link") as error:
            write()
        assert "\n" not in str(error.value) and len(str(error.value)) < 300
    assert contents(notes) == before
    assert (run.path / name).is_symlink()


@pytest.mark.parametrize("is_inside", [False, True])
def test_checkpoints_elsewhere_are_neither_written_nor_removed(tmp_path: Path, notes: Path, is_inside: bool) -> None:
    run = RunFolder.create(tmp_path / "run", make_config())
    run.save_checkpoint(1, TENSORS)
    run.finish("stopped")
    shutil.rmtree(run.path / "checkpoints")
    if is_inside:
        (run.path / "checkpoints").mkdir()
        (run.path / "checkpoints" / "step-000000001.safetensors").symlink_to(notes / "step-000000001.safetensors")
    else:
        (run.path / "checkpoints").symlink_to(notes)
    before = contents(notes)
    for write in (
        lambda: RunFolder.create(run.path, make_config(), overwrite=True),
        lambda: run.rewind(0),
        lambda: run.save_checkpoint(2, TENSORS),
        lambda: run.load_checkpoint(1),
    ):
        with pytest.raises(RunError, match="symbolic link"):
            write()
    assert contents(notes) == before


def test_a_link_that_appears_during_the_training_is_not_followed(tmp_path: Path, notes: Path) -> None:
    run = RunFolder.create(tmp_path / "run", make_config())
    run.save_checkpoint(1, TENSORS)
    shutil.rmtree(run.path / "checkpoints")
    (run.path / "checkpoints").symlink_to(notes)
    (run.path / "events.jsonl").symlink_to(notes / "mine.txt")
    before = contents(notes)
    with pytest.raises(RunError, match="symbolic link"):
        run.save_checkpoint(2, TENSORS)
    with pytest.raises(RunError, match="symbolic link"):
        run.log({"step": 2})
    assert contents(notes) == before
    (run.path / "checkpoints").unlink()
    (run.path / "checkpoints").mkdir()
    part = run.path / "checkpoints" / f"step-000000002.safetensors.{os.getpid()}.part"
    part.symlink_to(notes / "mine.txt")
    run.save_checkpoint(2, TENSORS)
    assert contents(notes) == before


def test_a_mark_does_not_overwrite_a_file_with_two_names(tmp_path: Path, notes: Path) -> None:
    run = RunFolder.create(tmp_path / "run", make_config())
    run.finish("stopped")
    os.link(notes / "mine.txt", run.path / "owner")
    run.claim()
    assert (notes / "mine.txt").read_text() == "mine"


def test_a_run_folder_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    settings = {"state": 8, "batch": 16}
    (run,) = sdssm.train("parity", steps=4, out=tmp_path / "runs", settings=settings, device="cpu")
    (tmp_path / "a5").symlink_to(run.path)
    assert sdssm.resume(tmp_path / "a5", device="cpu")[0].status == "finished"
    assert sdssm.load(tmp_path / "a5").n_classes == 2
    RunFolder.create(tmp_path / "a5", make_config(), overwrite=True).save_checkpoint(1, TENSORS)


# -- pipes, devices, huge files ----------------------------------------------------------------------------------------


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, none of it on the disk


def make_sparse_tensors(path: Path) -> None:
    """A header that claims a terabyte, in a file that has it."""
    size = 1 << 40
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + size)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "sparse": make_sparse,
    "sparse-tensors": make_sparse_tensors,
}


@pytest.mark.parametrize("name", ["config.json", "status.json", "events.jsonl", "model.safetensors", "evaluation.json"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_a_file_of_reasonable_size_is_not_read(
    sample: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    (sample / name).unlink()
    HOSTILE[kind](sample / name)
    start = time.monotonic()
    tracemalloc.start()
    codes: list[object] = [main(["runs", str(sample)])]
    for call in (lambda: sdssm.load(sample), lambda: RunFolder.open(sample).events()):
        try:
            call()
        except SdssmError as error:
            codes.append(2)
            assert "\n" not in str(error) and len(str(error)) < 300
    try:
        codes.append(main(["runs", "--verify", str(sample)]))
    except SystemExit as error:
        codes.append(error.code)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    output = capsys.readouterr()
    texts = output.out + output.err + "".join(str(item.message) for item in recwarn)
    assert codes[-1] == 1 and name in texts
    assert peak < 50e6 and time.monotonic() - start < 20  # seconds: it neither waits nor reads a terabyte


def test_run_folders_are_read_by_the_functions_that_check_files() -> None:
    """A new reader must use `read_regular_file` or `open_regular_file`: others wait for pipes and follow links."""
    places = ["runs", "studio", "report/page", "models/model_folder.py", "models/saved.py", "models/evidence.py"]
    places += [
        "evaluation/stored.py",
        "exact/stored.py",
        "experiments/json_files.py",
        "experiments/execution/watcher.py",
    ]
    direct = []
    for path in (path for place in places for path in [SOURCE / place, *(SOURCE / place).rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())) if path.is_file() else ():
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            owner = ast.unparse(getattr(node, "func", ast.Constant(0)))
            if name in ("read_bytes", "read_text", "load_file", "safe_open") or owner in ("open", "path.open"):
                direct.append(f"{path.relative_to(SOURCE)}: {owner}")
    assert direct == ["report/page/html_page.py: (ASSETS / name).read_text"]  # a file of this package
