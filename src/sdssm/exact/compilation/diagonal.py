"""Compile group machines to complex diagonal layers: commutative to one, dihedral and similar to two."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sdssm.automata import Machine
from sdssm.exact.compilation.characters import (
    GroupExtension,
    SymbolGroup,
    character_phases,
    roots_of_unity,
    select_characters,
)
from sdssm.exact.compilation.dense import output_indicators
from sdssm.exact.errors import ExactError
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.layers.complex_diagonal import ComplexDiagonal
from sdssm.layers.settings import ComplexDiagonalSettings
from sdssm.models import Classifier, ModelSettings

#: Limit on the number of complex entries of a state.
MOST_ENTRIES = 4_096


def compile_one_layer(machine: Machine, n_classes: int, watch: Watch = UNWATCHED) -> Classifier:
    """Return one diagonal layer with B = 0 that emulates a commutative group.

    Entry k of the state is the character chi_k of the group element that the string performs; symbol v multiplies it
    by chi_k(v). The logit of a label is the indicator function of its elements, written as a sum of characters: 1 at
    these elements, else 0.
    """
    group = SymbolGroup.generate(machine, watch)
    watch.start("compute the characters of the group")
    phases = character_phases(group.table)
    kept, weight, bias = _readout_weights(phases, group.labels, n_classes)
    factors = roots_of_unity(phases[kept][:, group.table[0]], group.size)  # (K, V)
    # Symbols with the same action share a hidden unit; the layer has four hidden units for each entry of the state.
    actions, action_of_symbol = np.unique(factors, axis=1, return_inverse=True)
    state = max(len(kept), -(-actions.shape[1] // 4), 1)
    model = _empty_model(machine.n_symbols, n_classes, state, layers=1)
    detectors = torch.zeros(actions.shape[1], machine.n_symbols, dtype=torch.float64)
    detectors[action_of_symbol.ravel(), torch.arange(machine.n_symbols)] = 1
    _set_transitions(_diagonal_layer(model, 0), detectors, _pad_entries(torch.from_numpy(actions), state))
    _set_readout(model, weight, bias)
    return model.eval()


def compile_two_layers(machine: Machine, n_classes: int, watch: Watch = UNWATCHED) -> Classifier:
    """Return two diagonal layers with B = 0 that emulate a group such as d{n}.

    The group needs a commutative normal subgroup with a commutative quotient. The first layer follows the quotient (for
    d{n}: whether it is toggled), the second layer the rest. Elements are n r(q), see `GroupExtension`. Symbol v rotates
    the entries of the second layer by angles that depend only on q and v. The inputs of the second layer contain both,
    because the block adds the outputs of the first layer, characters of q, to the embedding of v. For each pair (q, v)
    exactly one hidden unit is positive, and its output weights are the angles of that pair. Only the value of this unit
    depends on the rounding of LayerNorm, and the layer removes it by dividing by the modulus.
    """
    extension = GroupExtension.split(SymbolGroup.generate(machine, watch), watch)
    group, symbols, cosets = extension.group, machine.n_symbols, len(extension.quotient)
    kept, weight, bias = _readout_weights(extension.phases, group.labels, n_classes)
    first = select_characters(extension.quotient_phases)
    used = len(first)
    # The outputs of the first layer also have entries that stay 1. The real part of one of them is the constant that
    # thresholds need, and its imaginary part is zero; the symbols are encoded in the imaginary parts of the others.
    state = max(len(kept), used + 1 + symbols, -(-cosets * symbols // 4))
    model = _empty_model(symbols, n_classes, state, layers=2)
    constant, zero, marks = used, state + used, state + used + 1 + np.arange(symbols)
    signs = 2 * torch.eye(symbols, dtype=torch.float64) - 1
    assert model.embedding is not None
    with torch.no_grad():
        model.embedding[:, marks] = signs.float()

    quotient_phases = extension.quotient_phases[first]
    factors = torch.from_numpy(roots_of_unity(quotient_phases[:, extension.quotient[0]], cosets))  # (K, V)
    detectors = torch.zeros(symbols, 2 * state, dtype=torch.float64)
    detectors[:, marks] = torch.eye(symbols, dtype=torch.float64)
    detectors[:, zero] = -1
    inputs = model.blocks[0].inputs(model.embedding)
    _set_transitions(_diagonal_layer(model, 0), detectors, _pad_entries(factors, state), inputs)

    # The first layer has already read v, so its state is q v. (1 + sum_k chi_k(q v)* x_k) / Q is 1 at q v and 0
    # elsewhere. Half of the constant is the threshold, and any other symbol subtracts as much as the constant.
    values = torch.from_numpy(roots_of_unity(quotient_phases, cosets))[:, extension.quotient]  # (K, Q, V)
    multiplicity = torch.from_numpy(_multiplicity(quotient_phases))[:, None, None] / cosets
    detectors = torch.zeros(cosets, symbols, 2 * state, dtype=torch.float64)
    detectors[..., :used] = (multiplicity * values.real).movedim(0, -1)
    detectors[..., state : state + used] = (multiplicity * values.imag).movedim(0, -1)
    detectors[..., marks] = 0.5 * torch.eye(symbols, dtype=torch.float64)
    detectors[..., constant] = 1 / cosets - 1
    # LayerNorm subtracts the mean, which weights that add up to 0 do not see.
    detectors[..., zero] = -detectors.sum(-1)
    entries = _pad_entries(values.flatten(1), state)
    first_outputs = torch.cat([entries.real, entries.imag]).T.reshape(cosets, symbols, -1).float()
    inputs = model.blocks[1].inputs(first_outputs + model.embedding)  # (Q, V, D)
    factors = _pad_entries(torch.from_numpy(roots_of_unity(extension.steps[kept], group.size)).flatten(1), state)
    _set_transitions(_diagonal_layer(model, 1), detectors.flatten(0, 1), factors, inputs.flatten(0, 1))
    _set_readout(model, weight, bias)
    return model.eval()


@torch.no_grad()
def phase_error(model: Classifier, machine: Machine) -> float:
    """Return the largest angle, in radians, between a transition and its exact root of unity.

    Only the last layer is measured. In the worst case the angles add up with every symbol: labels are safe while the
    number of steps times this angle stays well below 1.
    """
    group = SymbolGroup.generate(machine)
    layer = model.mixers[-1]
    if len(model.blocks) == 1:
        inputs = model.input_table()
    else:
        words = _covering_strings(group)
        outputs = model.mixers[0].mix_symbols(model.symbol_parts(), words)[0]
        inputs = model.blocks[1].inputs(outputs + model.input_table()[words])
    a = torch.view_as_complex(layer.parts(inputs)[0].double())
    turns = a.angle() * group.size / (2 * torch.pi)
    return float((turns - turns.round()).abs().max() * (2 * torch.pi) / group.size)


def _covering_strings(group: SymbolGroup) -> Tensor:
    """Return strings in which every symbol follows every group element: (B, L)."""
    paths: dict[int, list[int]] = {0: []}
    for g in range(group.size):  # elements are numbered in the order of discovery, so a path to g is known
        for symbol, successor in enumerate(group.table[g].tolist()):
            paths.setdefault(successor, [*paths[g], symbol])
    longest = max(map(len, paths.values())) + 1
    symbols = range(group.table.shape[1])
    words = [[*path, *[symbol] * (longest - len(path))] for path in paths.values() for symbol in symbols]
    return torch.tensor(words)


def _readout_weights(phases: np.ndarray, labels: np.ndarray, n_classes: int) -> tuple[np.ndarray, Tensor, Tensor]:
    """Return the K characters that the labels need, and the readout's weights (C, 2 K) and biases (C,).

    With the indicator function f of the elements of a label, f(x) = sum_chi (1 / M sum_g f(g) chi(g)*) chi(x).
    Characters that no label needs get no entry of the state.
    """
    kept = select_characters(phases)
    size = phases.shape[1]
    indicators = output_indicators(labels, n_classes)
    values = torch.from_numpy(roots_of_unity(phases[kept], size))
    z = values.T * torch.from_numpy(_multiplicity(phases[kept])) / size  # (M, K)
    real, imaginary = indicators @ z.real, indicators @ z.imag
    needed = ((real.abs() + imaginary.abs()).amax(0) > 1e-9).numpy()
    weight = torch.cat([real[:, needed], imaginary[:, needed]], 1)
    return kept[needed], weight, indicators.mean(1)


def _multiplicity(phases: np.ndarray) -> np.ndarray:
    """Return 2 for a complex character, which also represents its conjugate, and 1 for a real one."""
    return np.where(((2 * phases) % phases.shape[1]).any(1), 2.0, 1.0)


def _empty_model(n_symbols: int, n_classes: int, state: int, *, layers: int) -> Classifier:
    """Return a model with zero weights, except in LayerNorm, whose state entries start at 1 and stay 1."""
    if state > MOST_ENTRIES:
        raise ExactError(
            f"{state:,} characters are needed, but a state has at most {MOST_ENTRIES:,} entries; choose a smaller group"
        )
    settings = ModelSettings(
        name=ComplexDiagonal.name,
        mixer=ComplexDiagonalSettings(state=state, input_matrix=False),
        layers=layers,
        block="bare" if layers == 1 else "last-bare",
        embedding=None if layers == 1 else 2 * state,  # as wide as the outputs that are added to it
        norm="none",
        readout="linear",
    )
    model = Classifier(settings, n_symbols, n_classes, generator=torch.Generator())
    with torch.no_grad():
        for module in model.modules():
            if not isinstance(module, nn.LayerNorm):
                for parameter in module.parameters(recurse=False):
                    parameter.zero_()
        for i in range(layers):
            _diagonal_layer(model, i).phase.zero_()
    return model


def _diagonal_layer(model: Classifier, i: int) -> ComplexDiagonal:
    layer = model.mixers[i]
    assert isinstance(layer, ComplexDiagonal)
    return layer


def _pad_entries(factors: Tensor, state: int) -> Tensor:
    """Fill up with factors 1 for the entries of the state that are not used: (K, J) -> (N, J)."""
    return torch.cat([factors, factors.new_ones(state - len(factors), factors.shape[1])])


def _set_transitions(layer: ComplexDiagonal, detectors: Tensor, factors: Tensor, inputs: Tensor | None = None) -> None:
    """Let only hidden unit j be positive at input j, with the transitions factors[:, j].

    Shapes: detectors (J, D), factors (N, J), inputs (J, D) with one row for each unit. If inputs is None, each unit
    has the value 1 at its input.
    """
    mlp = layer.generator[0]
    assert isinstance(mlp, nn.Sequential)
    hidden, out = mlp[0], mlp[2]
    assert isinstance(hidden, nn.Linear) and isinstance(out, nn.Linear)
    units = len(detectors)
    with torch.no_grad():
        hidden.weight[:units] = detectors
        if inputs is not None:
            # The layer's transitions then have modulus 1 up to rounding. The layer divides by the modulus, and a number
            # within a few roundings of 1 divided by itself is exactly 1.
            factors = factors / (inputs @ hidden.weight[:units].mT).diagonal().double()
        out.weight[:, :units] = torch.cat([factors.real, factors.imag])


def _set_readout(model: Classifier, weight: Tensor, bias: Tensor) -> None:
    """Set the readout from weights (C, 2 K) for the real and the imaginary parts of the first K entries."""
    used, parts = weight.shape[1] // 2, weight.chunk(2, dim=1)
    assert model.readout.bias is not None
    with torch.no_grad():
        for part, entries in zip(parts, model.readout.weight.chunk(2, dim=1), strict=True):
            entries[:, :used] = part
        model.readout.bias.copy_(bias)
