"""The presets: settings of the paper, of the official commands, and our own, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Values = Mapping[str, Any]
#: The tasks of the paper's first table; the first four are those of the Chomsky hierarchy benchmark.
CHOMSKY = ("parity", "even_pairs", "cycle", "arithmetic")
TABLE1 = (*CHOMSKY, "c2xc4", "d4", "a5")

#: The training of the paper: Adam with a constant learning rate.
_PUBLISHED: Values = {"steps": 1_000_000, "schedule": "constant", "warmup": 0.0}

# -- SD-SSM ------------------------------------------------------------------------------------------------------------

#: The published form: x0 = 0, an input matrix, LayerNorm and a linear readout.
_SD_SSM: Values = {
    **_PUBLISHED,
    "state": 64,
    "initial_state": "zero",
    "input_matrix": True,
    "rescale": False,
    "norm": "affine",
    "readout": "linear",
    "projection": False,
    "scale_end": None,
    "attraction": 0.0,
    "attraction_gate": 0.0,
    "projection_decay": 0.0,
}


def _sd_ssm(dictionary: int, lr: float, p: float, query: bool = False, width: int | None = None) -> Values:
    return {**_SD_SSM, "dictionary": dictionary, "lr": lr, "column_norm": p, "query": query, "width": width}


#: The tables of the paper's appendix; only the official commands say whether there is a query. The inputs of arithmetic
#: have width ten: its eight symbols, a blank that never occurs, and the query.
_SD_SSM_PAPER = {
    "parity": _sd_ssm(8, 1e-4, 1.2, query=True),
    "even_pairs": _sd_ssm(8, 2e-5, 1.4, query=True),
    "cycle": _sd_ssm(8, 2e-5, 1.3, query=True),
    "arithmetic": _sd_ssm(18, 1e-4, 1.2, query=True, width=10),
    "c2xc4": _sd_ssm(6, 2e-5, 1.3),
    "d4": _sd_ssm(6, 1e-4, 1.2),
    "a5": _sd_ssm(6, 2e-5, 1.3),
    "c2xc30": _sd_ssm(10, 5e-5, 1.1),
    "d30": _sd_ssm(10, 5e-5, 1.15),
}
#: The official commands, which do not include the two larger groups.
_SD_SSM_README = {
    **{name: values for name, values in _SD_SSM_PAPER.items() if name not in ("c2xc30", "d30")},
    "c2xc4": _sd_ssm(6, 2e-5, 1.1),
    "d4": _sd_ssm(6, 2e-5, 1.1),
}

#: For machines whose labels hide states: the states of the minimal machine are the targets, see `state_targets`.
_STATES: Values = {
    "targets": "state",
    "norm": "none",
    "projection": False,
    "column_norm": None,
    "initial_dictionary": "identity",
    "attraction": 0.0,
    "attraction_gate": 0.0,
    "projection_decay": 0.0,
    "lr": 1e-2,
    "schedule": "exponential",
    "batch": 64,
    "steps": 5_000,
}

# -- the other models of the paper -------------------------------------------------------------------------------------

#: One bare layer and a linear readout of its state without a bias.
_RECURRENT: Values = {"norm": "none", "readout": "linear", "readout_bias": False}
#: An embedding of width V; a hidden layer of width 2n between layers and before the classes.
_COMPLEX: Values = {
    "embedding": 0,
    "embedding_init": "linear",
    "block": "mlp",
    "norm": "none",
    "readout": "mlp",
    "hidden": 128,
}
_REGULAR_LRNN: Values = {"embedding": 64, "block": "last-bare", "norm": "affine", "readout": "mlp", "hidden": 64}
#: Pre-norm residual blocks of width 64; the paper does not describe the blocks of these models.
_RESIDUAL: Values = {"embedding": 64, "block": "pre-norm", "norm": "affine", "readout": "linear"}
_CONVOLUTION: Values = {**_RESIDUAL, "feed_forward": 64, "query": True}
_MAMBA: Values = {**_RESIDUAL, "embedding_init": "small", "query": True}
_TRANSFORMER: Values = {
    "layers": 5,
    "embedding": 64,
    "embedding_init": "small",
    "embedding_scale": 8.0,
    "block": "post-norm",
    "feed_forward": 256,
    "activation": "relu",
    "block_dropout": 0.1,
    "norm": "none",
    "readout": "linear",
    "query": True,
    "lr": 1e-4,
}


def _complex(lr: float, width: int | None = None) -> Values:
    return {**_COMPLEX, **_PUBLISHED, "lr": lr, "width": width}


def _regular_lrnn(lr: float, weight_decay: float) -> Values:
    return {**_REGULAR_LRNN, **_PUBLISHED, "lr": lr, "weight_decay": weight_decay}


def _mamba(state: int, lr: float) -> Values:
    return {**_MAMBA, **_PUBLISHED, "state": state, "lr": lr}


#: The published one-hot vectors of arithmetic have a ninth entry, for a blank that never occurs.
_COMPLEX_PAPER = {
    "parity": _complex(5e-4),
    "even_pairs": _complex(1e-3),
    "cycle": _complex(5e-4),
    "arithmetic": _complex(1e-4, width=9),
    "c2xc4": _complex(5e-3),
    "d4": _complex(1e-4),
    "a5": _complex(1e-3),
    "c2xc30": _complex(1e-2),
    "d30": _complex(5e-3),
}
_REGULAR_LRNN_PAPER = {
    "parity": _regular_lrnn(1e-4, 0.0),
    "even_pairs": _regular_lrnn(2e-4, 0.0),
    "cycle": _regular_lrnn(1e-4, 0.0),
    "arithmetic": _regular_lrnn(2e-4, 1e-4),
    "c2xc4": _regular_lrnn(5e-4, 1e-4),
    "d4": _regular_lrnn(1e-4, 1e-4),
    "a5": _regular_lrnn(1e-4, 1e-4),
}
_MAMBA_PAPER = {
    "parity": _mamba(128, 1e-4),
    "even_pairs": _mamba(128, 1e-2),
    "cycle": _mamba(256, 1e-4),
    "arithmetic": _mamba(256, 1e-3),
}


def _same(values: Values, tasks: tuple[str, ...]) -> dict[str, Values]:
    """Return our settings for each task of a model for which the paper gives none."""
    return {task: {**values, **_PUBLISHED} for task in tasks}


#: The complex diagonal models on the two larger groups: with or without B, linear or MLP readout, more layers.
_COMPLEX_VARIANTS: Mapping[str, tuple[Values, Mapping[str, float]]] = {
    "paper-b0-linear": ({"input_matrix": False, "readout": "linear"}, {"c2xc30": 1e-3, "d30": 1e-4}),
    "paper-b0-mlp": ({"input_matrix": False}, {"c2xc30": 1e-3, "d30": 1e-4}),
    "paper-linear": ({"readout": "linear"}, {"c2xc30": 1e-3, "d30": 5e-4}),
    "paper-2-layers": ({"layers": 2}, {"c2xc30": 5e-4, "d30": 5e-4}),
    "paper-3-layers": ({"layers": 3}, {"c2xc30": 5e-4, "d30": 1e-3}),
    "paper-4-layers": ({"layers": 4}, {"c2xc30": 5e-4, "d30": 1e-4}),
}
#: For these the paper says only that state sizes of 128 and 256 and learning rates from 1e-5 to 1e-2 were tried.
_TWO_LAYERS: Mapping[str, Values] = {
    **{model: {**_CONVOLUTION, "state": 128} for model in ("s4", "s4d", "h3")},
    "hyena": _CONVOLUTION,
    "mamba": {**_MAMBA, "state": 128},
}


def _length_efficiency(train_length: int, model: str, lr: float) -> Mapping[str, Values]:
    """Start from a random automaton state, and keep the weights that are best on lengths up to 40."""
    settings = {
        **(_sd_ssm(6, lr, 1.2) if model == "sd-ssm" else {**_RECURRENT, **_PUBLISHED, "lr": lr}),
        "state": 128,
        "initial_state": "given",
        "state_embedding": 512,
        "train_length": train_length,
        "validate_length": 40,
    }
    return {"a5": settings}


_EFFICIENCY_RATES = {
    4: {"rnn": 1e-3, "lstm": 2.5e-3, "sd-ssm": 2.5e-3},
    5: {"rnn": 1e-3, "lstm": 2.5e-3, "sd-ssm": 1e-2},
    6: {"rnn": 1e-3, "lstm": 2.5e-3, "sd-ssm": 7.5e-3},
    7: {"rnn": 2.5e-3, "lstm": 2.5e-3, "sd-ssm": 1e-3},
    8: {"rnn": 2.5e-3, "lstm": 2.5e-3, "sd-ssm": 1e-4},
}

# -- all of them -------------------------------------------------------------------------------------------------------

#: The settings of `sdssm train --model NAME` on any task, chosen by us.
DEFAULTS: Mapping[str, Values] = {
    "rnn": _RECURRENT,
    "lstm": _RECURRENT,
    "transformer": _TRANSFORMER,
    "s4": _CONVOLUTION,
    "s4d": _CONVOLUTION,
    "h3": _CONVOLUTION,
    "hyena": _CONVOLUTION,
    "mamba": _MAMBA,
    "regular-lrnn": _REGULAR_LRNN,
    "complex-diagonal": _COMPLEX,
    "delta-net": _RESIDUAL,
    "delta-product": _RESIDUAL,
    "pd-ssm": _RESIDUAL,
    "slice": _RESIDUAL,
}

#: The settings of someone else's mixer on any task, if it states none.
MIXER_DEFAULTS: Values = _RESIDUAL
#: The settings of someone else's module on any task: its loss has no class centres.
MODULE_DEFAULTS: Values = {"attraction": 0.0, "attraction_gate": 0.0, "projection_decay": 0.0}

#: preset -> model -> task -> settings by name; the task "" applies to all tasks that are not listed.
PRESETS: Mapping[str, Mapping[str, Mapping[str, Values]]] = {
    "scale-free": {"sd-ssm": {"": {}}},  # the defaults of the settings themselves
    "states": {"sd-ssm": {"": _STATES}},
    "default": {model: {"": values} for model, values in DEFAULTS.items()},
    "paper": {
        "sd-ssm": _SD_SSM_PAPER,
        "rnn": _same({**_RECURRENT, "lr": 1e-3}, TABLE1),
        "lstm": _same({**_RECURRENT, "lr": 1e-3}, TABLE1),
        "transformer": _same(_TRANSFORMER, CHOMSKY),
        "s4d": _same({**_CONVOLUTION, "state": 128}, CHOMSKY),
        "h3": _same({**_CONVOLUTION, "state": 128}, CHOMSKY),
        "hyena": _same(_CONVOLUTION, CHOMSKY),
        "mamba": _MAMBA_PAPER,
        "regular-lrnn": _REGULAR_LRNN_PAPER,
        "complex-diagonal": _COMPLEX_PAPER,
    },
    "readme": {"sd-ssm": _SD_SSM_README, "complex-diagonal": {"cycle": _complex(1e-3)}},
    "two-layers": {
        model: {task: {**values, **_PUBLISHED, "layers": 2} for task in CHOMSKY}
        for model, values in _TWO_LAYERS.items()
    },
    **{
        name: {"complex-diagonal": {task: {**_complex(lr), **values} for task, lr in rates.items()}}
        for name, (values, rates) in _COMPLEX_VARIANTS.items()
    },
    **{
        f"length-efficiency-{length}": {model: _length_efficiency(length, model, lr) for model, lr in rates.items()}
        for length, rates in _EFFICIENCY_RATES.items()
    },
}
