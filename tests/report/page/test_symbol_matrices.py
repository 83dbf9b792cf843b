"""The matrices that numpy computes from weights are those of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from sdssm.errors import ModelError
from sdssm.models import Classifier, ModelSettings
from sdssm.report.page.symbol_matrices import compute_symbol_matrices

FORMS: list[dict[str, Any]] = [
    {},
    {"mixer": {"column_norm": None}},
    {"mixer": {"temperature": 0.3, "initial_state": "zero", "input_matrix": True, "rescale": False}},
    {"mixer": {"transition": "stochastic"}},
    {"mixer": {"transition": "nonnegative", "column_norm": 2.0}},
    {"mixer": {"transition": "sum-one"}},
    {"mixer": {"transition": "sum-one", "column_norm": None}},
    {"mixer": {"transition": "stochastic", "constraint": 0.4}},
    {"embedding": 5, "embedding_scale": 3.0},
    {"embedding": 0, "query": True},
    {"embedding": 3, "width": 7, "query": True},
    {"query": True},
    {"width": 7},
]


def make_model(values: dict[str, Any]) -> Classifier:
    mixer = {"state": 6, "dictionary": 4, **values.get("mixer", {})}
    settings = ModelSettings(**{**values, "mixer": mixer})
    return Classifier(settings, 3, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("values", FORMS, ids=str)
def test_matrices_are_those_of_the_model(values: dict[str, Any]) -> None:
    model = make_model(values)
    result = compute_symbol_matrices(model.settings, load(model.to_safetensors()), 3)
    expected = model.symbol_matrices()
    assert expected is not None
    np.testing.assert_allclose(result.matrices, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(result.selection.sum(1), 1, atol=1e-5)
    assert result.matrices.dtype == result.first_state.dtype == np.float32
    first = model.first_state
    np.testing.assert_allclose(result.first_state, np.zeros(6) if first is None else first.detach(), atol=1e-5)


def test_the_query_is_a_further_symbol_if_asked_for() -> None:
    model = make_model({"query": True})
    result = compute_symbol_matrices(model.settings, load(model.to_safetensors()), 3, with_query=True)
    assert result.matrices.shape == (4, 6, 6)


def test_weights_that_do_not_fit_are_refused() -> None:
    model = make_model({})
    weights = load(model.to_safetensors())
    for name in ("dictionary", "selection.weight", "selection.bias", "column_norm", "initial_state"):
        others = {key: tensor for key, tensor in weights.items() if key != name}
        with pytest.raises(ModelError, match=f"no tensor {name}"):
            compute_symbol_matrices(model.settings, others, 3)
        with pytest.raises(ModelError, match="does not fit"):
            compute_symbol_matrices(model.settings, {**others, name: np.zeros((9, 9, 9, 9), np.float32)}, 3)
    with pytest.raises(ModelError, match="selection.weight has shape"):
        compute_symbol_matrices(model.settings, weights, 8)
    with pytest.raises(ModelError, match="one layer"):
        compute_symbol_matrices(ModelSettings(layers=2), weights, 3)
