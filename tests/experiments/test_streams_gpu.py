"""Evaluations on several streams of a GPU are those of one stream."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import sdssm
from sdssm.evaluation.stored import EVALUATION_FILE, LENGTHS_FILE
from sdssm.experiments.execution.evaluations import evaluate_group, evaluate_locally
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.runs import RunFolder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_streams_give_the_evaluations_of_one_stream(tmp_path: Path) -> None:
    runs = [
        run
        for task in ("parity", "tomita4", "dyck3")
        for run in sdssm.train(task, seeds=4, steps=50, out=tmp_path / task, device="cuda")
    ]
    spec = EvaluationSpec(lengths=(600, 5_000), strings=64)
    files = [(Path(run.path), name) for run in runs for name in (EVALUATION_FILE, LENGTHS_FILE)]
    for file in files:
        evaluate_group([file], spec, "cuda")
    one = [RunFolder.open(folder).read_json(name) for folder, name in files]
    for folder, name in files:
        (folder / name).unlink()
    evaluate_locally(files, spec, "cuda")
    assert [RunFolder.open(folder).read_json(name) for folder, name in files] == one
