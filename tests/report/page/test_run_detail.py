"""The heavy parts of a run show what its files hold."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, load_file, save_file

from sdssm.report.page.packing import pack_array, pack_bytes
from sdssm.report.page.page_types import RunDetail
from sdssm.report.page.run_data import PageRun, read_run
from sdssm.report.page.run_detail import DetailReader
from sdssm.report.page.state_cloud import make_state_cloud
from sdssm.report.page.symbol_matrices import compute_symbol_matrices
from tests.edited_files import edit_json
from tests.report.page.sample_runs import write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", events=1_000)


def read_detail(folder: Path) -> RunDetail:
    return DetailReader(read_run(folder)).read_all()


def unpack(packed: Any) -> np.ndarray:
    """Return the numbers of a packed tensor, as the page computes them."""
    types = {"float32": "<f4", "int32": "<i4", "uint8": "u1"}
    values = np.frombuffer(b64decode(packed["data"]), dtype=types[packed["dtype"]]).reshape(packed["shape"])
    return packed["scale"] * (values.astype(float) - 128) if packed["dtype"] == "uint8" else values


def test_packed_numbers_are_the_numbers() -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 4))
    assert np.array_equal(unpack(pack_array(numbers, "float32")), numbers.astype(np.float32))
    assert np.array_equal(unpack(pack_array(np.arange(6).reshape(2, 3), "int32")), np.arange(6).reshape(2, 3))
    assert np.abs(unpack(pack_bytes(numbers)) - numbers).max() <= np.abs(numbers).max() / 254 + 1e-6
    assert np.array_equal(unpack(pack_bytes(np.zeros((2, 2)))), np.zeros((2, 2)))


def test_matrices_are_those_of_the_weights(folder: Path) -> None:
    matrices = read_detail(folder)["matrices"]
    assert matrices is not None
    config = read_run(folder).config
    assert config is not None
    weights = load((folder / "model.safetensors").read_bytes())
    expected = compute_symbol_matrices(config.model, weights, 2)
    for packed, array in ((matrices["symbols"], expected.matrices), (matrices["dictionary"], expected.dictionary)):
        assert np.abs(unpack(packed) - array).max() <= np.abs(array).max() / 254 + 1e-6
    np.testing.assert_allclose(matrices["selection"], expected.selection, rtol=1e-3)
    for shown, matrix in zip(matrices["eigenvalues"], expected.matrices, strict=True):
        values = np.array(shown["re"]) + 1j * np.array(shown["im"])
        np.testing.assert_allclose(values.sum(), np.trace(matrix), atol=0.01)
        assert np.all(np.diff(np.abs(values)) < 0.001)  # the largest first


def test_events_are_thinned_with_their_ends(folder: Path) -> None:
    events = read_detail(folder)["events"]
    logged = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert events is not None and len(logged) == 1_000 and len(events["step"]) == len(events["loss"]) == 400
    for place in (0, -1):
        assert events["step"][place] == logged[place]["step"]
        assert events["loss"][place] == pytest.approx(logged[place]["loss"], rel=1e-3)


def test_listed_lengths_continue_the_curve(folder: Path) -> None:
    edit_json(folder / "evaluation.json", balanced=None)
    own = {"status": "finished", "digest": read_run(folder).record["digest"]}
    listed = {"max_length": 5_000, "lengths": [20, 500, 5_000], "accuracy": [1.0, 2.0, 3.0], "strings": 8, **own}
    (folder / "evaluation-lengths.json").write_text(json.dumps(listed))
    run = read_run(folder)
    evaluation = DetailReader(run).read("evaluation")
    assert evaluation["accuracy"]["lengths"] == [*range(1, 41), 500, 5_000]
    assert evaluation["accuracy"]["value"][-2:] == [2, 3] and evaluation["accuracy"]["low"][-1] is None
    assert run.data["headline_name"] == "accuracy" and run.data["max_length"] == 40


def test_results_of_another_state_of_the_run_are_not_shown(folder: Path) -> None:
    for name in ("evaluation", "certificate", "extraction", "horizon"):
        edit_json(folder / f"{name}.json", status="stopped")
    run = read_run(folder)
    assert run.evaluation is None and run.data["headline"] is None
    assert run.data["certified"] is None and run.data["extraction"] is None and run.data["horizon"] is None
    assert len(run.data["problems"]) == 4
    assert (
        f"certificate.json is of another state of this run; sdssm certify {folder} writes it again"
        in run.data["problems"]
    )


def test_a_run_that_trains_is_told_from_one_that_was_killed(folder: Path) -> None:
    edit_json(folder / "status.json", status="running")
    assert read_run(folder).data["status"] == "interrupted"


def test_weights_that_are_not_finite_are_no_matrices(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "dictionary": weights["dictionary"] * np.nan}, folder / "model.safetensors")
    detail = read_detail(folder)
    assert detail["matrices"] is None and "holds NaN or infinite" in detail["missing"]["matrices"]


def test_states_are_projected_onto_the_axes_of_most_variance() -> None:
    """States that lie in a plane of a space of many dimensions keep their distances."""
    random = np.random.default_rng(0)
    plane = np.linalg.qr(random.normal(size=(20, 2)))[0].T
    points = random.normal(size=(3, 50, 2)) * [3.0, 1.0]
    labels = random.integers(2, size=(3, 50))
    tensors = {
        "lengths": np.array([5, 40, 500]),
        "states": (points @ plane + 7.0).astype(np.float16),
        "machine_states": labels,
        "labels": labels,
        "predictions": np.zeros((3, 50), dtype=np.int64),
    }
    cloud = make_state_cloud(tensors, 2)
    assert cloud["lengths"] == [5, 40, 500] and sum(cloud["explained"]) == pytest.approx(1, abs=0.001)
    assert cloud["explained"][0] > 0.8
    shown = np.stack([cloud["x"], cloud["y"]], axis=-1)
    assert np.linalg.norm(shown[0, 0] - shown[2, 7]) == pytest.approx(
        np.linalg.norm(points[0, 0] - points[2, 7]), abs=0.1
    )
    assert cloud["correct"] == (labels == 0).tolist() and cloud["state"] == labels.tolist()


def test_states_after_strings_that_are_not_valid_are_left_out() -> None:
    shape = (1, 4)
    tensors = {
        "lengths": np.array([5]),
        "states": np.random.default_rng(0).normal(size=(*shape, 3)).astype(np.float32),
        "machine_states": np.zeros(shape, dtype=np.int32),
        "labels": np.array([[0, -1, 0, -1]]),
        "predictions": np.zeros(shape, dtype=np.int32),
    }
    cloud = make_state_cloud(tensors, 1)
    assert [len(cloud[name][0]) for name in ("x", "y", "state", "correct")] == [2, 2, 2, 2]


def test_a_run_has_the_parts_that_are_promised(folder: Path) -> None:
    """What `may_have` says without reading is what there is."""
    run: PageRun = read_run(folder)
    reader = DetailReader(run)
    for part in ("evaluation", "events", "extracted", "player", "matrices", "states"):
        assert reader.may_have(part) and reader.read(part) is not None
    (folder / "evaluation-states.safetensors").unlink()
    assert not reader.may_have("states") and DetailReader(run).read("states") is None
