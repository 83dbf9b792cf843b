"""Experiments with models of others: specs, plans, worker processes, results and sweeps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import sdssm
from sdssm.cli import main
from sdssm.errors import ModelError
from sdssm.experiments import Selection, SpecError, get_spec, make_plan
from sdssm.models.registry import find_entry
from sdssm.models.sent_models import (
    SentModel,
    import_sent_models,
    packages_to_send,
    send_models,
)
from sdssm.models.settings import default_settings
from sdssm.report.tables import make_table, write_tables
from tests.strangers import PACKAGE, SUM, forget_models, is_imported, stranger

__all__ = ["stranger"]
TEXT = f"""
name = "mine"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 8
strings = 16
[[rows]]
model = "{SUM}"
settings = {{ state = 3, batch = 8, steps = 4, train_length = 6 }}
"""


@pytest.fixture
def spec_path(stranger: Path, tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


def test_an_experiment_is_reproduced_with_worker_processes(spec_path: Path) -> None:
    reproduction = sdssm.reproduce(spec_path, device="cpu", workers=2)
    (first, *_) = reproduction.results["cells"]
    assert (first["row"], first["column"], first["chance"], first["seeds"]) == (SUM, "parity", 50.0, 2)
    assert {run["model"] for run in reproduction.results["runs"]} == {SUM}
    (folder,) = Path("runs/experiments/parity").iterdir()
    assert folder.name.startswith(f"{PACKAGE}.nets_Sum-") and len(list(folder.iterdir())) == 2
    write_tables(reproduction.folder)
    assert SUM in (reproduction.folder / "table.md").read_text()
    stored = json.loads((reproduction.folder / "results.json").read_text())
    forget_models()
    assert SUM in str(make_table(stored)) and not is_imported()  # tables need the results alone


def test_a_spec_imports_its_models_and_a_selection_names_them_by_path(spec_path: Path) -> None:
    spec = get_spec(spec_path)
    assert is_imported() and spec.rows[0].preset == "auto"
    plan = make_plan(spec, Path("runs"), Selection(models=[SUM], seeds=1))
    assert [(run.config.model.name, run.config.settings.values_by_name()["state"]) for run in plan.runs] == [(SUM, 3)]
    assert [run.config.preset for run in plan.runs] == ["default"]
    spec_path.write_text(TEXT.replace("state = 3", "stat = 3"))
    with pytest.raises(SpecError, match=f"row '{SUM}': there is no setting 'stat'; did you mean 'state'"):
        make_plan(get_spec(spec_path), Path("runs"))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_the_options_of_a_model_are_searched(search: str, stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if search == "optuna":
        pytest.importorskip("optuna")
    space = ["--grid", "state=2,3"] if search == "grid" else ["--range", "state=2..4", "gain=0.5..2", "--trials", "2"]
    fixed = ["--set", "steps=4", "batch=8", "train_length=6", "--max-length", "8", "--device", "cpu", "--quiet"]
    assert main(["sweep", "parity", "--model", SUM, "--search", search, *space, *fixed]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "state" in out and "chance" in out
    (folder,) = Path("results").iterdir()
    assert folder.name.startswith(f"sweep-parity-{PACKAGE}.nets_Sum-")
    variants = [run["variant"]["state"] for run in json.loads((folder / "results.json").read_text())["runs"]]
    assert len(variants) == 2 and set(variants) <= {2, 3, 4}


def test_a_dry_run_estimates_the_time(spec_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(spec_path), "--dry-run", "--device", "cpu", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and f"{SUM} on parity" in out and "2 missing" in out


# -- other processes ---------------------------------------------------------------------------------------------------


def sent_models(*names: str) -> tuple[SentModel, ...]:
    return send_models(default_settings(name) for name in names)


def test_workers_are_told_where_the_package_is(stranger: Path, tmp_path: Path) -> None:
    folder = str((tmp_path / "code").resolve())
    assert sent_models("lstm", SUM) == (SentModel(name=SUM, import_path=SUM, folder=folder),)
    assert packages_to_send() == [str(Path(folder) / PACKAGE)]
    find_entry("torch.nn:Embedding")  # installed packages are not sent
    assert packages_to_send() == [str(Path(folder) / PACKAGE)]


def test_a_model_is_known_in_another_process_as_it_is_here(
    stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdssm.register(find_entry(SUM).target, name="mine", defaults={"lr": 0.5})
    models = sent_models("mine")
    forget_models()
    monkeypatch.setattr("sys.path", [path for path in sys.path if path != str(tmp_path / "code")])
    import_sent_models(models)
    assert find_entry("mine").defaults == {"lr": 0.5} and find_entry("mine").import_path == SUM


def test_a_worker_that_cannot_import_a_model_names_its_path(stranger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = sent_models(SUM)
    forget_models()
    monkeypatch.setattr("sys.path", ["/nowhere"])
    models = tuple(SentModel(name=model.name, import_path=model.import_path) for model in models)
    with pytest.raises(ModelError, match=f"cannot import {SUM}: there is no module .*sys.path of the worker: /nowhere"):
        import_sent_models(models)


def test_a_model_that_no_other_process_can_import_is_refused_before_it_is_trained(spec_path: Path) -> None:
    def build(n_symbols: int, n_classes: int, state: int = 3) -> Any:
        return find_entry(SUM).target(n_symbols, n_classes, state)

    sdssm.register(build, name="inner")
    spec_path.write_text(TEXT.replace(SUM, "inner"))
    with pytest.raises(ModelError, match="'inner' was defined inside a function or a session"):
        sdssm.reproduce(spec_path, device="cpu", workers=2)
    assert list(Path().iterdir()) == []
    reproduction = sdssm.reproduce(spec_path, device="cpu", seeds=1)  # this process has it
    assert [run["model"] for run in reproduction.results["runs"]] == ["inner"]
