"""The size of a page: what fits is there, first seeds first, and what does not fit is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sdssm.report.page.assembling import assemble_page
from sdssm.report.page.collecting import collect_page
from tests.report.page.sample_runs import read_blocks, write_run

#: Trainings, and seeds of each: 50 runs.
TRAININGS, SEEDS = 10, 5


def write_fifty_runs(folder: Path, dictionary: int) -> Path:
    """Write run folders of A5 with the default sizes, evaluated to length 500, with all files."""
    original = write_run(folder / "original", "a5", settings={"dictionary": dictionary}, max_length=500, events=2_000)
    config = json.loads((original / "config.json").read_text())
    del config["checksum"]  # edited on purpose
    for number in range(TRAININGS * SEEDS):
        training, seed = divmod(number, SEEDS)
        copy = shutil.copytree(original, folder / f"training-{training}" / f"seed-{seed}")
        config["seed"], config["train"]["steps"] = seed, 1_000 + training
        (copy / "config.json").write_text(json.dumps(config))
    shutil.rmtree(original)
    return folder


@pytest.fixture(scope="module")
def fifty_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fifty_runs(tmp_path_factory.mktemp("fifty"), 16)


def test_fifty_runs_with_large_dictionaries_are_below_5_mb(tmp_path: Path) -> None:
    page = assemble_page(collect_page([write_fifty_runs(tmp_path, 100)]), 4.8)
    assert len(page.encode()) < 4_800_000


def test_fifty_runs_are_below_5_mb(fifty_runs: Path) -> None:
    page = assemble_page(collect_page([fifty_runs]), 4.8)
    assert 3_000_000 < len(page.encode()) < 4_800_000  # the space is used
    blocks = read_blocks(page)
    data = blocks["sdssm-report"]
    assert len(data["runs"]) == 50 and len(data["trainings"]) == TRAININGS
    assert not data["problems"] and not any(run["problems"] for run in data["runs"])
    details = {run["id"]: blocks[f"sdssm-run-{run['id']}"] for run in data["runs"]}
    for training in data["trainings"]:
        first = details[training["runs"][0]]
        for part in ("evaluation", "events", "matrices", "states", "extracted"):
            assert first[part] is not None
    left_out = [detail for detail in details.values() if detail["missing"].get("dictionary", "").startswith("left out")]
    assert left_out and all(detail["matrices"]["dictionary"] is None for detail in left_out)
    assert f"To keep the page below 4.8 MB, dictionaries of {len(left_out)} runs are left out" in " ".join(
        data["notes"]
    )


def test_a_page_that_may_be_large_has_everything(fifty_runs: Path) -> None:
    page = assemble_page(collect_page([fifty_runs / "training-0"]), 50)
    blocks = read_blocks(page)
    assert blocks["sdssm-report"]["notes"] == []
    for run in blocks["sdssm-report"]["runs"]:
        detail = blocks[f"sdssm-run-{run['id']}"]
        assert detail["matrices"]["dictionary"]["shape"][1:] == [64, 64]
        assert detail["extracted"]["diagram"].startswith("<svg")
        assert len(detail["events"]["step"]) <= 400


def test_a_small_page_keeps_all_runs_and_says_what_it_lacks(fifty_runs: Path) -> None:
    base = len(assemble_page(collect_page([fifty_runs]), 0.0001).encode())
    contents = collect_page([fifty_runs])
    page = assemble_page(contents, base / 1e6 + 0.1)
    assert len(page.encode()) < base + 120_000
    data = read_blocks(page)["sdssm-report"]
    assert len(data["runs"]) == 50 and all(len(training["runs"]) == SEEDS for training in data["trainings"])
    assert data["trainings"][0]["accuracy"]["lengths"][-1] == 500
    assert any(note.startswith("State diagrams are left out") for note in data["notes"])
    assert any(note.startswith("Curves show 40 lengths") for note in data["notes"])
