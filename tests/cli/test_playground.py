"""`sdssm playground` writes a page, and says which runs are not part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import sdssm
from sdssm.cli import main
from tests.report.page.sample_runs import TINY, read_blocks

#: What the page may have beside the weights.
MOST_BYTES = 300_000


def test_a_page_has_the_models_that_run_in_a_browser(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"batch": 8, "train_length": 8}
    sdssm.train("parity", seeds=2, steps=5, settings=TINY, out=tmp_path / "runs/sd-ssm", device="cpu", progress=False)
    sdssm.train("parity", model="s4d", steps=1, settings=small, out=tmp_path / "runs/s4d", device="cpu", progress=False)
    page = tmp_path / "page.html"
    assert main(["playground", str(tmp_path / "runs"), "-o", str(page), "--title", "<b>mine"]) == 0
    printed = capsys.readouterr().out
    assert "2 models" in printed and "this is s4d" in printed
    text = page.read_text()
    data = read_blocks(text)["sdssm-playground"]
    assert [entry["label"] for entry in data["entries"]] == ["sd-ssm, seed 0", "sd-ssm, seed 1"]
    assert data["title"] == "<b>mine" and "<b>" not in text
    weights = sum(
        len(tensor["data"])
        for entry in data["entries"]
        for variant in entry["player"]["variants"]
        for tensor in variant["model"]["tensors"].values()
    )
    assert len(text.encode()) - weights < MOST_BYTES


def test_without_a_model_that_runs_in_a_browser_it_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{")
    assert main(["playground", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 2
    assert "there is no model to play with" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
