"""Experiments as TOML: the packaged ones, published numbers, and invalid specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sdssm.experiments.planning.fingerprints import fingerprint
from sdssm.experiments.planning.plan import make_plan
from sdssm.experiments.planning.selection import Selection
from sdssm.experiments.results.claims import COLUMNS, check_claims
from sdssm.experiments.results.timing import MODES, RATIO
from sdssm.experiments.specs.catalogue import (
    get_spec,
    list_experiments,
    published_numbers,
    published_rows,
    summarise_experiments,
)
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.scores import Score, SpecError
from sdssm.runs.schema import choose_preset

EXPECTED = {
    "table1", "length-efficiency", "runtime", "c2xc30-d30", "two-layers", "mlp-readout", "complex-layers", "claims",
    "default", "groups", "short", "more-models", "official", "beyond", "literature-search", "overview",
    "regular-21", "word-problem", "exact-gradient", "default-exact-gradient",
}  # fmt: skip
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "experiments.md"
TRAINED = sorted(EXPECTED - {"runtime", "claims"})
UNPUBLISHED = {
    "more-models",
    "beyond",
    "overview",
    "word-problem",
    "default-exact-gradient",
}  # the paper has no numbers for them


def test_all_experiments_are_listed() -> None:
    assert set(list_experiments()) == EXPECTED
    assert list_experiments()[:3] == ["table1", "length-efficiency", "runtime"]


def test_the_reference_lists_all_experiments() -> None:
    """Names and numbers of runs in the documentation are those of `sdssm reproduce --list`."""
    section = REFERENCE.read_text().partition("## Options")[0]
    lines = re.findall(r"^\| `([\w-]+)` \| (\d+|-) \|", section, re.MULTILINE)
    listed = [(summary.name, str(summary.runs or "-")) for summary in summarise_experiments()]
    assert lines == [*listed, ("mlregtest", "980")]  # the last one reads its languages from a folder


@pytest.mark.parametrize("name", TRAINED)
def test_every_row_and_task_is_a_valid_training(name: str, tmp_path: Path) -> None:
    """`make_plan` resolves the settings of every run and builds every model once."""
    spec = get_spec(name)
    plan = make_plan(spec, tmp_path / "runs")
    assert {(run.row, run.column) for run in plan.runs} == set(spec.cells())
    assert not (tmp_path / "runs").exists()
    [runs] = [summary.runs for summary in summarise_experiments() if summary.name == name]
    assert runs == len(plan.selected_runs())  # as `sdssm reproduce --list` and `--dry-run` count them
    settings = {run.folder: run.config.settings for run in plan.runs}
    for run in plan.runs:  # a folder has one training
        assert run.folder.parent.name == f"{run.config.model.name}-{fingerprint(run.config)}"
        assert run.config.settings == settings[run.folder]


@pytest.mark.parametrize("name", sorted(set(TRAINED) - UNPUBLISHED))
def test_published_numbers_belong_to_cells(name: str) -> None:
    spec = get_spec(name)
    published = published_numbers(spec)
    assert published
    assert set(published) <= set(spec.cells())
    assert all(cell.source and (cell.max is not None or cell.average is not None) for cell in published.values())
    values = [value for cell in published.values() for value in (cell.max, cell.average) if value is not None]
    assert all(0 <= value <= 100 for value in values)


def test_published_numbers_match_the_paper() -> None:
    table1, two = (published_numbers(get_spec(name)) for name in ("table1", "two-layers"))
    assert (table1["SD-SSM", "arithmetic"].max, table1["SD-SSM", "arithmetic"].average) == (99.9, 98.5)
    assert table1["Transformer", "cycle"].max == 73.6
    assert two["S4D, 2 layers", "even_pairs"].max == 67.2
    assert ("S4, 1 layer", "parity") not in two  # not reported
    assert len(table1) == 7 * 4 + 4 * 4


def test_scores_and_lengths_match_the_paper() -> None:
    spec = get_spec("table1")
    assert [score.name for score in spec.evaluate.scores] == ["all", "beyond", "50..500"]
    assert {row.label: row.score for row in spec.rows}["Transformer"] == "50..500"
    for run in make_plan(get_spec("short"), Path("runs")).runs:
        assert run.config.train.validate_length == 40


def test_runtime_and_claims_match_their_published_files() -> None:
    runtime, claims = get_spec("runtime"), get_spec("claims")
    lengths = {str(length) for length in runtime.timing.lengths}
    assert {row for row, _ in published_numbers(runtime)} == {*MODES, RATIO}
    assert {column for _, column in published_numbers(runtime)} <= lengths
    check_claims(claims)
    assert [claim.id for claim in claims.claims] == [line["id"] for line in published_rows(claims, COLUMNS)]


def test_experiments_share_runs() -> None:
    """A training that two tables need has one folder."""
    table1, two_layers = (make_plan(get_spec(name), Path("runs")) for name in ("table1", "two-layers"))
    mamba = {run.folder for run in table1.runs if run.row == "Mamba"}
    assert mamba == {run.folder for run in two_layers.runs if run.row == "Mamba, 1 layer"}
    grids = "grid = { lr = [0.1, 0.2] }" + ROW + 'label = "part"\ngrid = { lr = [0.2] }'
    searched = make_plan(parse_spec('name = "x"' + ROW + grids, source="x"), Path("runs"))
    assert (len(searched.runs), len(searched.selected_runs())) == (9, 6)  # a smaller grid uses the runs of the larger


def test_budget_changes_the_training() -> None:
    spec = parse_spec('name = "x"' + ROW, source="x")
    full, scaled = (make_plan(spec, Path("runs"), Selection(budget=budget)) for budget in (1, 0.05))
    assert {run.folder for run in scaled.runs}.isdisjoint(run.folder for run in full.runs)
    assert {run.config.train.steps for run in scaled.runs} == {2_000}
    assert {run.training for run in scaled.runs} == {run.training for run in full.runs}


def test_selection() -> None:
    spec = get_spec("table1")
    plan = make_plan(spec, Path("runs"), Selection(models=["rnn", "sd-ssm"], tasks=["A5"], seeds=[7]))
    assert [(run.row, run.column, run.config.seed) for run in plan.selected_runs()] == [
        ("RNN", "a5", 7),
        ("SD-SSM", "a5", 7),
    ]
    with pytest.raises(SpecError, match="no model 'rn'; did you mean 'rnn'"):
        make_plan(spec, Path("runs"), Selection(models=["rn"]))
    with pytest.raises(SpecError, match="no task 'd30'"):
        make_plan(spec, Path("runs"), Selection(tasks=["d30"]))
    with pytest.raises(SpecError, match="budget is 0"):
        Selection(budget=0)


ROW = '\n[[rows]]\nmodel = "lstm"\ntasks = ["parity"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\ntitel = "y"' + ROW, "the spec has no key 'titel'; did you mean 'title'"),
        ('name = "x"' + ROW + "sead = 1", "a row has no key 'sead'"),
        ('name = "x"' + ROW.replace("lstm", "lstn"), "there is no model 'lstn'; did you mean 'lstm'"),
        ('name = "x"' + ROW + 'preset = "papre"', "there is no preset 'papre'; did you mean 'paper'"),
        ('name = "x"' + ROW.replace("parity", "parety"), "did you mean 'parity'"),
        ('name = "x"' + ROW + "seeds = 0", "seeds are 0"),
        ('name = "x"' + ROW + "grid = { lr = [] }", "grid lr of row 'lstm' is"),
        ('name = "x"' + ROW + "grid = { lr = [1.0] }\nsettings = { lr = 1.0 }", "in settings and in its grid"),
        ('name = "x"' + ROW + ROW, "two rows 'lstm' have the column 'parity'"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["al"]', "there is no score 'al'"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["9..2"]', "must be at least 1 and at most the last"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["to 50"]', "needs 50 among the lengths"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["at 50"]', "needs 50 among the lengths"),
        ('name = "x"' + ROW + '[evaluate]\nmax_length = "a"', "max_length is 'a'"),
        ('name = "x"' + ROW + "[evaluate]\nmax_length = 0", "max_length is 0; it must be from 1 to 1,000,000"),
        ('name = "x"' + ROW + "[evaluate]\nstrings = 70000", "strings is 70000; it must be from 1 to 65,536"),
        ('name = "x"' + ROW + "[evaluate]\nlengths = [500, 2000000]", "a length is 2000000; it must be from 1 to"),
        ('name = "x"' + ROW + 'score = "within"', "which [evaluate] does not list"),
        ('name = "a/b"' + ROW, "it names a folder"),
        ('name = "x"' + ROW + 'label = "a\\nb"', "on one line"),
        ("title = 3" + ROW, "name is missing"),
        ('name = "x"', "needs at least one"),
        ('name = "x"\nkind = "timing"' + ROW, "a spec of kind timing has no rows"),
        ('name = "x"\nkind = "timin"', "did you mean 'timing'"),
        ("name = ", "is not TOML"),
    ],
)
def test_invalid_specs_are_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(text, source="mine.toml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine.toml")


def test_invalid_settings_are_refused_by_make_plan() -> None:
    spec = parse_spec('name = "x"' + ROW + "settings = { stat = 3 }", source="mine.toml")
    with pytest.raises(SpecError, match="row 'lstm': there is no setting 'stat'; did you mean 'state'"):
        make_plan(spec, Path("runs"))
    spec = parse_spec('name = "x"' + ROW + "settings = { validate_length = 400 }", source="mine.toml")
    with pytest.raises(SpecError, match="test lengths must not choose weights"):
        make_plan(spec, Path("runs"))


def test_unknown_experiments(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no experiment 'table2'; did you mean 'table1'"):
        get_spec("table2")
    with pytest.raises(SpecError, match="cannot read"):
        get_spec(tmp_path / "none.toml")
    spec = parse_spec('name = "x"\npublished = "tabel1.csv"' + ROW, source="x", folder=tmp_path)
    with pytest.raises(SpecError, match="no published file 'tabel1.csv'; did you mean 'table1.csv'"):
        published_numbers(spec)
    (tmp_path / "tabel1.csv").write_text("row,column\n")
    with pytest.raises(SpecError, match="has no column 'max'"):
        published_numbers(spec)


def test_scores_of_listed_lengths() -> None:
    assert Score("to 50").compute_listed({"lengths": [20, 50], "mean_to": [99.0, 88.0]}) == 88.0
    assert Score("to 50").compute_listed({}) is None
    listed = {"lengths": [20, 50], "accuracy": [99.0, 77.0], "accuracy_low": [98.0, 70.0], "accuracy_high": [100, 80]}
    assert (Score("at 50").compute_listed(listed), Score("at 50").listed_band(listed)) == (77.0, (70.0, 80.0))
    assert (
        Score("at 30").compute_listed(listed),
        Score("at 30").listed_band(listed),
        Score("to 50").listed_band(listed),
    ) == (None,) * 3
    assert Score("all").band({"max_length": 4, "mean_band": [1.0, 2.0]}, 3) is None


def test_a_preset_is_chosen_for_each_task(tmp_path: Path) -> None:
    text = 'name = "mine"\n[[rows]]\nmodel = "sd-ssm"\ntasks = ["a5", "dyck4"]\nseeds = 1'
    plan = make_plan(parse_spec(text, source="mine.toml"), tmp_path)
    chosen = {run.task.name: run.config for run in plan.runs}
    assert chosen["a5"].preset == "scale-free" and chosen["a5"].train.sampling == "uniform"
    assert chosen["dyck4"].preset == "states" and chosen["dyck4"].train.sampling == "covering"
    named = make_plan(parse_spec(f'{text}\npreset = "scale-free"', source="mine.toml"), tmp_path)
    assert {run.config.preset for run in named.runs} == {"scale-free"}


@pytest.mark.parametrize("name", ["regular-21", "word-problem"])
def test_experiments_on_languages_train_as_a_user_would(name: str, tmp_path: Path) -> None:
    for run in make_plan(get_spec(name), tmp_path, Selection(seeds=(0,))).runs:
        if run.task.name.startswith("prefix:"):
            assert run.config.preset == "states" and run.config.model.mixer.state > run.task.minimal.n_states
            continue
        if run.config.preset == "states" and run.config.model.mixer.dictionary >= run.task.n_symbols:
            continue  # a column of the word problem: a matrix for each symbol
        assert run.config.preset == choose_preset(run.config.model.name, run.task, run.config.train_length)
