"""The scripts in `examples/`: each runs, shortened, in an empty folder, and finds what its docstring says."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from sdssm.models import registry

EXAMPLES = Path(__file__).parents[1] / "examples"
#: The examples that run here, with their arguments. `make demo` runs the only other one, demo.py, in two minutes.
ARGUMENTS = {
    "own_training_loop.py": ["--steps", "400"],
    "own_models.py": ["--tasks", "even_pairs", "--steps", "200"],
    "time_series.py": ["--epochs", "6"],
    "character_lm.py": ["--steps", "30"],
    "read_the_matrices.py": ["--steps", "500"],
    "automaton_from_a_log.py": ["--sessions", "100"],
}

RunExample = Callable[[str], str]


@pytest.fixture
def run_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> RunExample:
    """Return a function that runs an example in an empty folder, and returns what it prints."""

    def run(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS[name]])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")  # in this process, which has loaded torch
        return capsys.readouterr().out

    return run


def numbers_after(name: str, text: str) -> list[float]:
    """Return the numbers of the line that starts with a name."""
    line = re.search(rf"^ *{name} (.*)$", text, re.MULTILINE)
    assert line is not None, f"no line starts with {name!r}:\n{text}"
    return [float(number.replace(",", "")) for number in line[1].split()]


def test_own_training_loop(run_example: RunExample) -> None:
    out = run_example("own_training_loop.py")
    lstm, sd_ssm, chance = (numbers_after(name, out) for name in ("LSTM", "SD-SSM", "chance"))
    assert chance == [20] * 5
    assert lstm[0] > 40 and sd_ssm[0] > 90  # at length 10


def test_own_models(run_example: RunExample, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("minGRU_pytorch") is None:
        pytest.skip("one of the models is in minGRU-pytorch; make setup installs it")
    monkeypatch.setattr(registry, "_registered", {})  # the example registers its models in this process
    out = run_example("own_models.py")
    *learned, min_gru, chance = (
        numbers_after(name, out) for name in ("torch-gru", "torch-transformer", "linear-rnn", "min-gru", "chance")
    )
    assert chance == [50] * 5
    for accuracies in learned:
        assert min(accuracies[:3]) > 95  # up to twice the training length
    assert len(min_gru) == 5 and "min-gru: 6,706 parameters" in out  # it needs more steps than this test has


def test_own_models_are_short() -> None:
    source = (EXAMPLES / "own_models.py").read_text()
    lines = {
        node.name: sum(bool(line.strip()) for line in source.splitlines()[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name != "main"
    }
    assert lines.pop("LinearRnn") <= 15  # a whole model, written here
    assert lines.keys() == {"Gru", "Transformer", "min_gru"} and max(lines.values()) <= 10  # around modules of others


def test_time_series(run_example: RunExample) -> None:
    if find_spec("sktime") is None:
        pytest.skip("the data set is in sktime; make setup installs it")
    out = run_example("time_series.py")
    sd_ssm, gru, chance = (numbers_after(name, out)[-2:] for name in ("SelectiveDense", "GRU", "chance"))
    assert chance == [11.1, 11.1]
    assert min(sd_ssm) > 80 and min(gru) > 60  # on the training recordings and on the others


def test_time_series_without_the_data_says_what_to_install(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=re.escape("pip install 'sdssm[examples]'")):
        run_example("time_series.py")


def test_character_lm(run_example: RunExample) -> None:
    out = run_example("character_lm.py")
    uniform, characters, model = (numbers_after(name, out)[0] for name in ("uniform", "characters", "model"))
    assert model < characters < uniform
    assert "Return the " in out.partition("A sample")[2]


def test_read_the_matrices(run_example: RunExample) -> None:
    out = run_example("read_the_matrices.py")
    assert "chance is 16.7 %" in out
    assert "generate 6 maps: a group: True, commutative: False, the same as s3: True" in out
    assert Path("examples-output/matrices.png").stat().st_size > 10_000


def test_automaton_from_a_log(run_example: RunExample) -> None:
    out = run_example("automaton_from_a_log.py")
    assert "It is the rule of the service" in out and "chance is 33.3 %" in out
    faults = re.search(r"(\d+) of 200 sessions differ", out)
    assert faults is not None and int(faults[1]) > 10
    assert out.count("password gives user") == 3
    assert Path("examples-output/automaton.svg").read_text().startswith("<svg")


def test_every_example_is_run_and_says_what_it_takes() -> None:
    scripts = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert set(scripts) == {*ARGUMENTS, "demo.py"}
    for name in ARGUMENTS:
        docstring = ast.get_docstring(ast.parse(scripts[name])) or ""
        assert f"python examples/{name}" in docstring and "seconds" in docstring, name
        assert re.search("chance|guess", docstring), name
        assert len(scripts[name].splitlines()) <= 150, name
