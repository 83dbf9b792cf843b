"""Which code a name or a folder stands for: plug-ins, files that move or share a name, notebooks, and what may run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import sdssm
from sdssm.errors import ModelError, RunError, SdssmError
from sdssm.experiments.planning.fingerprints import fingerprint
from sdssm.layers.recurrent import Rnn
from sdssm.models import registry
from sdssm.models.recorded_models import find_recorded_entry
from sdssm.models.registry import find_entry, register
from sdssm.models.settings import default_settings
from sdssm.runs.schema import create_config, resolve_settings
from tests.edited_files import edit_json

CODE = """
import torch
class Net(torch.nn.Module):
    shift = {shift}
    def __init__(self, n_symbols, n_classes, width=2):
        super().__init__()
        self.table = torch.nn.Embedding(n_symbols, n_classes)
    def forward(self, tokens):
        return self.table(tokens) + self.shift
"""
SMALL: dict[str, Any] = {"steps": 1, "settings": {"batch": 2, "train_length": 3}, "device": "cpu"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty current folder and no registered models."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all models of others, as in a new process."""
    monkeypatch.setattr(registry, "_registered", {})
    for name, module in list(sys.modules.items()):
        if hasattr(module, "__sdssm_file__"):
            del sys.modules[name]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def install(monkeypatch: pytest.MonkeyPatch, name: str, path: str) -> None:
    points = EntryPoints([EntryPoint(name, path, registry.ENTRY_POINTS)])
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


# -- plug-ins ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["name", "folder", "trusted folder"])
def test_a_package_in_the_current_folder_does_not_replace_an_installed_plugin(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("site/good_package/__init__.py", CODE.format(shift=0))
    write("here/good_package/__init__.py", "raise AssertionError('hostile code ran')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "here")
    install(monkeypatch, "good-net", "good_package:Net")
    if how == "name":
        entry = find_entry("good-net")
    else:
        entry = find_recorded_entry("good-net", "good_package:Net", trust=how != "folder", source="x")
    assert entry.target.shift == 0 and entry.name == "good-net"


def test_a_path_that_the_user_types_is_searched_in_the_current_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("site/own_package/__init__.py", CODE.format(shift=0))
    write("here/own_package/__init__.py", CODE.format(shift=1))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "here")
    assert find_entry("own_package:Net").target.shift == 1


# -- notebooks ---------------------------------------------------------------------------------------------------------


def test_a_class_that_a_notebook_defines_again_replaces_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    for shift in (0, 1):
        cell = {"__name__": "__main__"}
        exec(CODE.format(shift=shift), cell)
        runs = sdssm.train("parity", model=cell["Net"], out=f"out-{shift}", **SMALL)
        assert find_entry("Net").target is cell["Net"] and runs[0].status == "finished"
    assert find_entry("Net").target.shift == 1
    with pytest.raises(ModelError, match=r"'Net' is already taken .* or call sdssm.models.forget\('Net'\) first"):
        register(nn.Linear, name="Net")
    sdssm.models.forget("Net")
    register(nn.Embedding, name="Net")


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["new/model.py:Net", "renamed.py:Net"])
def test_a_run_is_loaded_after_its_file_has_moved(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("old/model.py", CODE.format(shift=0))
    sdssm.train("parity", model="old/model.py:Net", out="runs", **SMALL)
    start_again(monkeypatch)
    write(named.rpartition(":")[0], Path("old/model.py").read_text())
    Path("old/model.py").unlink()
    with pytest.raises(ModelError, match=r"would import .*old/model.py:Net"):
        sdssm.load("runs")
    assert sdssm.resume("runs", model=named, device="cpu")[0].status == "finished"
    if named == "renamed.py:Net":
        register(find_entry(named).target, name="model.py:Net")
    assert sdssm.load("runs").name == "model.py:Net"
    assert sdssm.evaluate("runs", max_length=2, strings=2).runs[0].model == "model.py:Net"


def test_two_files_of_one_name_are_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, folder in enumerate("ab"):
        write(f"{folder}/model.py", CODE.format(shift=number))
    write(
        "two.toml",
        'name = "two"\ntasks = ["parity"]\n[[rows]]\nlabel = "one"\nmodel = "a/model.py:Net"\n[[rows]]\nlabel = "other"'
        '\nmodel = "b/model.py:Net"\n',
    )
    assert [row.model for row in sdssm.experiments.get_spec("two.toml").rows] == ["model.py:Net", "b/model.py:Net"]
    for number, folder in enumerate("ab"):
        assert find_entry(f"{folder}/model.py:Net").target.shift == number
        monkeypatch.setattr(registry, "_registered", {})
        sdssm.train("parity", model=f"{folder}/model.py:Net", out=f"r{folder}", **SMALL)
    start_again(monkeypatch)
    result = sdssm.evaluate(["ra", "rb"], max_length=2, strings=2, trust=True)
    assert [run.model for run in result.runs] == ["model.py:Net"] * 2
    for number, folder in enumerate("ab"):
        assert sdssm.load(f"r{folder}").module.shift == number
    write("model.py", CODE.format(shift=7))
    assert find_entry("model.py:Net").target.shift == 7  # the file, not the model that has its name


def test_fingerprints_distinguish_files_but_models_of_the_catalogue_have_none() -> None:
    for folder in "ab":
        write(f"{folder}/model.py", CODE.format(shift=0))
    task = sdssm.task("parity")
    prints = set()
    for folder in "ab":
        settings = resolve_settings(f"{folder}/model.py:Net", "default", "parity")
        prints.add(fingerprint(create_config(task, 0, settings, "default")))
        sdssm.models.forget("model.py:Net")
    assert len(prints) == 2


def test_a_module_beside_another_file_is_not_taken_for_ones_own() -> None:
    for number, folder in enumerate("ab"):
        write(f"{folder}/layers_of_mine.py", f"shift = {number}")
        write(f"{folder}/model.py", "from layers_of_mine import shift\n" + CODE.format(shift="shift"))
    assert find_entry("a/model.py:Net").target.shift == 0
    with pytest.raises(ModelError, match=r"b/model.py imports 'layers_of_mine', .*but .*a/layers.* is loaded .*rename"):
        find_entry("b/model.py:Net")
    del sys.modules["layers_of_mine"]
    assert find_entry("b/model.py:Net").target.shift == 1


# -- what a folder can do with trust -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["subprocess:Popen", "os:system", "builtins:eval", "torch:os.system"])
@pytest.mark.parametrize("n_symbols", [2, "touch written"])
def test_a_trusted_folder_calls_only_what_builds_models(path: str, n_symbols: object, tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    model = {"name": "evil", "import_path": path, "options": {"shell": True} if "Popen" in path else {}}
    write("config.json", json.dumps({"model": model, "n_symbols": n_symbols, "n_classes": -1}))
    with pytest.raises(ModelError, match="is not an nn.Module; pass|is part of Python and builds no model"):
        sdssm.load(tmp_path, trust=True)
    assert not Path("written").exists()


@pytest.mark.parametrize("size", ["2", 0, 2.5, True, None])
def test_sizes_are_checked_before_code_of_others_gets_them(size: object) -> None:
    def build(n_symbols: int, n_classes: int) -> nn.Module:
        raise AssertionError(f"it was called with {n_symbols}")

    register(build)
    with pytest.raises(ModelError, match=f"n_symbols is '?{size}'?; it must be a whole number of at least 1"):
        sdssm.models.building.untrained_model(default_settings("build"), size, 2, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [[1], None, {"x": {"a": 1}}, {"x": [[1]]}, {"a b": 1}, {"class": 2}, {"values": 1}, "x"]
)
def test_options_that_a_file_cannot_hold_are_refused_in_one_line(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(n_symbols: int, n_classes: int, values: int = 3) -> nn.Module:
        return nn.Embedding(n_symbols, n_classes)

    sdssm.train("parity", model=build, out="runs", **SMALL)  # an option called `values` is nothing special
    path = Path("runs/seed-0/config.json")
    config = json.loads(path.read_text())
    assert config["model"]["options"] == {"values": 3}
    edit_json(path, model={**config["model"], "options": options})
    if options == {"values": 1}:
        sdssm.load("runs")
        monkeypatch.setattr(registry, "_registered", {})
        assert sdssm.runs.find_runs("runs")[0].config.settings.values_by_name()["values"] == 1
        return
    for _ in range(2):
        with pytest.raises(RunError, match="option.* of the model") as caught:
            sdssm.runs.find_runs("runs")
        assert "\n" not in str(caught.value)
        with pytest.raises(SdssmError):
            sdssm.load("runs", trust=True)
        monkeypatch.setattr(registry, "_registered", {})


# -- registering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("defaults", "message"),
    [({"lrr": 1}, "no setting 'lrr'; did you mean 'lr'"), ({"steps": "many"}, "steps is 'many'")],
)
def test_defaults_are_checked_when_a_model_is_registered(defaults: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"the defaults of the model 'mine': .*{message}"):
        register(nn.Embedding, name="mine", defaults=defaults)
    assert "mine" not in sdssm.list_models()


def test_a_subclass_of_a_mixer_does_not_inherit_its_name() -> None:
    class Mine(Rnn):
        pass

    class Yours(Rnn):
        pass

    register(Mine)
    register(Yours, name="rnn-2")
    assert (find_entry(Mine).name, find_entry(Yours).name, Rnn.name) == ("Mine", "rnn-2", "rnn")
    model = sdssm.models.building.untrained_model(default_settings("rnn-2"), 2, 2, seed=0)
    assert isinstance(model.mixers[0], Yours)


def test_one_run_that_needs_trust_stops_the_evaluation_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write("model.py", CODE.format(shift=0))
    sdssm.train("parity", model="model.py:Net", out="runs/mine", **SMALL)
    sdssm.train("parity", model="rnn", out="runs/rnn", **SMALL)
    start_again(monkeypatch)
    with pytest.raises(ModelError, match=r"runs/mine/seed-0 holds .*would import .*model.py:Net"):
        sdssm.evaluate("runs", max_length=2, strings=2)
    assert not list(Path("runs").rglob("evaluation*"))


def test_a_module_that_was_built_already_is_not_said_to_be_defined_in_a_session() -> None:
    sdssm.models.wrap_module(nn.Embedding(2, 2), 2, 2).save("saved")
    with pytest.raises(ModelError, match="or saved from a module that was built already; register .* as 'Embedding'"):
        sdssm.load("saved", trust=True)
    register(nn.Embedding)
    assert sdssm.load("saved").name == "Embedding"
