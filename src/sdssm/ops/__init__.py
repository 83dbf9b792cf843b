"""Recurrences with gradients, on CPU and GPU: dense, block-diagonal, diagonal and non-linear scans.

A scan returns (states, final). There are also the operations that a classifier needs before and after a scan: the
matrices of every symbol, a causal filter, linear maps, attention, residual connections, and readout with loss. See
`docs/reference/ops.md` for which one to use.
"""

from sdssm.ops.attention import rotary_attention
from sdssm.ops.backend import use_backend
from sdssm.ops.block_diagonal import block_diagonal_scan, block_diagonal_step
from sdssm.ops.checks import unchecked
from sdssm.ops.column_mixture import column_mixture_scan
from sdssm.ops.column_one_hot import column_one_hot_scan, column_one_hot_step
from sdssm.ops.delta import delta_final, delta_scan, delta_step
from sdssm.ops.dense import dense_scan, dense_step
from sdssm.ops.diagonal import diagonal_scan, diagonal_step
from sdssm.ops.elman import elman_scan, elman_step
from sdssm.ops.errors import NonFiniteError, OpsError
from sdssm.ops.filter import causal_filter
from sdssm.ops.label_losses import cross_entropy
from sdssm.ops.linear import linear_map
from sdssm.ops.lstm import lstm_scan, lstm_step
from sdssm.ops.mixed import mixed_matrices
from sdssm.ops.mixture import mixture_scan, mixture_step
from sdssm.ops.norms import column_norm
from sdssm.ops.readout import readout_loss
from sdssm.ops.residual import residual_norm
from sdssm.ops.selected import selected_matrices
from sdssm.ops.selective import selective_scan, selective_step
from sdssm.ops.selective_ends import selective_end
from sdssm.ops.softplus import softplus_map
from sdssm.ops.token import token_scan, token_step

__all__ = [
    "NonFiniteError",
    "OpsError",
    "block_diagonal_scan",
    "block_diagonal_step",
    "causal_filter",
    "column_mixture_scan",
    "column_norm",
    "column_one_hot_scan",
    "column_one_hot_step",
    "cross_entropy",
    "delta_final",
    "delta_scan",
    "delta_step",
    "dense_scan",
    "dense_step",
    "diagonal_scan",
    "diagonal_step",
    "elman_scan",
    "elman_step",
    "linear_map",
    "lstm_scan",
    "lstm_step",
    "mixed_matrices",
    "mixture_scan",
    "mixture_step",
    "readout_loss",
    "residual_norm",
    "rotary_attention",
    "selected_matrices",
    "selective_end",
    "selective_scan",
    "selective_step",
    "softplus_map",
    "token_scan",
    "token_step",
    "unchecked",
    "use_backend",
]
