"""AT&T text files: reading, writing, Mealy machines, and what is refused."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdssm.automata import Machine, from_att, get_machine, read_machine, to_att, write_machine
from sdssm.automata.att import ESCAPES
from sdssm.automata.formats import find_att_files
from sdssm.errors import FormatError, FormatWarning, SdssmError
from sdssm.limits import MOST_STATES_BUILT
from sdssm.tasks import EXAMPLE_TASKS, PAPER_TASKS, get_task
from sdssm.tasks.library import spell_task
from tests.programs import run_command
from tests.strategies import machines

MLREGTEST = Path(__file__).parent.parent / "data" / "mlregtest"
FILES = sorted(MLREGTEST.glob("*.att"))


def accepts(text: str, word: list[str]) -> bool:
    """Whether an acceptor in AT&T format accepts a string: the definition of the format, as a plain loop."""
    lines = [line.split("\t") for line in text.splitlines()]
    state = lines[0][0]
    for symbol in word:
        targets = [fields[1] for fields in lines if len(fields) == 4 and (fields[0], fields[2]) == (state, symbol)]
        if not targets:
            return False
        (state,) = targets
    return [state] in lines


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_languages_of_mlregtest(path: Path) -> None:
    text, machine = path.read_text(), read_machine(path)
    symbols, tier = map(int, path.stem.split(".")[:2])
    assert machine.n_symbols == symbols >= tier
    assert machine.is_acceptor
    rng, lines = random.Random(0), text.splitlines()
    n_states = len({state for line in lines for state in line.split("\t")[:2]})
    is_complete = sum("\t" in line for line in lines) == n_states * symbols
    assert machine.n_states == n_states + (not is_complete)  # a sink only if a transition is missing
    for length in [*range(12)] * 3:
        word = rng.choices(machine.symbol_names, k=length)
        assert machine.output(word) == accepts(text, word)
    task = get_task(path)
    assert (task.name, get_task(str(path)).name) == (path.stem, path.stem)
    assert get_task(spell_task(str(path))).digest == task.digest
    again = from_att(to_att(machine))
    assert again.is_equivalent(machine) and again.n_states == machine.n_states


def test_the_data_are_few_and_attributed() -> None:
    assert 12 <= len(FILES) <= 20
    readme = (MLREGTEST / "README.md").read_text()
    assert "CC BY 4.0" in readme and "arXiv 2304.07687" in readme


@pytest.mark.parametrize("name", [*PAPER_TASKS, *EXAMPLE_TASKS])
def test_round_trip_of_the_library(name: str, tmp_path: Path) -> None:
    machine, path = get_machine(name), tmp_path / "written.att"
    write_machine(machine, path)
    read = get_machine(str(path))
    assert read.distinguish(machine) is None
    assert (read.table.tolist(), read.start) == (machine.table.tolist(), machine.start)
    assert read.symbol_names == machine.symbol_names
    if machine.is_acceptor or set(machine.table.flat) == set(range(machine.n_states)):
        assert read.is_equivalent(machine)  # otherwise the output of a start that nothing leads to is lost


@given(machines(named=True))
def test_round_trip_of_any_machine(machine: Machine) -> None:
    try:
        text = to_att(machine)
    except FormatError as error:
        assert "write .json or .dot" in str(error)
        return
    read = from_att(text)
    assert read.distinguish(machine) is None
    assert (read.table.tolist(), read.symbol_names) == (machine.table.tolist(), machine.symbol_names)


def test_one_symbol_weights_spaces_and_names() -> None:
    pairs = get_machine("regex:(ab)*")
    for text in (
        "0\t1\ta\ta\n1\t0\tb\tb\n0\n",
        "0 1 a a\n1 0 b b\n0",
        "0\t1\ta\n1\t0\tb\n0\n",
        "0 1 a 0.5e0\n1 0 b\n0".replace("0.5e0", "0"),
        "0\t1\ta\ta\t0.000000\n1\t0\tb\tb\t0.000000\n0\t0.000000\n",
        "\ufeff0 1 a a\r\n\r\n1 0 b b\r\n0\r\n",
        "even odd a a\nodd even b b\neven",
        "7 9 a a\n9 7 b b\n7",
    ):
        assert from_att(text).is_equivalent(pairs)
    assert from_att("even odd a a\nodd even b b\neven").states == ("even", "odd", "sink")
    assert from_att("2 0 a a\n0 2 a a\n1 1 a a\n2").start == 2


def test_a_final_state_may_come_first_or_stand_alone() -> None:
    assert from_att("1\n1 0 a a\n0 1 a a").start == 1
    only_empty = from_att("0", symbols=["a"])
    assert (only_empty.output(""), only_empty.output("a")) == (1, 0)


def test_a_larger_alphabet(tmp_path: Path) -> None:
    path = tmp_path / "words.att"
    path.write_text("0 1 a a\n1 0 b b\n0\n")
    wider = get_machine(f"alphabet[a-c]:{path}")
    assert wider.symbols == ("a", "b", "c")
    assert wider.is_equivalent("regex[abc]:(ab)*")
    assert read_machine(path, symbols=["b", "a"]).symbols == ("b", "a")
    assert get_machine(f"alphabet[a b left]:{path}").symbols == ("a", "b", "left")
    assert get_task(f"alphabet[a-c]:{path}").name == "words"
    with pytest.raises(FormatError, match="line 1: symbol 'a' is not in the alphabet b, c; add it"):
        get_machine(f"alphabet[bc]:{path}")
    with pytest.raises(FormatError, match="an alphabet is given for .att files only"):
        read_machine(tmp_path / "words.json", symbols="ab")


def test_a_name_of_the_library_keeps_its_ending(tmp_path: Path) -> None:
    write_machine("parity", tmp_path / "a5.att")
    assert get_task(tmp_path / "a5.att").name == "a5.att"


def test_mealy_machine_becomes_a_moore_machine() -> None:
    delay = from_att("0 0 a x\n0 1 b x\n1 0 a y\n1 1 b y")  # the output is the symbol before the last one
    assert (delay.symbols, delay.n_outputs) == (("a", "b"), 2)
    rng = random.Random(0)
    for _ in range(50):
        word = rng.choices("ab", k=rng.randint(1, 10))
        expected = int(len(word) > 1 and word[-2] == "b")
        assert delay.output(word) == expected
    assert delay.states == ("0/x", "1/x", "0/y", "1/y")
    moore = from_att("0 1 a 5\n1 0 a 3\n0\n1")  # each state has one output already
    assert (moore.table.tolist(), moore.outputs.tolist()) == ([[1], [0]], [3, 5])
    partial = from_att("0 1 a on\n0 0 b off\n1 0 b off")
    assert partial.output("aa") == 0  # outputs 0 and 1: the sink rejects
    with pytest.raises(FormatError, match=r"line \d: symbols .* differ, .*; got 1 final of 2 states"):
        from_att("0 1 a b\n1 0 b b\n0")


def test_symbols_with_spaces_are_escaped() -> None:
    machine = Machine(table=[[0, 1, 0], [1, 1, 0]], outputs=[0, 1], symbols=["go left", " ", "\t"])
    text = to_att(machine)
    assert ESCAPES[" "] in text and from_att(text) == machine
    for name in ("@0@", "@_SPACE_@", "a\rb"):
        with pytest.raises(FormatError, match=r"write \.json or \.dot"):
            to_att(Machine(table=[[0]], symbols=[name]))
    same = Machine(table=[[0, 1, 2]] * 3)  # the output is the last symbol
    with pytest.raises(FormatError, match="would read as an acceptor"):
        to_att(same)


BAD = {
    "": "the file is empty; expected 'source target symbol symbol' for a transition, or 'state' for a final state",
    "\n \n": "the file is empty",
    "0 1 a a\n0 1": "line 2: expected 'source target symbol symbol' for a transition, or 'state' for a final state, "
    "got '0 1'",
    "0 1 a a\n0 1 b": "line 2: expected",
    "0 1 a a 0 0": "line 1: expected",
    "0 1 a a\n0\t\ta\ta": "line 2: expected",
    "0 1 a a b": "line 1: expected",
    "0 1 a a\n\n0 0 a a": "line 3: state '0' has two transitions for symbol 'a' (the other is in line 1); make the "
    "machine deterministic first",
    "0 1 a a 0.5": "line 1: the weight is 0.5; machines here have no weights",
    "0 1 a a\n1 inf": "line 2: the weight is inf",
    "0 1 @0@ @0@": "line 1: symbol '@0@' stands for the empty string",
    "0 1 @_IDENTITY_SYMBOL_@ @_IDENTITY_SYMBOL_@": "line 1: symbol '@_IDENTITY_SYMBOL_@' stands for any other symbol",
    "0": "the file has no transitions, so the alphabet is not known",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input_is_one_line_with_exit_code_2(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.att"
    path.write_text(text)
    code, out, err = run_command(capsys, "tasks", "show", str(path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{path}: {BAD[text]}" in err


def test_too_many_states(tmp_path: Path) -> None:
    path = tmp_path / "long.att"
    path.write_text("".join(f"{q}\t{q + 1}\ta\ta\n" for q in range(MOST_STATES_BUILT)))
    with pytest.raises(
        SdssmError, match=f"would have {MOST_STATES_BUILT + 1:,} states; the most is {MOST_STATES_BUILT:,}"
    ):
        read_machine(path)


@given(st.text(alphabet="01 \tab@.\n\r-", max_size=40))
def test_the_reader_raises_only_its_own_errors(text: str) -> None:
    try:
        from_att(text)
    except SdssmError as error:
        assert "\n" not in str(error)


def test_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_att_files(MLREGTEST) == FILES
    code, _, err = run_command(capsys, "tasks", "show", str(tmp_path))
    assert code == 2 and err.count("\n") == 1
    assert f"the folder {tmp_path} has no .att file" in err
    code, _, err = run_command(capsys, "tasks", "show", str(MLREGTEST))
    assert code == 2 and "is a folder; name a file in it, such as" in err
    for missing, fault in ((tmp_path / "none", "does not exist"), (FILES[0], "is a file")):
        with pytest.raises(FormatError, match=fault):
            find_att_files(missing)


def test_show_writes_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "parity.att"
    code, out, _ = run_command(capsys, "tasks", "show", "parity", "--out", str(path))
    assert code == 0 and f"Machine: {path}" in out
    assert get_machine(str(path)).is_equivalent("parity")
    code, _, err = run_command(capsys, "tasks", "show", "parity", "--out", str(tmp_path / "parity.txt"))
    assert code == 2 and "an automaton is written as .json or .dot or .att" in err


@pytest.mark.parametrize(
    ("text", "fault"), [("0 0 a a\n0 1 b b\n1 1 a a\n1 1 b b", "is empty"), ("0 0 a a\n0", "has all strings")]
)
@pytest.mark.parametrize(
    "words", [("tasks", "show"), ("train", "--steps", "1"), ("train", "--dry-run")], ids=["show", "train", "dry run"]
)
def test_a_language_of_no_string_or_all_strings_is_refused(
    text: str,
    fault: str,
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("constant.att").write_text(text)
    code, out, err = run_command(capsys, *words, "constant.att")
    assert code == 2 and not out and err.count("\n") == 1
    assert f"constant.att: the language {fault}, so there is nothing to learn" in err
    assert get_machine("constant.att").n_states  # the machine itself is read


def test_train_and_load_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.runs.folder import RunFolder
    from sdssm.training import train

    monkeypatch.chdir(tmp_path)
    path = Path("even.att")
    path.write_text("0 1 a a\n1 0 a a\n0 0 b b\n1 1 b b\n0")
    train(str(path), settings={"steps": 1, "batch": 4, "state": 4}, out="run")
    path.unlink()  # the run keeps its machine
    run = RunFolder.open(Path("run") / "seed-0")
    assert run.config.load_task().name == "even"


# -- states that look mistyped -----------------------------------------------------------------------------------------


def warnings_of(path: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_machine(path)
    assert {warning.category for warning in caught} <= {FormatWarning}
    return [str(warning.message).removeprefix(f"{path}: ") for warning in caught]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_state_of_mlregtest_looks_mistyped(path: Path) -> None:
    assert warnings_of(path) == []


DEAD = "has no transitions and is not final, so all strings that reach it are rejected; is its name mistyped?"
UNREACHED = "is not reached from the start state, so its lines are ignored; is its name mistyped?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 1 a a\n1 0 b b\n0\n", []),  # missing transitions are no mistake
        ("0 1 a\n0 0 b\n1", []),  # a final state needs no transitions
        ("0 1 a a\n1 O b b\n0\n", [f"line 2: state 'O' {DEAD}"]),
        ("0 1 a a\n1 0 b b\n11 0 a a\n0\n", [f"line 3: state '11' {UNREACHED}"]),
        ("0 1 a a\n1 0 b b\n7\n0\n", [f"line 3: state '7' {UNREACHED}"]),  # a final line alone
        ("0 0 a a\n0 0 b b\n0\n1 2 a a\n2 3 a a\n3 3 a a\n", [f"line 4: state '1' {UNREACHED}"]),  # a chain: its first
        ("0 0 a a\n0\n1 2 a a\n2 1 a a\n", [f"line 3: state '1' {UNREACHED}"]),  # a cycle
        ("0 0 a a\n0\n1 1 a a\n", [f"line 3: state '1' {UNREACHED}"]),  # a loop is no way into a state
        ("q0 q1 a a\nq1 ql b b\nq1\nq2\n", [f"line 2: state 'ql' {DEAD}", f"line 4: state 'q2' {UNREACHED}"]),
        ("0 1 a x\n0 2 b y\n", []),  # a Mealy machine: the last transition has an output too
        ("0 1 a x\n1 1 a y\n5 1 a y\n", [f"line 3: state '5' {UNREACHED}"]),
    ],
)
def test_states_that_look_mistyped_are_named(text: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.att"
    path.write_text(text)
    assert warnings_of(path) == expected


def test_only_a_few_states_that_look_mistyped_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.att"
    for count, lines in ((1, 1), (4, 4), (5, 4), (90, 4)):
        path.write_text("0 0 a a\n0\n" + "".join(f"{k} 0 a a\n" for k in range(1, count + 1)))
        texts = warnings_of(path)
        assert len(texts) == lines
    assert texts[-1] == "87 more states: each is not reached from the start state, so its lines are ignored"


def test_a_text_without_a_file_warns_too() -> None:
    with pytest.warns(FormatWarning, match="^line 2: state 'O' has no transitions"):
        from_att("0 1 a a\n1 O b b\n0\n")


def test_the_command_line_prints_one_line_for_a_mistyped_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.att").write_text("0 1 a a\n1 O b b\n0 0 b b\n1\n")
    code, _, err = run_command(capsys, "tasks", "show", "mine.att")
    assert (code, err) == (0, f"sdssm: warning: mine.att: line 2: state 'O' {DEAD}\n")
