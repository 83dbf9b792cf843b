"""Model folders for the Hugging Face Hub, without a network: a local folder, and a fake of the Hub's library."""

from __future__ import annotations

import json
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import sdssm
from sdssm.errors import MissingExtraError, ModelError, OutputError
from sdssm.exact.certification.certificate import Certificate
from sdssm.models import Classifier, TokenModel, wrap_module
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.registry import forget


class FakeHub(ModuleType):
    """The part of `huggingface_hub` that is used, on folders of this machine."""

    def __init__(self, root: Path) -> None:
        super().__init__("huggingface_hub")
        self.root = root
        self.calls: list[tuple[Any, ...]] = []

    def HfApi(self) -> Any:  # noqa: N802  # the name of the library
        return SimpleNamespace(create_repo=self.create_repo, upload_folder=self.upload_folder)

    def create_repo(self, *, repo_id: str, private: bool | None, exist_ok: bool, repo_type: str) -> None:
        self.calls.append(("create", repo_id, private, exist_ok, repo_type))
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(
        self, *, repo_id: str, folder_path: str, commit_message: str, revision: str | None, repo_type: str
    ) -> Any:
        self.calls.append(("upload", repo_id, commit_message, revision, repo_type))
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return SimpleNamespace(commit_url=f"https://hub.test/{repo_id}/commit/1")

    def snapshot_download(self, *, repo_id: str, revision: str | None, allow_patterns: list[str]) -> str:
        if not (self.root / repo_id).is_dir():
            raise OSError(f"404: there is no repository {repo_id}\nsecond line")
        snapshot = self.root / "snapshots" / f"{repo_id}-{revision}"
        shutil.rmtree(snapshot, ignore_errors=True)
        snapshot.mkdir(parents=True)
        for path in (self.root / repo_id).iterdir():
            if any(fnmatch(path.name, pattern) for pattern in allow_patterns):
                shutil.copy(path, snapshot)
        return str(snapshot)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def build_small() -> Classifier:
    model = Classifier(sdssm.ModelSettings(name="rnn"), 2, 2, generator=torch.Generator().manual_seed(0)).eval()
    model.task = sdssm.task("parity")
    return model


def test_a_pretrained_folder_is_loaded_as_it_was(tmp_path: Path) -> None:
    model = build_small()
    model.save_pretrained(tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "task.json", "README.md"}
    same = TokenModel.from_pretrained(tmp_path / "model")
    tokens = torch.randint(2, (3, 9))
    assert torch.equal(same(tokens), model(tokens)) and same.task == model.task
    assert isinstance(Classifier.from_pretrained(str(tmp_path / "model")), Classifier)
    assert torch.equal(sdssm.load(tmp_path / "model")(tokens), model(tokens))


def test_the_card_names_task_chance_and_how_to_load(tmp_path: Path) -> None:
    build_small().save_pretrained(tmp_path / "plain")
    card = (tmp_path / "plain" / "README.md").read_text()
    header, body = card.split("---\n")[1:]
    assert "library_name: sdssm" in header and "# license" in header and "\nlicense" not in header
    assert "Symbols, in order of their tokens 0, 1, ...: `0`, `1`. Labels, in the same way: `even`, `odd`." in body
    assert "# rnn on parity" in body and "It was not evaluated. Chance is 50 %." in body
    assert "Nothing is proved" in body and "TokenModel.from_pretrained" in body and '"state": 64' in body
    build_small().save_pretrained(tmp_path / "licensed", license="mit")
    assert '\nlicense: "mit"\n' in (tmp_path / "licensed" / "README.md").read_text()


def test_evaluation_and_certificate_of_a_folder_are_carried_over(tmp_path: Path) -> None:
    source = tmp_path / "exact"
    sdssm.compile("parity").save(source)
    certificate = Certificate(None, 400, 12, True, "the states are integers", task="parity")
    (source / "certificate.json").write_text(json.dumps(certificate.to_json()))
    evaluation = {"mean": 97.5, "mean_beyond": 91.25, "train_length": 40, "max_length": 500, "chance": 50.0}
    (source / "evaluation.json").write_text(json.dumps(evaluation))
    model = sdssm.load(source)
    model.save_pretrained(tmp_path / "first")
    again = TokenModel.from_pretrained(tmp_path / "first")
    again.save_pretrained(tmp_path / "second")
    for folder in ("first", "second"):
        card = (tmp_path / folder / "README.md").read_text()
        assert "| mean | 1 to 500 | 97.5 % |" in card and "| beyond the training length | 41 to 500 | 91.25 % |" in card
        assert "| chance |  | 50 % |" in card
        assert "is provably classified correctly at every length in exact arithmetic, and up to length 400" in card
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    model.save_pretrained(tmp_path / "first", overwrite=True)
    assert not (tmp_path / "first" / "evaluation.json").exists()
    assert "It was not evaluated" in (tmp_path / "first" / "README.md").read_text()


def test_a_certificate_of_length_zero_proves_nothing(tmp_path: Path) -> None:
    build_small().save(tmp_path / "model")
    certificate = Certificate(0, 0, 0, False, "a string of length 1 is misclassified", task="parity")
    (tmp_path / "model" / "certificate.json").write_text(json.dumps(certificate.to_json()))
    sdssm.load(tmp_path / "model").save_pretrained(tmp_path / "card")
    card = (tmp_path / "card" / "README.md").read_text()
    assert "Nothing is proved: a string of length 1 is misclassified." in card and "provably" not in card


def test_a_model_is_uploaded_and_downloaded(hub: FakeHub) -> None:
    model = build_small()
    address = model.push_to_hub("me/parity", private=True, commit_message="Train longer")
    assert address == "https://hub.test/me/parity/commit/1"
    assert hub.calls == [
        ("create", "me/parity", True, True, "model"),
        ("upload", "me/parity", "Train longer", None, "model"),
    ]
    assert 'from_pretrained("me/parity")' in (hub.root / "me" / "parity" / "README.md").read_text()
    same = TokenModel.from_pretrained("me/parity", revision="v1")
    assert torch.equal(same(torch.tensor([[0, 1]])), model(torch.tensor([[0, 1]])))


def test_errors_are_one_line(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match="no folder here, and cannot be loaded from the Hugging Face Hub: OSError: 404"
    ):
        TokenModel.from_pretrained("me/nothing")
    with pytest.raises(ModelError, match="there is no folder"):
        TokenModel.from_pretrained("runs/a5/seed-0")
    with pytest.raises(ModelError, match="has no revisions"):
        TokenModel.from_pretrained(tmp_path, revision="main")
    with pytest.raises(OutputError, match="write it as 'owner/name'"):
        build_small().push_to_hub("me/parity/too-long")
    assert not hub.calls
    wrap_module(nn.Embedding(2, 2), 2, 2).save_pretrained(tmp_path / "module")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("mine")
    with pytest.raises(OutputError, match="holds another README.md"):
        build_small().save_pretrained(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["README.md"]
    build_small().save(tmp_path / "saved")
    (tmp_path / "saved" / "README.md").write_text("mine")
    build_small().save(tmp_path / "saved", overwrite=True)
    assert (tmp_path / "saved" / "README.md").read_text() == "mine"  # only our own card is removed


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"install sdssm\[hub\]"):
        TokenModel.from_pretrained("me/parity")
    with pytest.raises(MissingExtraError, match=r"install sdssm\[hub\]"):
        build_small().push_to_hub("me/parity")


SOURCE = """
import torch

class Table(torch.nn.Module):
    def __init__(self, n_symbols, n_classes):
        super().__init__()
        self.table = torch.nn.Embedding(n_symbols, n_classes)

    def forward(self, tokens):
        return self.table(tokens)
"""


def test_code_is_imported_only_if_trusted_and_never_downloaded(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub_table_module.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    path = "hub_table_module:Table"
    config = {"model": {"name": path, "import_path": path, "options": {}}, "n_symbols": 2, "n_classes": 2}
    repository = hub.root / "me" / "table"
    model = wrap_module(nn.Embedding(2, 2), 2, 2)
    model.module = nn.ModuleDict({"table": nn.Embedding(2, 2)})
    model.save(repository)
    (repository / "config.json").write_text(json.dumps(config))
    (repository / "hub_table_module.py").write_text("raise SystemExit('foreign code was run')")
    with pytest.raises(ModelError, match=f"would import {path}; if you trust it, pass trust=True"):
        TokenModel.from_pretrained("me/table")
    assert "hub_table_module" not in sys.modules
    loaded = TokenModel.from_pretrained("me/table", trust=True)  # the module of this folder, not the downloaded one
    assert loaded(torch.tensor([[0, 1]])).shape == (1, 2, 2)
    forget(path)
    config["model"]["import_path"] = f"{repository}/hub_table_module.py:Table"  # type: ignore[index]  # a dict
    (repository / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="code is never downloaded"):
        TokenModel.from_pretrained("me/table", trust=True)


def test_an_upload_names_no_file_of_this_machine(hub: FakeHub) -> None:
    settings = ModuleSettings(name="table.py:Table", import_path="/home/someone/secret/table.py:Table")
    model = wrap_module(nn.Embedding(2, 2), 2, 2, settings=settings)
    model.push_to_hub("me/table")
    for path in (hub.root / "me" / "table").iterdir():
        assert b"secret" not in path.read_bytes()


def test_the_class_that_is_asked_for_is_returned(tmp_path: Path) -> None:
    sdssm.register(lambda n_symbols, n_classes: nn.Embedding(n_symbols, n_classes), name="hub-table")
    try:
        settings = ModuleSettings(name="hub-table")
        wrap_module(nn.Embedding(2, 2), 2, 2, settings=settings).save_pretrained(tmp_path / "table")
        with pytest.raises(ModelError, match="holds a WrappedModule, not a Classifier"):
            Classifier.from_pretrained(tmp_path / "table")
    finally:
        forget("hub-table")
