"""Models of others: registering, import paths, entry points, and what a folder may import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.errors import ModelError, RunWarning, SettingsError, UnknownNameError
from sdssm.layers import MIXERS
from sdssm.layers.recurrent import Rnn
from sdssm.layers.settings import MIXER_SETTINGS, MixerSettings
from sdssm.models import registry
from sdssm.models.catalogue import get_preset
from sdssm.models.module_settings import ModuleSettings, option_values, options_class
from sdssm.models.recorded_models import find_recorded_entry
from sdssm.models.registry import find_entry, forget, list_models, register
from sdssm.models.settings import ModelSettings, default_settings
from sdssm.models.train_settings import check_setting_names
from sdssm.runs.schema import resolve_settings
from sdssm.settings import setting_types

CODE = '''
import torch

imported = True

class Table(torch.nn.Module):
    """A table of logits, one row for each symbol."""

    def __init__(self, n_symbols, n_classes, *, scale: float = 1, kind="normal", limit: int | None = None):
        super().__init__()
        self.table = torch.nn.Parameter(scale * torch.randn(n_symbols, n_classes))

    def forward(self, tokens):
        return self.table[tokens]

def build(symbols, classes):
    return Table(symbols, classes)
'''


class Copy(nn.Module):
    def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(n_symbols, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.table(tokens)
        return out


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder."""
    name = "models_of_a_stranger"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    yield name
    for module in [module for module in sys.modules if name in module]:
        del sys.modules[module]


def test_a_registered_name_is_listed_and_found() -> None:
    assert register(Copy, name="copy", defaults={"lr": 0.5}) is Copy
    assert "copy" in list_models() and find_entry("copy").target is Copy
    assert find_entry("copy").import_path == f"{__name__}:Copy"
    assert get_preset("default", "copy", "a5")["lr"] == 0.5
    forget("copy")
    with pytest.raises(UnknownNameError, match="there is no model 'copy'"):
        find_entry("copy")


def test_register_is_a_decorator_with_and_without_a_name() -> None:
    assert register()(Copy) is Copy and find_entry("Copy").target is Copy
    assert register("other")(Copy) is Copy and find_entry("other").target is Copy
    with pytest.raises(ModelError, match="two names"):
        register("one", name="two")


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ModelError, match="'lstm' is already taken by a model of the catalogue; register yours"):
        register(Copy, name="lstm")
    register(Copy, name="copy")
    register(Copy, name="copy")  # a notebook runs a cell again
    with pytest.raises(ModelError, match="'copy' is already taken by .*Copy; register .*Linear under another name"):
        register(nn.Linear, name="copy")


@pytest.mark.parametrize("target", [3, "lstm", None])
def test_only_a_class_or_a_function_is_a_model(target: object) -> None:
    with pytest.raises(ModelError, match="pass a|there is no"):
        registry.add_entry(target) if target is not None else find_entry(None)


def test_a_module_instead_of_its_class_is_refused_with_an_example() -> None:
    built = Copy(2, 2)
    calls: list[Callable[[], object]] = [
        lambda: find_entry(built),
        lambda: register(built, name="mine"),
        lambda: sdssm.train("parity", model=built),
        lambda: sdssm.check(built, "parity", train=True),
    ]
    for call in calls:
        with pytest.raises(ModelError, match=r"built already, a Copy, .*pass its class, as in model=Copy, or a func"):
            call()


@pytest.mark.parametrize("name", ["rnn", "sd-ssm"])
def test_the_class_of_a_mixer_of_the_catalogue_is_that_model(name: str) -> None:
    mixer = MIXERS[name]
    for given in (mixer, f"{mixer.__module__}:{mixer.__name__}"):
        entry = find_entry(given)
        assert entry.name == name and entry.is_in_catalogue
    assert not registry.registered_entries()


@pytest.mark.parametrize("name", ["steps", "lr", "batch", "train_length", "seed", "seeds", "model", "clip"])
def test_an_option_with_the_name_of_a_setting_of_the_training_is_refused(name: str) -> None:
    build = eval(f"lambda n_symbols, n_classes, width=4, *, {name}=1: None")
    with pytest.raises(ModelError, match=f"parameter '{name}' of .* of the training; rename it.*model_{name}"):
        register(build, name="mine")
    assert "mine" not in list_models()


@pytest.mark.parametrize(("name", "what"), [("lr", "of the training"), ("readout", "of the classifier around it")])
def test_a_mixer_with_the_name_of_another_setting_is_refused(name: str, what: str) -> None:
    settings = make_dataclass("OwnSettings", [(name, int, 1)], bases=(MixerSettings,), frozen=True, kw_only=True)
    own = type("Own", (Rnn,), {"name": "own", "Settings": settings})
    with pytest.raises(ModelError, match=f"parameter '{name}' of the mixer Own has the name of a setting {what}"):
        register(own)


def test_no_model_of_the_catalogue_uses_the_name_of_another_setting() -> None:
    for name, settings in MIXER_SETTINGS.items():
        check_setting_names(name, setting_types(settings), setting_types(ModelSettings))
    check_setting_names("the classifier", setting_types(ModelSettings))


def test_an_option_may_have_the_name_of_a_setting_of_a_classifier() -> None:
    def build(n_symbols: int, n_classes: int, mixer: str = "gru", name: str = "x", width: int = 3) -> nn.Module:
        return Copy(n_symbols, n_classes)

    settings = resolve_settings(build, "default", "parity", {"mixer": "lstm", "name": "y", "width": 5})
    assert isinstance(settings.model, ModuleSettings)
    assert option_values(settings.model.options) == {"mixer": "lstm", "name": "y", "width": 5}


@pytest.mark.parametrize("form", ["{}:Table", "{}.py:Table", "./{}.py:Table", "{}:build"])
def test_an_import_path_is_a_model(module_name: str, form: str) -> None:
    path = form.format(module_name)
    entry = find_entry(path)
    assert entry.kind == "module" and find_entry(path) is entry
    assert default_settings(entry.name).import_path == entry.import_path
    assert entry.import_path is not None and entry.import_path.endswith(path.rpartition("/")[2])
    assert str(Path.cwd()) not in sys.path


def test_parameters_with_a_default_are_settings(module_name: str) -> None:
    settings = default_settings(f"{module_name}:Table")
    assert isinstance(settings, ModuleSettings)
    assert option_values(settings.options) == {"scale": 1.0, "kind": "normal", "limit": None}
    with pytest.raises(SettingsError, match="there is no setting 'scales'; did you mean 'scale'"):
        sdssm.train("parity", model=f"{module_name}:Table", settings={"scales": 2})
    with pytest.raises(SettingsError, match="limit is 'x'; it must be a whole number or none"):
        sdssm.train("parity", model=f"{module_name}:Table", settings={"limit": "x"})
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere_to_be_found:Model", "there is no module 'nowhere_to_be_found'; install it"),
        ("{}:Tabel", "has no 'Tabel'; did you mean 'Table'"),
        ("{}:imported", "cannot be registered; pass a class or a function"),
        ("missing.py:Model", "missing.py does not exist"),
        ("broken.py:Model", "broken.py cannot be imported: ZeroDivisionError: division by zero"),
        ("broken:Model", "broken cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(module_name: str, path: str, message: str) -> None:
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(ModelError, match=message) as caught:
        find_entry(path.format(module_name))
    assert "\n" not in str(caught.value)


def test_a_plugin_is_found_by_its_entry_point_and_imported_when_used(
    module_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path.cwd())  # it is installed
    points = [EntryPoint("table", f"{module_name}:Table", registry.ENTRY_POINTS)]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(points))
    assert list_models()[-1] == "table"
    assert module_name not in sys.modules
    assert find_entry("table").import_path == f"{module_name}:Table"
    points.append(EntryPoint("lstm", f"{module_name}:Table", registry.ENTRY_POINTS))
    with pytest.warns(RunWarning, match=f"'lstm', a name already taken; use it as --model {module_name}:Table"):
        assert list_models().count("lstm") == 1


def test_a_folder_imports_an_installed_plugin_but_no_other_code_of_its_package(
    module_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path.cwd())  # it is installed
    points = [EntryPoint("table", f"{module_name}:Table", registry.ENTRY_POINTS)]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(points))
    for name, path in (("table", f"{module_name}:build"), ("other", f"{module_name}:Table")):
        with pytest.raises(ModelError, match=f"would import {path}"):
            find_recorded_entry(name, path, trust=False, source="a folder")
    assert module_name not in sys.modules
    assert find_recorded_entry("table", f"{module_name}:Table", trust=False, source="a folder").name == "table"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("", r"takes the parameters \(none\); the first two must be the number of symbols and of classes"),
        ("n_symbols", "the first two must be"),
        ("n_symbols, n_classes, width", "'width' of .* has no default; give it one"),
    ],
)
def test_a_signature_without_two_sizes_is_refused(parameters: str, message: str) -> None:
    factory = eval(f"lambda {parameters}: None")
    with pytest.raises(ModelError, match=message):
        options_class(factory)


def test_a_mixer_of_ones_own_is_a_model() -> None:
    class Mine(Rnn):
        name = "mine"

    register(Mine)
    entry = find_entry("mine")
    assert entry.kind == "mixer" and entry.description == "" and entry.import_path is None
    model = sdssm.Classifier(sdssm.ModelSettings(name="mine"), 2, 3, generator=torch.Generator().manual_seed(0))
    assert isinstance(model.mixers[0], Mine)
    with pytest.raises(ModelError, match="is called 'mine' but is registered as 'yours'"):
        register(Mine, name="yours")


def test_a_folder_imports_code_only_with_trust(
    module_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = sdssm.train("parity", model=f"{module_name}:Table", steps=2, out="out", settings={"batch": 2}, device="cpu")
    weights = sdssm.load(runs[0]).state_dict()
    sdssm.load(runs[0]).save("saved")
    monkeypatch.setattr(registry, "_registered", {})  # as in a new process
    del sys.modules[module_name]
    for folder in ("out", "saved"):
        with pytest.raises(ModelError, match=f"would import {module_name}:Table; if you trust it") as caught:
            sdssm.load(folder)
        assert caught.value.shell.endswith(f"add --model {module_name}:Table, or --trust for every folder")
        assert module_name not in sys.modules
    settings = sdssm.runs.find_runs("out")[0].config.model  # read without the code
    assert isinstance(settings, ModuleSettings) and settings.options.scale == 1.0
    for folder in ("out", "saved"):
        loaded = sdssm.load(folder, trust=True).state_dict()
        assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    assert sdssm.evaluate("out", max_length=3, strings=4).runs[0].model == f"{module_name}:Table"


def test_the_refusal_in_python_names_the_class_to_register(module_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sdssm.train("parity", model=f"{module_name}:Table", steps=1, out="out", settings={"batch": 2}, device="cpu")
    monkeypatch.setattr(registry, "_registered", {})  # as in a new process
    with pytest.raises(
        ModelError, match=r"trust=True, or import Table yourself and call sdssm\.register\(Table\) first"
    ):
        sdssm.load("out")
    register(importlib.import_module(module_name).Table)
    assert sdssm.load("out").n_classes == 2
    assert sdssm.evaluate("out", max_length=3, strings=4).runs[0].mean >= 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("self.extra = torch.nn.Parameter(torch.zeros(2))", "has a parameter 'extra', which the weights do not have"),
        ("self.tables = self.__dict__['_parameters'].pop('table')", "has a parameter 'tables', which"),
        ("del self.table", "has no parameter 'table', which the weights have"),
        (
            "self.table = torch.nn.Parameter(torch.zeros(3, 2))",
            "has a parameter 'table' of shape (3, 2), and the weights have one of shape (2, 2)",
        ),
    ],
)
def test_weights_of_a_class_that_was_changed_say_so(
    line: str, text: str, module_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdssm.train("parity", model=f"{module_name}:Table", steps=1, out="out", settings={"batch": 2}, device="cpu")
    monkeypatch.setattr(registry, "_registered", {})  # as in a new process
    del sys.modules[module_name]
    changed = CODE.replace("    def forward", f"        {line}\n\n    def forward")
    changed = changed.replace("return self.table[tokens]", "return torch.zeros(*tokens.shape, 2)")
    Path(f"{module_name}.py").write_text(changed)
    importlib.invalidate_caches()
    with pytest.raises(ModelError) as caught:
        sdssm.load("out", trust=True)
    assert f"{module_name}:Table, as it is now, {text}" in str(caught.value)
    assert "was its code changed since the training?" in str(caught.value)


def test_code_that_cannot_be_imported_again_is_loaded_once_it_is_registered(tmp_path: Path) -> None:
    def build(n_symbols: int, n_classes: int) -> nn.Module:
        return Copy(n_symbols, n_classes)

    sdssm.train("parity", model=build, steps=1, out=tmp_path, settings={"batch": 2}, device="cpu")
    assert sdssm.load(tmp_path).name == "build"
    forget("build")
    with pytest.raises(ModelError, match="whose code is not recorded.* register .* as 'build'"):
        sdssm.load(tmp_path, trust=True)
    register(build)
    assert sdssm.load(tmp_path).name == "build"
