from __future__ import annotations

from pathlib import Path

import pytest

from sdssm.experiments.planning.plan import fingerprint, make_plan
from sdssm.experiments.planning.selection import Narrowing
from sdssm.experiments.results.claims import NEEDED, check_claims
from sdssm.experiments.results.timing import MODES, RATIO
from sdssm.experiments.specs.catalogue import published_numbers, published_rows, spec_named, spec_names
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.scores import Score, SpecError

EXPECTED = {
    "table1", "length-efficiency", "runtime", "c2xc30-d30", "two-layers", "mlp-readout", "complex-layers", "claims",
    "default", "groups", "short", "more-models", "official", "beyond", "literature-search",
}  # fmt: skip
TRAINED = sorted(EXPECTED - {"runtime", "claims"})
OURS = {"more-models", "beyond"}  # nothing was published to stand beside them


def test_all_of_them_are_there() -> None:
    assert set(spec_names()) == EXPECTED


@pytest.mark.parametrize("name", TRAINED)
def test_every_row_and_task_is_a_valid_training(name: str, tmp_path: Path) -> None:
    """`make_plan` resolves the settings of every run and makes every model once."""
    spec = spec_named(name)
    plan = make_plan(spec, tmp_path / "runs")
    assert {(run.row, run.column) for run in plan.runs} == set(spec.cells())
    assert not (tmp_path / "runs").exists()
    settings = {run.folder: run.config.settings for run in plan.runs}
    for run in plan.runs:  # one folder, one training
        assert run.folder.parent.name == f"{run.config.model.name}-{fingerprint(run.config)}"
        assert run.config.settings == settings[run.folder]


@pytest.mark.parametrize("name", sorted(set(TRAINED) - OURS))
def test_published_numbers_belong_to_cells(name: str) -> None:
    spec = spec_named(name)
    published = published_numbers(spec)
    assert published
    assert set(published) <= set(spec.cells())
    assert all(one.source and (one.max is not None or one.average is not None) for one in published.values())
    assert all(0 <= value <= 100 for one in published.values() for value in (one.max, one.average) if value is not None)


def test_some_published_numbers() -> None:
    table1, two = (published_numbers(spec_named(name)) for name in ("table1", "two-layers"))
    assert (table1["SD-SSM", "arithmetic"].max, table1["SD-SSM", "arithmetic"].average) == (99.9, 98.5)
    assert table1["Transformer", "cycle"].max == 73.6
    assert two["S4D, 2 layers", "even_pairs"].max == 67.2
    assert ("S4, 1 layer", "parity") not in two  # not reported
    assert len(table1) == 7 * 4 + 4 * 4


def test_the_paper_s_ranges() -> None:
    spec = spec_named("table1")
    assert [score.name for score in spec.evaluate.scores] == ["all", "beyond", "50..500"]
    assert {row.label: row.score for row in spec.rows}["Transformer"] == "50..500"
    for run in make_plan(spec_named("short"), Path("runs")).runs:
        assert run.config.train.validate_length == 40


def test_runtime_and_claims_agree_with_their_files() -> None:
    runtime, claims = spec_named("runtime"), spec_named("claims")
    lengths = {str(length) for length in runtime.timing.lengths}
    assert {row for row, _ in published_numbers(runtime)} == {*MODES, RATIO}
    assert {column for _, column in published_numbers(runtime)} <= lengths
    check_claims(claims)
    assert [claim.id for claim in claims.claims] == [line["id"] for line in published_rows(claims, NEEDED)]


def test_trainings_are_shared() -> None:
    """What two tables have in common is one folder."""
    one, other = (make_plan(spec_named(name), Path("runs")) for name in ("table1", "two-layers"))
    mamba = {run.folder for run in one.runs if run.row == "Mamba"}
    assert mamba == {run.folder for run in other.runs if run.row == "Mamba, 1 layer"}
    grids = "grid = { lr = [0.1, 0.2] }" + ROW + 'label = "part"\ngrid = { lr = [0.2] }'
    searched = make_plan(parse_spec('name = "x"' + ROW + grids, source="x"), Path("runs"))
    assert (len(searched.runs), len(searched.wanted())) == (9, 6)  # a part of a search is not trained again


def test_another_budget_is_another_training() -> None:
    spec = parse_spec('name = "x"' + ROW, source="x")
    whole, scaled = (make_plan(spec, Path("runs"), Narrowing(budget=budget)) for budget in (1, 0.05))
    assert {run.folder for run in scaled.runs}.isdisjoint(run.folder for run in whole.runs)
    assert {run.config.train.steps for run in scaled.runs} == {2_000}
    assert {run.training for run in scaled.runs} == {run.training for run in whole.runs}


def test_narrowing() -> None:
    spec = spec_named("table1")
    plan = make_plan(spec, Path("runs"), Narrowing(models=["rnn", "sd-ssm"], tasks=["A5"], seeds=[7]))
    assert [(run.row, run.column, run.config.seed) for run in plan.wanted()] == [("RNN", "a5", 7), ("SD-SSM", "a5", 7)]
    with pytest.raises(SpecError, match="no model 'rn'; did you mean 'rnn'"):
        make_plan(spec, Path("runs"), Narrowing(models=["rn"]))
    with pytest.raises(SpecError, match="no task 'd30'"):
        make_plan(spec, Path("runs"), Narrowing(tasks=["d30"]))
    with pytest.raises(SpecError, match="budget is 0"):
        Narrowing(budget=0)


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
        ('name = "x"' + ROW + ROW, "two rows are called 'lstm'"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["al"]', "a score is 'al'"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["9..2"]', "not above the last"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["to 50"]', "needs 50 among the lengths"),
        ('name = "x"' + ROW + '[evaluate]\nscores = ["at 50"]', "needs 50 among the lengths"),
        ('name = "x"' + ROW + '[evaluate]\nmax_length = "a"', "max_length is 'a'"),
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
def test_bad_specs(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(text, source="mine.toml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine.toml")


def test_bad_settings_are_told_before_anything_begins() -> None:
    spec = parse_spec('name = "x"' + ROW + "settings = { stat = 3 }", source="mine.toml")
    with pytest.raises(SpecError, match="row 'lstm': there is no setting 'stat'; did you mean 'state'"):
        make_plan(spec, Path("runs"))
    spec = parse_spec('name = "x"' + ROW + "settings = { validate_length = 400 }", source="mine.toml")
    with pytest.raises(SpecError, match="test lengths choose nothing"):
        make_plan(spec, Path("runs"))


def test_unknown_experiments(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no experiment 'table2'; did you mean 'table1'"):
        spec_named("table2")
    with pytest.raises(SpecError, match="cannot read"):
        spec_named(tmp_path / "none.toml")
    spec = parse_spec('name = "x"\npublished = "tabel1.csv"' + ROW, source="x", folder=tmp_path)
    with pytest.raises(SpecError, match="no published file 'tabel1.csv'; did you mean 'table1.csv'"):
        published_numbers(spec)
    (tmp_path / "tabel1.csv").write_text("row,column\n")
    with pytest.raises(SpecError, match="has no column 'max'"):
        published_numbers(spec)


def test_scores_of_lengths_named_one_by_one() -> None:
    assert Score("to 50").far({"lengths": [20, 50], "mean_to": [99.0, 88.0]}) == 88.0
    assert Score("to 50").far({}) is None
    listed = {"lengths": [20, 50], "accuracy": [99.0, 77.0], "accuracy_low": [98.0, 70.0], "accuracy_high": [100, 80]}
    assert (Score("at 50").far(listed), Score("at 50").far_band(listed)) == (77.0, (70.0, 80.0))
    assert (Score("at 30").far(listed), Score("at 30").far_band(listed), Score("to 50").far_band(listed)) == (None,) * 3
    assert Score("all").band({"max_length": 4, "mean_band": [1.0, 2.0]}, 3) is None
