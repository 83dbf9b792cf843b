"""Damaged and hostile folders: the page is written, says what is wrong, and shows the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdssm.automata import Machine
from sdssm.report.page.assembling import assemble_page
from sdssm.report.page.collecting import collect_page
from sdssm.report.page.page_types import ReportData
from sdssm.tasks import Task
from tests.report.page.sample_runs import read_blocks, write_run

JSON_FILES = ("config", "status", "evaluation", "certificate", "extraction", "horizon")
OTHER_FILES = ("events.jsonl", "model.safetensors", "evaluation-states.safetensors")
FILES = (*(f"{name}.json" for name in JSON_FILES), *OTHER_FILES)
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028&"
#: Values that a program which reads JSON may not expect.
VALUES: list[Any] = [
    None,
    -1,
    0,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    HOSTILE,
    True,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
]


def make_page(folder: Path) -> tuple[str, ReportData]:
    contents = collect_page([folder])
    return assemble_page(contents, 4.8), contents.data


def collect_problems(data: ReportData) -> list[str]:
    """All problems: those of the page, and those of its runs."""
    return [
        *(problem["message"] for problem in data["problems"]),
        *(p for run in data["runs"] for p in run["problems"]),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with all files; tests damage the first and repair it afterwards."""
    folder = tmp_path_factory.mktemp("damaged") / "runs"
    write_run(folder / "damaged")
    write_run(folder / "intact", seed=1)
    shutil.copytree(folder / "damaged", folder.parent / "copy-of-damaged")
    return folder


def test_an_undamaged_folder_has_no_problems_and_all_parts(folder: Path) -> None:
    page, data = make_page(folder)
    assert collect_problems(data) == [] and len(data["runs"]) == 2
    for run in data["runs"]:
        assert run["certified"] is not None and run["horizon"] is not None and run["extraction"] is not None
        assert run["certified"]["misclassified"] == "0 1" and run["certified"]["misclassified_symbols"] == [0, 1]
        detail = read_blocks(page)[f"sdssm-run-{run['id']}"]
        parts = ("evaluation", "events", "matrices", "states", "extracted")
        assert [part for part in parts if detail[part] is None] == []


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null", b'"text"', b"[" * 100_000])
def test_a_file_that_is_not_what_it_should_be(folder: Path, name: str, content: bytes) -> None:
    (folder / "damaged" / name).write_bytes(content)
    try:
        page, data = make_page(folder)
    finally:
        repair(folder, name)
    assert any(run["folder"] == str(folder / "intact") and not run["problems"] for run in data["runs"])
    details = [block for block in read_blocks(page).values() if "missing" in block]
    reasons = [text for detail in details for text in detail["missing"].values()]
    if name != "events.jsonl" or content.endswith(b"\n"):  # its last line may be being written
        assert any(name in text for text in [*collect_problems(data), *reasons])


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing(folder: Path, name: str) -> None:
    (folder / "damaged" / name).unlink()
    try:
        _, data = make_page(folder)
    finally:
        repair(folder, name)
    assert len(data["runs"]) == (1 if name == "config.json" else 2)


def repair(folder: Path, name: str) -> None:
    shutil.copy(folder.parent / "copy-of-damaged" / name, folder / "damaged" / name)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, bytes, Any]:
    """A file, and what is done to it: a value in its JSON is replaced or deleted, or bytes are."""
    name = draw(st.sampled_from(FILES))
    where = draw(st.binary(min_size=6, max_size=6))
    return name, where, draw(st.sampled_from(["delete", "cut", "flip", *VALUES]))


def damage(path: Path, where: bytes, change: Any) -> None:
    """Change a file at a place that the bytes `where` choose."""
    content = path.read_bytes()
    place = int.from_bytes(where[:4], "big") % max(len(content), 1)
    if change == "cut":
        path.write_bytes(content[:place])
    elif change == "flip":
        path.write_bytes(content[:place] + bytes([content[place] ^ (where[4] | 1)]) + content[place + 1 :])
    elif path.suffix == ".safetensors":
        path.write_bytes(content[:place] + content[place + 1 + where[4] :])
    elif path.suffix == ".jsonl":
        lines = content.splitlines(keepends=True)
        lines[place % len(lines)] = (
            b"" if change == "delete" else json.dumps({"step": 1, "loss": change}).encode() + b"\n"
        )
        path.write_bytes(b"".join(lines))
    else:
        data = json.loads(content)
        parent, key = data, list(data)[where[0] % len(data)]
        for choice in where[1:]:  # deeper, as far as there is something
            child = parent[key]
            if not isinstance(child, dict | list) or not child or choice < 64:
                break
            parent, key = child, list(child)[choice % len(child)] if isinstance(child, dict) else choice % len(child)
        if change == "delete":
            del parent[key]
        else:
            parent[key] = change
        path.write_text(json.dumps(data))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes())
def test_no_damage_stops_the_page(folder: Path, change: tuple[str, bytes, Any]) -> None:
    name, where, value = change
    damage(folder / "damaged" / name, where, value)
    try:
        page, data = make_page(folder)
    finally:
        repair(folder, name)
    intact = [run for run in data["runs"] if run["folder"] == str(folder / "intact")]
    assert len(intact) == 1 and intact[0]["problems"] == []
    assert read_blocks(page)["sdssm-report"]["format"] == 1
    assert len(data["runs"]) == 2 or data["problems"]


def test_hostile_names_are_data_everywhere(tmp_path: Path) -> None:
    machine = Machine(table=[[0, 1], [1, 0]], states=[HOSTILE, "b"], symbols=[HOSTILE + "0", "1"])
    write_run(tmp_path / HOSTILE.replace("/", "_"), Task(name=HOSTILE, machine=machine))
    page, data = make_page(tmp_path)
    assert data["tasks"][0]["name"] == HOSTILE and not data["problems"]
    assert data["tasks"][0]["machine"]["symbols"][0] == HOSTILE + "0"
    assert page.count("<script") == page.count("</script>") == 3  # two blocks of JSON, and the script
    assert "<img" not in page and "\u2028" not in page.partition("application/json")[2]
    blocks = read_blocks(page)
    assert blocks["sdssm-report"]["tasks"][0]["name"] == HOSTILE


def test_long_names_are_cut(tmp_path: Path) -> None:
    machine = Machine(table=[[0, 1], [1, 0]], states=["s" * 10_000, "b"])
    write_run(tmp_path / "run", Task(name="n" * 100_000, machine=machine))
    page, data = make_page(tmp_path)
    assert len(page) < 400_000 + len(page.partition("<script>")[2])
    assert len(data["tasks"][0]["name"]) == 120 and data["tasks"][0]["name"].endswith("…")
    assert len(data["tasks"][0]["machine"]["states"][0]) == 120
