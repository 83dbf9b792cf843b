"""Every model of the catalogue as ONNX predicts what it predicts in Python.

A new model is covered as soon as it is in the catalogue.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sdssm.exporting.onnx_check import python_logits
from sdssm.models import MODELS
from tests.exporting.onnx_sessions import OnnxSessions
from tests.laws.test_models import C, build, build_with_centres, draw_tokens

pytest.importorskip("onnxscript", reason="exports to ONNX")
pytestmark = pytest.mark.usefixtures("one_thread")

#: Numbers of strings and their lengths; the first lengths are those that a tracer takes for constants.
SHAPES = [(1, 1), (6, 1), (6, 2), (1, 3), (6, 17), (1, 40), (6, 40)]


def assert_same_predictions(actual: NDArray[Any], expected: NDArray[Any], centre: NDArray[Any]) -> None:
    """Logits and labels are equal. Without the centre of the logits, some untrained models have only one label."""
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal((actual - centre).argmax(-1), (expected - centre).argmax(-1))


@pytest.mark.parametrize("name", [*MODELS, "sd-ssm/stochastic", "centres"])
def test_onnx_predicts_as_python_does(name: str, tmp_path: Path) -> None:
    model = (build_with_centres() if name == "centres" else build(name, layers=1)).float()
    exported = OnnxSessions(model, tmp_path / name)
    assert exported.has_step == model.is_recurrent
    form = ["batch", "length", C] if model.can_read_prefixes_at_once else ["batch", C]
    assert exported.description["files"]["model.onnx"]["outputs"]["logits"]["shape"] == form
    expected = {shape: python_logits(model, draw_tokens(*shape)) for shape in SHAPES}
    largest = expected[SHAPES[-1]].reshape(-1, C)
    centre = largest.mean(0)
    assert len(np.unique((largest - centre).argmax(-1))) > 1 and largest.std(0).max() > 1e-2
    for shape, logits in expected.items():
        assert_same_predictions(exported.read_strings(draw_tokens(*shape)), logits, centre)
        if exported.has_step:
            assert_same_predictions(exported.read_symbols(draw_tokens(*shape)), logits, centre)
