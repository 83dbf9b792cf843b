"""`sdssm completion`: the scripts complete commands, options and names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sdssm.cli.completion import word_lists
from sdssm.cli.parser import COMMANDS
from tests.programs import run_command

#: What is typed, as bash splits it, and some of the words that it completes to.
TYPED = [
    (["tr"], ["train"]),
    (["comp"], ["compile", "completion"]),
    (["train", "par"], ["parity"]),
    (["train", "a5", "--ste"], ["--steps"]),
    (["train", "a5", "--model", "mam"], ["mamba"]),
    (["train", "a5", "--preset", "scale"], ["scale-free"]),
    (["train", "a5", "--device", "c"], ["cpu", "cuda"]),
    (["train", "a5", "--set", "dic"], ["dictionary="]),
    (["train", "a5", "--set", "state", "=", "32", "attraction_"], ["attraction_gate="]),
    (["train", "a5", "--seeds", ""], []),
    (["train", "a5", "--steps", "10", "par"], ["parity"]),
    (["tasks", "show", "even"], ["even_pairs"]),
    (["tasks", "a5", "--sv"], ["--svg"]),
    (["models", "mam"], ["mamba"]),
    (["settings", "mam"], ["mamba"]),
    (["reproduce", "tab"], ["table1"]),
    (["evaluate", "fol"], ["folder"]),
    (["evaluate", "a5-st"], ["a5-state=16-lr=0.1"]),
    (["evaluate", "a5-state", "="], ["16-lr=0.1"]),
    (["evaluate", "a5-state", "=", "16-l"], ["16-lr=0.1"]),
    (["evaluate", "a5-state", "=", "16-lr", "=", "0"], ["0.1"]),
    (["evaluate", "a5-state\\=1"], ["a5-state=16-lr=0.1"]),
    (["extract", "x", "--method", "ls"], ["lstar"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
]
COMPLETE = """
complete_words() {
    COMP_WORDS=(sdssm "$@"); COMP_CWORD=$#
    _sdssm
    echo "${COMPREPLY[*]}"
}
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_what_was_typed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, script, err = run_command(capsys, "completion", "bash")
    assert (code, err) == (0, "")
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("a5-state=16-lr=0.1").mkdir()
    Path("folded.txt").touch()
    calls = [" ".join(["complete_words", *(f"'{word}'" for word in words)]) for words, _ in TYPED]
    # compopt works only while a user presses the Tab key.
    program = "\n".join([script, "compopt() { :; }", COMPLETE, *calls, "complete -p sdssm"])
    result = subprocess.run(["bash", "-u", "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    *lines, registered = result.stdout.splitlines()
    assert "-F _sdssm sdssm" in registered
    assert list(zip([words for words, _ in TYPED], [line.split() for line in lines], strict=True)) == TYPED


def test_zsh_and_fish_complete_the_same_names(capsys: pytest.CaptureFixture[str]) -> None:
    bash = run_command(capsys, "completion", "bash")[1]
    code, zsh, err = run_command(capsys, "completion", "zsh")
    assert (code, err) == (0, "") and zsh.endswith(bash) and "bashcompinit" in zsh
    code, fish, err = run_command(capsys, "completion", "fish")
    assert (code, err) == (0, "")
    for command in COMMANDS:
        assert f"'__fish_seen_subcommand_from {command}' -l help" in fish
    for words in word_lists().values():
        assert f" -a '{' '.join(words)}'" in fish
    assert fish.count("'") % 2 == 0


def test_an_unknown_shell_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "completion", "fsh")
    assert (code, out) == (2, "")
    assert err == "sdssm completion: SHELL is 'fsh'; did you mean 'fish' or 'zsh'?\n"
