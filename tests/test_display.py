"""Tables that fit the terminal, results as text, HTML and data frames, and numbers as text."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest

from sdssm.cli import output
from sdssm.display import ResultTable
from sdssm.errors import MissingExtraError
from sdssm.evaluation import Evaluation, RunEvaluation
from sdssm.evaluation.tables import DETAILS, tabulate_evaluations
from sdssm.formatting import format_percent
from sdssm.text_tables import fit_table, text_width, wrap_text
from tests.programs import run_command

#: The tables of `sdssm runs`, `sdssm evaluate` and `sdssm train`: headers, a row, numbers.
RUNS = {
    "folder": "runs/a5-paper-lr-0.01/seed-0",
    "task": "a5",
    "model": "complex-diagonal",
    "preset": "scale-free",
    "seed": "10",
    "status": "interrupted",
    "step": "100,000/1,000,000",
    "accuracy %": "100.00",
    "loss": "0.0001",
    "balanced chance %": "1.67",
    "mean % to length": "100.00 to 500",
}
EVALUATION = {
    "task": "a5",
    "model": "sd-ssm",
    "settings": "paper, lr 0.01, state 32",
    "seed": "0",
    "to length": "500",
    "balanced": "99.98",
    "balanced chance": "1.67",
    "accuracy": "99.99",
    "best constant": "1.96",
    "95 % band": "99.28-100.00",
    "training lengths": "100.00",
    "beyond": "99.98",
    "covering": "99.97",
    "covering constant": "1.96",
    "first below 99": "never",
    "radius": "1.000",
}
LENGTHS = {"task": "a5", "model": "sd-ssm", "seed": "0", "at 500": "100.00", "at 5,000": "99.98", "at 50,000": "97.01"}
LENGTHS |= {"mean to 500": "100.00", "mean to 5,000": "99.99", "mean to 50,000": "98.50"}
LENGTHS |= {"balanced": "99.98", "balanced chance": "1.67", "covering": "99.97", "best constant": "1.67 to 1.96"}
TRAINED = {
    "balanced %": "100.00",
    "balanced chance %": "1.67",
    "accuracy %": "100.00",
    "loss": "0.0001",
    "steps": "1,000,000",
    "seconds": "12,345.6",
}
TRAINED |= {"status": "finished", "folder": "runs/parity+cycle-mamba-paper/seed-0"}
TEXTS = ("folder", "task", "model", "preset", "status", "settings")
IDENTITY: tuple[str, ...] = (
    "folder",
    "task",
    "model",
    "seed",
    "accuracy %",
    "balanced chance %",
    "accuracy",
    "balanced chance",
    "at 500",
)
IDENTITY += ("at 50,000", "balanced", "best constant", "best constant %", "balanced %")


def shown(table: dict[str, str], width: int) -> list[str]:
    """Print a table on a terminal of this width and return its lines."""
    right = [name for name in table if name not in TEXTS]
    fitted = fit_table(list(table), [list(table.values())] * 2, right=right, width=width)
    return [*fitted.header, *fitted.body, *fitted.note(output.NARROW_ADVICE, width)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("table", [RUNS, EVALUATION, LENGTHS, TRAINED], ids=["runs", "evaluate", "lengths", "train"])
def test_tables_fit_and_keep_what_identifies_a_row(table: dict[str, str], width: int) -> None:
    lines = shown(table, width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for name, value in table.items():
        is_left_out = "columns left out: " in text and name in text.partition("columns left out: ")[2]
        assert not is_left_out or name not in IDENTITY
        if not is_left_out and name in TEXTS:  # it may be wrapped
            assert name in text and wrap_text(value, 4)[0] in text
        elif not is_left_out:  # a number is on one line
            assert any(value in line for line in lines), name


def test_the_least_useful_columns_are_left_out_and_named() -> None:
    lines = shown(RUNS, 100)
    assert lines[-1] == "columns left out: preset, status, step, loss; to see them, widen the terminal or add | less -S"
    assert "100.00 to 500" in lines[2]
    assert not any("left out" in line for line in shown(RUNS, 200))
    fitted = fit_table(["a", "b", "c"], [["1", "2" * 9, "3" * 9]], right=["a", "b", "c"], width=12, keep=["c"])
    assert fitted.left_out == ["b"]
    fitted = fit_table(["a", "b", "c"], [["1", "2" * 9, "3" * 9]], right=["a", "b", "c"], width=12, drop=["c"])
    assert fitted.left_out == ["c"]


def test_words_are_not_broken_to_save_columns() -> None:
    """Beside a long folder, the name of a task stays whole, and a model breaks after a hyphen."""
    row = {**RUNS, "folder": "runs/experiments/arithmetic/complex-diagonal-d0460f2b1326/seed-0", "task": "arithmetic"}
    lines = shown(row, 80)
    assert {"arithmetic", "complex-", "diagonal"} <= set(" ".join(lines).split())
    for name in ("experiments", "d0460f2b1326", "seed-0"):  # parts of the folder
        assert any(name in line for line in lines), name


def test_columns_too_many_for_the_width_become_blocks() -> None:
    lines = shown(RUNS, 40)
    assert lines[:3] == [
        "folder             runs/",
        "                   a5-paper-lr-0.01/",
        "                   seed-0",
    ]
    assert len(lines) == 2 * 13 + 1 and lines[13] == ""


@pytest.mark.parametrize("text", ["", " ", "a", "x" * 30, "runs/a/b c, d", "自動 機 械" * 4, "state-space model / 2"])
def test_wrapped_text_is_complete(text: str) -> None:
    for width in (2, 5, 9):
        lines = wrap_text(text, width)
        assert all(text_width(line) <= width for line in lines)
        assert "".join("".join(lines).split()) == "".join(text.split())


def test_title_and_notes_are_wrapped() -> None:
    table = ResultTable(["task"], [["a5"]], title="three words here", notes=["1 note: a\n2", ""])
    assert table.to_text(9).splitlines() == ["three", "words", "here", "task", "a5", "1 note: a", "2"]
    assert table.to_text().splitlines() == ["three words here", "task", "a5", "1 note: a", "2"]


def test_in_a_pipe_the_table_has_its_full_width(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(list(RUNS), [list(RUNS.values())], right=["seed"])
    out = capsys.readouterr().out
    assert out.count("\n") == 2 and len(out.splitlines()[0]) > 120


@pytest.mark.parametrize("has_rich", [False, True])
def test_on_a_terminal(has_rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles are wrapped below their headers; with rich the header is bold."""
    if has_rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setattr(output, "find_spec", lambda _: None)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, _ = run_command(capsys, "reproduce", "--list")
    lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in out.splitlines()]
    assert code == 0 and max(map(len, lines)) <= 60
    assert lines[0].split() == ["experiment", "runs", "title"]
    assert any(line.startswith(" " * lines[0].index("title")) for line in lines)
    output.print_facts("a5", {"what it is": "long words " * 20, "size": "1"})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60 and lines[-1].split() == ["size", "1"]


# -- results -----------------------------------------------------------------------------------------------------------

RUN = RunEvaluation(
    task="a5",
    model="sd-ssm",
    seed=0,
    train_length=2,
    max_length=3,
    mean=99.999,
    mean_within=100.0,
    mean_beyond=99.998,
    first_below_99=None,
    accuracy=(100.0, 100.0, 99.998),
    lengths=None,
    mean_band=None,
    within_band=None,
    beyond_band=None,
    accuracy_low=(99.0, 99.0, 98.0),
    accuracy_high=(100.0, 100.0, 100.0),
    mean_to=None,
    spectral_radius=None,
    strings=512,
    string_seed=1,
    read="prefixes",
    folder="runs/<a5>/seed-0",
    chance=100 / 60,
)


def test_an_evaluation_is_a_table() -> None:
    evaluation = Evaluation((RUN, replace(RUN, seed=1, mean=math.nan, mean_within=None, note="a remark")))
    assert str(evaluation) == (
        "2 runs: accuracy in %, on 512 strings of each length, mean over lengths\n"
        "task  model   seed  to length  accuracy  chance  training lengths  beyond\n"
        "a5    sd-ssm     0          3     99.99    1.67            100.00   99.99\n"
        "a5    sd-ssm     1          3         -    1.67                 -   99.99\n"
        "a remark (runs/<a5>/seed-0)"
    )
    assert repr(evaluation) == "<Evaluation: 2 runs, accuracy 99.99 %, chance 1.67 %>"
    assert repr(RUN) == "<RunEvaluation: sd-ssm on a5, seed 0: accuracy 99.99 % to length 3, chance 1.67 %>"
    assert repr(Evaluation((RUN,))) == "<Evaluation: sd-ssm on a5, seed 0: accuracy 99.99 % to length 3, chance 1.67 %>"
    assert str(Evaluation(())) == "no runs" and "no runs" in Evaluation(())._repr_html_()
    listed = replace(RUN, lengths=(2, 5000), accuracy=(100.0, 50.0), accuracy_low=(0.0, 0.0), accuracy_high=(1.0, 1.0))
    assert str(listed).splitlines()[1:] == [
        "task  model   seed    at 2  at 5,000  chance",
        "a5    sd-ssm     0  100.00     50.00    1.67",
    ]


def test_a_detailed_table_has_more_columns() -> None:
    """`sdssm evaluate` prints it; the other columns are those that the result itself prints."""
    for run in (RUN, replace(RUN, lengths=(1, 2, 3), mean_to=(1.0, 2.0, 3.0), spectral_radius=(1.0, 0.5))):
        headers, detailed = (tabulate_evaluations([run], detailed=more).headers for more in (False, True))
        assert headers == Evaluation((run,)).to_table().headers
        assert headers == [header for header in detailed if not header.startswith(DETAILS)] != detailed
    words = tabulate_evaluations([RUN, RUN], settings=["lr 0.1", ""])
    assert [row[2] for row in words.rows] == ["lr 0.1", "-"] and words.headers[2:4] == ["settings", "seed"]
    assert len(tabulate_evaluations([RUN, RUN], settings=["", ""]).headers) == len(words.headers)  # now the folder


def test_runs_that_look_alike_show_their_folders() -> None:
    """Trainings of one task, model and seed may differ in their settings."""
    lines = str(Evaluation((RUN, replace(RUN, folder="runs/other")))).splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["folder", "runs/<a5>/seed-0", "runs/other"]
    html = Evaluation((RUN, RUN))._repr_html_()
    assert "runs/&lt;a5&gt;/seed-0" in html and "<a5>" not in html
    assert html.count("<tr>") == 3 and '<td style="text-align: right">99.99</td>' in html


def test_the_data_frame_has_a_row_for_each_run_and_length() -> None:
    pytest.importorskip("pandas")
    frame = Evaluation((RUN, replace(RUN, seed=1))).to_pandas()
    assert list(frame["seed"]) == [0, 0, 0, 1, 1, 1] and list(frame["length"]) == [1, 2, 3] * 2
    assert list(frame["accuracy"][:3]) == [100.0, 100.0, 99.998] and set(frame["task"]) == {"a5"}
    assert {"model", "chance", "accuracy_low", "accuracy_high", "train_length", "folder"} <= set(frame.columns)


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"to_pandas needs pandas; install sdssm\[pandas\]"):
        Evaluation((RUN,)).to_pandas()
    assert str(Evaluation((RUN,))).startswith("1 run: accuracy in %")


def test_only_a_perfect_accuracy_looks_perfect() -> None:
    assert [format_percent(value) for value in (99.999, 100.0, 11.796875, 0.0, math.nan)] == [
        "99.99",
        "100.00",
        "11.79",
        "0.00",
        "-",
    ]
    assert str(ResultTable([], [], title="nothing")) == "nothing"
