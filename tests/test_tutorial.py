"""The tutorial docs/tutorials/your-own-model.md: its files are written, and its commands run, in an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

from sdssm.cli import main
from sdssm.models import registry

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "your-own-model.md"
#: The modules that the tutorial writes.
MODULES = ("my_model", "my_models")


def read_blocks(language: str) -> list[str]:
    """Return the blocks of code in a language, in the order of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[Path]:
    """An empty folder with the first file of the tutorial."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "my_model.py").write_text(read_blocks("python")[0])
    yield tmp_path
    forget_modules()


def forget_modules() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line of the page, as if in a process of its own."""
    program, *arguments = shlex.split(line)
    monkeypatch.setattr(registry, "_registered", {})
    forget_modules()
    if program == "sdssm":
        assert main(arguments) == 0, line
        return
    assert (program, arguments[0]) == ("pip", "install"), line
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-index", "--no-deps"]
    options += ["--no-build-isolation", "--target", "installed"]
    subprocess.run([sys.executable, "-m", "pip", *arguments, *options], check=True)
    Path("my_model.py").unlink()  # only the package has it now
    monkeypatch.syspath_prepend(str(Path("installed").resolve()))


def test_the_model_has_at_most_ten_lines() -> None:
    assert len([line for line in read_blocks("python")[0].splitlines() if line]) <= 10


def test_every_command_of_the_tutorial_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hatchling", reason="builds the package")
    (folder / "my-package").mkdir()
    (folder / "my-package" / "my_model.py").write_text(read_blocks("python")[0])
    (folder / "my-package" / "pyproject.toml").write_text(*read_blocks("toml"))
    printed = {}
    for line in "".join(read_blocks("sh")).splitlines():
        run_line(line, monkeypatch)
        printed[line] = "".join(capsys.readouterr())
    (line,) = re.findall(r"^    (my_model:Gru: .*)$", PAGE.read_text(), re.MULTILINE)
    assert any(line in text for text in printed.values())  # how it is executed, as the page shows it
    (hint,) = re.findall(
        r"To measure it at longer lengths: (.*)", next(t for c, t in printed.items() if "--seeds 2" in c)
    )
    assert any(command.startswith(hint) for command in printed)
    (evaluation,) = (text for command, text in printed.items() if "20,40,100,500" in command)
    accuracies = re.findall(r"^parity +my_model:Gru +[01] (.*)$", evaluation, re.MULTILINE)
    assert len(accuracies) == 2
    for row in accuracies:
        shares = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", row)]
        assert shares[0] > 95  # at the training length; chance is 50
        assert shares[3] > 95  # at length 500, where the page says 100 %


def test_a_registered_name_brings_its_defaults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my_models.py").write_text(read_blocks("python")[1])
    assert main(["train", "parity", "--model", "my_models:Gru", "--steps", "5", "--out", "runs"]) == 0
    config = (folder / "runs" / "seed-0" / "config.json").read_text()
    assert '"name": "my-gru"' in config and '"lr": 0.01' in config and '"batch": 32' in config
    assert main(["models", "my_models:last_symbol"]) == 0
    assert "Classify a string by its last symbol." in capsys.readouterr().out


def test_with_advance_strings_are_read_in_pieces_and_the_laws_hold(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "my_model:Gru"]) == 0
    assert "whole strings" in capsys.readouterr().out
    _, _, advance, test_file = read_blocks("python")
    with (folder / "my_model.py").open("a") as file:
        file.write(advance)
    forget_modules()
    registry.forget("my_model:Gru")
    assert main(["models", "my_model:Gru"]) == 0
    assert "step by step" in capsys.readouterr().out
    monkeypatch.syspath_prepend(str(folder))
    names: dict[str, Any] = {}
    exec(test_file, names)
    skipped = set()
    for check in names["test_law"].pytestmark[0].args[1]:
        try:
            check()
        except SkipTest:
            skipped.add(str(check))
    assert not any("chunks" in name or "causal" in name for name in skipped)
