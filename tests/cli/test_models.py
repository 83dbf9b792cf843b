"""`sdssm models`, run as a command."""

from __future__ import annotations

import json

import pytest

from sdssm.layers import MIXERS
from sdssm.models import MODELS, registry
from tests.programs import run_command


def test_list_of_models(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})  # other tests of this process register models
    code, out, err = run_command(capsys, "models", "--task", "parity")
    assert (code, err) == (0, "")
    for name in MODELS:
        assert any(line.startswith(f"{name} ") for line in out.splitlines())
        assert any(line.startswith(f"{name}: ") for line in out.splitlines())
    code, out, _ = run_command(capsys, "models", "--task", "parity", "--json")
    assert [facts["model"] for facts in json.loads(out)] == list(MODELS)


def test_settings_and_presets_of_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "models", "lstm")
    assert (code, err) == (0, "")
    assert "what is proved" in out and "presets" in out
    (row,) = (line for line in out.splitlines() if line.startswith("initial_state "))
    assert row.split(maxsplit=2)[1] == "zero" and "the state before the first symbol" in row
    code, out, _ = run_command(capsys, "models", "lstm", "--json")
    assert json.loads(out)["mixer_settings"]["initial_state"] == "zero"


@pytest.mark.parametrize("docstring", [None, "", "\n    First line.\n    "])
def test_a_model_without_a_docstring_is_listed(
    docstring: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MIXERS["rnn"], "__doc__", docstring)
    code, out, err = run_command(capsys, "models", "rnn")
    assert (code, err) == (0, "")
    assert f"what it is      {'First line.' if docstring else 'not described'}" in out


def test_unknown_names_are_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("models", "mambo"), ("models", "--task", "parety")):
        code, out, err = run_command(capsys, *arguments)
        assert (code, out) == (2, "")
        assert "did you mean" in err and err.count("\n") == 1
