"""Group machines as complex diagonal layers: a commutative one as one layer, a dihedral one and its like as two."""

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
from sdssm.layers.complex_diagonal import ComplexDiagonal, ComplexDiagonalSettings
from sdssm.models import Classifier, ModelSettings

#: The most complex entries of a state.
MOST_STATE = 4_096


def compile_one_layer(machine: Machine, n_classes: int) -> Classifier:
    """State entry k is the character chi_k of what the string performs; B = 0, and symbols multiply by chi_k(v).

    The label's score is the indicator of the elements that have it, as a sum of characters: 1 at those, else 0.
    """
    group = SymbolGroup.of(machine)
    phases = character_phases(group.table)
    kept, weight, bias = _scores(phases, group.labels, n_classes)
    turns = roots_of_unity(phases[kept][:, group.table[0]], group.size)  # (K, V)
    # Symbols that do the same share a hidden unit; of these there are four for each entry of the state.
    actions, which = np.unique(turns, axis=1, return_inverse=True)
    state = max(len(kept), -(-actions.shape[1] // 4), 1)
    model = _model(machine.n_symbols, n_classes, state, layers=1)
    detectors = torch.zeros(actions.shape[1], machine.n_symbols, dtype=torch.float64)
    detectors[which.ravel(), torch.arange(machine.n_symbols)] = 1
    _set_layer(_layer(model, 0), detectors, _padded(torch.from_numpy(actions), state))
    _set_readout(model, weight, bias)
    return model.eval()


def compile_two_layers(machine: Machine, n_classes: int) -> Classifier:
    """The first layer follows a commutative quotient of the group (of d{n}: whether toggled), the second the rest.

    Elements are n r(q), see `GroupExtension`. Symbol v turns the second layer's entries by angles that depend on q and v alone.
    Its inputs hold both, since the block adds the first layer's outputs, characters of q, to the embedding of v. For
    each pair (q, v) one hidden unit is above zero there, and it alone: it stands for the angles of that pair, and only
    its size, which the layer divides by, depends on how LayerNorm rounds.
    """
    split = GroupExtension.of(SymbolGroup.of(machine))
    group, symbols, cosets = split.cayley, machine.n_symbols, len(split.quotient)
    kept, weight, bias = _scores(split.phases, group.labels, n_classes)
    first = select_characters(split.of_quotient)
    used = len(first)
    # Beside the first layer's characters its outputs hold entries that stay 1: the real part of one is the constant
    # that thresholds need and its imaginary part the zero; symbols stand in the imaginary parts of the others.
    state = max(len(kept), used + 1 + symbols, -(-cosets * symbols // 4))
    model = _model(symbols, n_classes, state, layers=2)
    one, zero, marks = used, state + used, state + used + 1 + np.arange(symbols)
    signs = 2 * torch.eye(symbols, dtype=torch.float64) - 1
    assert model.embedding is not None
    with torch.no_grad():
        model.embedding[:, marks] = signs.float()

    turns = torch.from_numpy(roots_of_unity(split.of_quotient[first][:, split.quotient[0]], cosets))  # (K, V)
    detectors = torch.zeros(symbols, 2 * state, dtype=torch.float64)
    detectors[:, marks] = torch.eye(symbols, dtype=torch.float64)
    detectors[:, zero] = -1
    inputs = model.blocks[0].inputs(model.embedding)
    _set_layer(_layer(model, 0), detectors, _padded(turns, state), inputs)

    # By then the first layer has read v: what stands there is q v. (1 + sum_k chi_k(q v)* x_k) / Q is 1 at q v and 0
    # elsewhere; a half of the constant is the threshold, and another symbol takes as much as the constant off.
    places = torch.from_numpy(roots_of_unity(split.of_quotient[first], cosets))[:, split.quotient]  # (K, Q, V)
    each = torch.from_numpy(_multiplicity(split.of_quotient[first]))[:, None, None] / cosets
    detectors = torch.zeros(cosets, symbols, 2 * state, dtype=torch.float64)
    detectors[..., :used] = (each * places.real).movedim(0, -1)
    detectors[..., state : state + used] = (each * places.imag).movedim(0, -1)
    detectors[..., marks] = 0.5 * torch.eye(symbols, dtype=torch.float64)
    detectors[..., one] = 1 / cosets - 1
    detectors[..., zero] = -detectors.sum(-1)  # LayerNorm takes the mean off: weights that add up to 0 do not see it
    entries = _padded(places.flatten(1), state)
    added = torch.cat([entries.real, entries.imag]).T.reshape(cosets, symbols, -1).float()
    inputs = model.blocks[1].inputs(added + model.embedding)  # (Q, V, D)
    turns = torch.from_numpy(roots_of_unity(split.steps[kept], group.size))  # (K, Q, V)
    _set_layer(_layer(model, 1), detectors.flatten(0, 1), _padded(turns.flatten(1), state), inputs.flatten(0, 1))
    _set_readout(model, weight, bias)
    return model.eval()


@torch.no_grad()
def phase_error(model: Classifier, machine: Machine) -> float:
    """The largest angle, in radians, between a transition of the last layer and the root of unity it stands for.

    It adds up with every symbol, at worst: labels are safe while steps times this stay well below 1.
    """
    group = SymbolGroup.of(machine)
    layer = model.mixers[-1]
    if len(model.blocks) == 1:
        inputs = model._table()
    else:
        outputs = model.mixers[0].mix_symbols(model._symbols(), _words(group))[0]
        inputs = model.blocks[1].inputs(outputs + model._table()[_words(group)])
    a = torch.view_as_complex(layer.parts(inputs)[0].double())
    turns = a.angle() * group.size / (2 * torch.pi)
    return float((turns - turns.round()).abs().max() * (2 * torch.pi) / group.size)


def _words(group: SymbolGroup) -> Tensor:
    """Strings that meet every symbol after every element: (B, L)."""
    paths: dict[int, list[int]] = {0: []}
    for g in range(group.size):  # numbered as found: each is reached from an earlier one
        for symbol, ahead in enumerate(group.table[g].tolist()):
            paths.setdefault(ahead, [*paths[g], symbol])
    longest = max(map(len, paths.values())) + 1
    symbols = range(group.table.shape[1])
    words = [[*path, *[symbol] * (longest - len(path))] for path in paths.values() for symbol in symbols]
    return torch.tensor(words)


def _scores(phases: np.ndarray, labels: np.ndarray, n_classes: int) -> tuple[np.ndarray, Tensor, Tensor]:
    """The characters that tell the labels, and how: numbers of K of them, weights (C, 2 K) and biases (C,).

    With f the indicator of the elements of a label, f(x) = sum_chi (1 / M sum_g f(g) chi(g)*) chi(x). Characters that
    no label needs have no entry.
    """
    kept = select_characters(phases)
    size = phases.shape[1]
    outputs = output_indicators(labels, n_classes)
    z = (
        torch.from_numpy(roots_of_unity(phases[kept], size)).T * torch.from_numpy(_multiplicity(phases[kept])) / size
    )  # (M, K)
    real, imaginary = outputs @ z.real, outputs @ z.imag
    needed = ((real.abs() + imaginary.abs()).amax(0) > 1e-9).numpy()
    weight = torch.cat([real[:, needed], imaginary[:, needed]], 1)
    return kept[needed], weight, outputs.mean(1)


def _multiplicity(phases: np.ndarray) -> np.ndarray:
    """2 for a character that stands for its conjugate too, 1 for a real one."""
    return np.where(((2 * phases) % phases.shape[1]).any(1), 2.0, 1.0)


def _model(n_symbols: int, n_classes: int, state: int, *, layers: int) -> Classifier:
    """A model whose weights are 0, but those of LayerNorm, and whose entries start at 1 and stay there."""
    if state > MOST_STATE:
        raise ExactError(f"{state:,} characters are needed, and a state has at most {MOST_STATE:,} entries")
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
            _layer(model, i).phase.zero_()
    return model


def _layer(model: Classifier, i: int) -> ComplexDiagonal:
    layer = model.mixers[i]
    assert isinstance(layer, ComplexDiagonal)
    return layer


def _padded(turns: Tensor, state: int) -> Tensor:
    """Entries that nobody needs stay 1: (K, J) -> (N, J)."""
    return torch.cat([turns, turns.new_ones(state - len(turns), turns.shape[1])])


def _set_layer(layer: ComplexDiagonal, detectors: Tensor, turns: Tensor, inputs: Tensor | None = None) -> None:
    """Hidden unit j is above 0 at input j, where no other is, and stands for the transitions turns[:, j].

    Detectors (J, D), turns (N, J), inputs (J, D) with one row for each unit; none: units are 1 there.
    """
    mlp = layer.generator[0]
    assert isinstance(mlp, nn.Sequential)
    hidden, out = mlp[0], mlp[2]
    assert isinstance(hidden, nn.Linear) and isinstance(out, nn.Linear)
    units = len(detectors)
    with torch.no_grad():
        hidden.weight[:units] = detectors
        if inputs is not None:
            # To size 1 up to rounding: dividing by such a size again gives exactly 1, also a few roundings off.
            turns = turns / (inputs @ hidden.weight[:units].mT).diagonal().double()
        out.weight[:, :units] = torch.cat([turns.real, turns.imag])


def _set_readout(model: Classifier, weight: Tensor, bias: Tensor) -> None:
    """Weights (C, 2 K) of the first K real and the first K imaginary parts."""
    used, parts = weight.shape[1] // 2, weight.chunk(2, dim=1)
    assert model.readout.bias is not None
    with torch.no_grad():
        for part, entries in zip(parts, model.readout.weight.chunk(2, dim=1), strict=True):
            entries[:, :used] = part
        model.readout.bias.copy_(bias)
