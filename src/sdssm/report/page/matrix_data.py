"""Matrices, selection weights and eigenvalues of an SD-SSM, as the page shows them."""

from __future__ import annotations

import numpy as np

from sdssm.errors import ModelError
from sdssm.report.page.packing import pack_bytes
from sdssm.report.page.page_types import EigenvalueList, MatrixData
from sdssm.report.page.symbol_matrices import SymbolMatrices

#: Significant digits of eigenvalues and selection weights.
DIGITS = 4


def make_matrix_data(computed: SymbolMatrices) -> MatrixData:
    """Return the matrices of an SD-SSM for heat maps, and the eigenvalues of each symbol's matrix."""
    if not (np.isfinite(computed.matrices).all() and np.isfinite(computed.dictionary).all()):
        raise ModelError("its weights are not finite numbers")
    try:
        eigenvalues = np.linalg.eigvals(computed.matrices.astype(np.float64))  # (V, N)
    except np.linalg.LinAlgError:
        raise ModelError("the eigenvalues of its matrices cannot be computed") from None
    return {
        "symbols": pack_bytes(computed.matrices),
        "dictionary": pack_bytes(computed.dictionary),
        "selection": [[_shorten(weight) for weight in row] for row in computed.selection.tolist()],
        "eigenvalues": [_list_eigenvalues(values) for values in eigenvalues],
    }


def _list_eigenvalues(values: np.ndarray) -> EigenvalueList:
    """Return eigenvalues, the largest first."""
    values = values[np.argsort(-np.abs(values), kind="stable")]
    return {
        "re": [_shorten(value) for value in values.real.tolist()],
        "im": [_shorten(v) for v in values.imag.tolist()],
    }


def _shorten(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
