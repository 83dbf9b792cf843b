"""Certificates: perturb a model, certify it, and look for a misclassified string within the certified length.

The model is read here one symbol after the other, with `advance` in float32 as a user would, and in float64 with the
matrices that the model itself reports. Neither uses code of the certifier.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import sdssm
from sdssm.automata import Machine
from sdssm.errors import SdssmError
from sdssm.models import Classifier
from tests.campaign.attack import Attack, Trial

#: Tasks whose models are perturbed, and those on which a tiny model learns enough in seconds to be certified.
COMPILED, TRAINED = ("parity", "even_pairs", "cycle", "d4", "regex:(ab)*", "c2xc4"), ("parity", "cycle")
#: Strings that are read exhaustively, random strings, and the longest of them.
MOST_STRINGS, RANDOM_STRINGS, LONGEST = 4096, 64, 200
#: Difference of two float64 scores, relative to the largest, below which their order is not decided.
UNDECIDED = 1e-10


@cache
def trained_weights(task: str) -> tuple[Classifier, Machine]:
    """Train a tiny model once per process and its forks; it is correct on short strings at least."""
    from tempfile import TemporaryDirectory

    settings: dict[str, Any] = {"state": 8, "batch": 64, "steps": 400, "lr": 3e-3, "train_length": 10}
    with TemporaryDirectory() as folder:
        runs = sdssm.train(task, settings=settings, out=folder, seeds=1, progress=False)
        model = sdssm.load(runs)
    assert isinstance(model, Classifier)
    return model, sdssm.task(task).machine


@cache
def compiled_model(task: str) -> tuple[Classifier, Machine]:
    from sdssm.exact import compile as compile_machine

    model = compile_machine(task)
    assert isinstance(model, Classifier)
    return model, sdssm.task(task).machine


def copy_model(model: Classifier) -> Classifier:
    copy = Classifier(model.settings, model.n_symbols, model.n_classes, generator=torch.Generator())
    copy.load_state_dict(model.state_dict())
    return copy.eval()


def flip_bit(value: float, bit: int) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    (flipped,) = struct.unpack("<f", struct.pack("<I", bits ^ (1 << bit)))
    return float(flipped)


def add_noise(random: Random, model: Classifier) -> str:
    """Add noise to all weights or to the dictionary alone; most scales are near the end of what is certified."""
    scale = 10 ** random.uniform(-7, -0.5)
    generator = torch.Generator().manual_seed(random.getrandbits(32))
    parameters = list(model.parameters()) if random.random() < 0.5 else [model.dictionary]
    for parameter in parameters:
        parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return f"noise {scale:.1e}"


def change_weight(random: Random, model: Classifier) -> str:
    """Flip a bit of one weight, or zero, negate or double it."""
    parameter = random.choice([p for p in model.parameters() if p.numel()])
    flat, k = parameter.view(-1), random.randrange(parameter.numel())
    value = float(flat[k])
    changes: dict[str, Callable[[], float]] = {
        "bit": lambda: flip_bit(value, random.randrange(32)),
        "zero": lambda: 0.0,
        "sign": lambda: -value,
        "double": lambda: 2 * value,
    }
    name = random.choice(list(changes))
    flat[k] = changes[name]()
    return f"one weight {value:.3g} -> {float(flat[k]):.3g}"


def scale_all(random: Random, model: Classifier) -> str:
    factor = 2.0 ** random.randint(-30, 30)
    random.choice([p for p in model.parameters() if p.numel()]).mul_(factor)
    return f"a tensor times {factor:.1e}"


PERTURBATIONS: dict[str, Callable[[Random, Classifier], str]] = {
    "noise": add_noise,
    "one weight": change_weight,
    "scale": scale_all,
}


def choose_strings(random: Random, machine: Machine, valid: Machine | None, horizon: int) -> list[np.ndarray]:
    """Return valid strings within the horizon, in arrays of strings of the same length."""
    V, length = machine.n_symbols, 1
    while V ** (length + 1) <= MOST_STRINGS:
        length += 1
    length = min(length, horizon)
    groups = [np.array(list(itertools.product(range(V), repeat=length)))] if length else []
    if horizon > length:
        generator, longest = np.random.default_rng(random.getrandbits(32)), min(horizon, LONGEST)
        strings = generator.integers(V, size=(RANDOM_STRINGS, longest))
        for row in range(RANDOM_STRINGS // 4):  # repeated words, which amplify an error most
            word = strings[row, : 1 + row % 4]
            strings[row] = np.resize(word, longest)
        groups.append(strings)
    return groups


def is_valid(valid: Machine | None, strings: np.ndarray) -> np.ndarray:
    """Return for every prefix of strings (B, L) whether it is valid: (B, L)."""
    if valid is None:
        return np.ones(strings.shape, bool)
    states, rows = np.full(len(strings), valid.start), []
    for symbols in strings.T:
        states = valid.table[states, symbols]
        rows.append(valid.outputs[states] == 1)
    return np.stack(rows, 1)


def read_labels(machine: Machine, strings: np.ndarray) -> np.ndarray:
    """Return the label after every prefix: (B, L)."""
    states, labels = np.full(len(strings), machine.start), []
    for symbols in strings.T:
        states = machine.table[states, symbols]
        labels.append(machine.outputs[states])
    return np.stack(labels, 1)


def read_float32(model: Classifier, strings: np.ndarray) -> np.ndarray:
    """Return the predictions of the model after every prefix, read one symbol at a time: (B, L)."""
    state, predictions = None, []
    with torch.inference_mode():
        for token in torch.from_numpy(strings).unbind(1):
            logits, state = model.advance(token[:, None], state)
            predictions.append(logits[:, 0].argmax(-1).numpy())
    return np.stack(predictions, 1)


def read_float64(model: Classifier, strings: np.ndarray) -> np.ndarray:
    """Return the predictions with float64 arithmetic on the float32 weights, -1 where they are too close to call.

    The matrices are those of `symbol_parts`, in float32, which the layer computes with; the readout runs in float64.
    """
    with torch.inference_mode():
        matrices = model.symbol_parts().A.double()
        double = copy_model(model).double()
        x = model.first_state.double().expand(len(strings), -1)
        predictions = []
        for token in torch.from_numpy(strings).unbind(1):
            x = torch.einsum("bij,bj->bi", matrices[token], x)
            x = x / x.abs().amax(1, keepdim=True)
            read = x if model.query is None else torch.einsum("ij,bj->bi", matrices[model.query], x)
            logits = double.logits(read)
            best = logits.topk(min(2, logits.shape[1]), dim=1)
            labels = best.indices[:, 0].clone()
            if logits.shape[1] > 1:
                gap = best.values[:, 0] - best.values[:, 1]
                labels[~(gap > UNDECIDED * logits.abs().amax(1))] = -1
            predictions.append(labels.numpy())
    return np.stack(predictions, 1)


def find_wrong(
    random: Random, model: Classifier, task: Any, horizon: int, read: Callable[[Classifier, np.ndarray], np.ndarray]
) -> tuple[int, ...] | None:
    """Return a valid string up to the horizon that the model misclassifies, None if no string is known to be one."""
    for strings in choose_strings(random, task.machine, task.valid, horizon):
        predicted = read(model, strings)
        wrong = (predicted != read_labels(task.machine, strings)) & (predicted >= 0) & is_valid(task.valid, strings)
        if wrong.any():
            row, end = (int(index[0]) for index in np.nonzero(wrong))
            return tuple(map(int, strings[row, : end + 1]))
    return None


def attack_certificate(random: Random, folder: Path) -> Iterator[Trial]:
    """Perturb a model, certify it, and compare the certificate with what the model predicts."""
    from sdssm.exact import certify

    is_trained = random.random() < 0.4
    name = random.choice(TRAINED if is_trained else COMPILED)
    base, _ = (trained_weights if is_trained else compiled_model)(name)
    model, change = copy_model(base), random.choice(list(PERTURBATIONS))
    with torch.no_grad():
        detail = PERTURBATIONS[change](random, model)
    kind = f"{'trained' if is_trained else 'compiled'}, {change}"
    try:
        certificate = certify(model, name, strings=512, longest=LONGEST, search=16, seed=random.randrange(100))
    except SdssmError:
        yield Trial(kind=f"{kind}, refused")  # nothing is claimed
        return
    task, most = sdssm.task(name), LONGEST
    claims = (("float32", certificate.float_horizon, read_float32), ("exact", certificate.horizon, read_float64))
    for arithmetic, horizon, read in claims:
        length = most if horizon is None else min(horizon, most)
        wrong = find_wrong(random, model, task, length, read) if length else None
        if wrong is not None:
            problem = f"{name}, {detail}: certified to {horizon} in {arithmetic}, but {wrong} is misclassified"
            yield Trial(kind=kind, problem=problem)
            return
    proved = certificate.horizon != 0 or certificate.float_horizon != 0
    yield Trial(kind=f"{kind}, {'certified' if proved else 'nothing certified'}")


ATTACKS = (
    Attack(
        name="certificates",
        subject="perturbed compiled and trained models: no string within a certificate is misclassified",
        attempt=attack_certificate,
        share=4.0,
        prepare=lambda: [*map(trained_weights, TRAINED), *map(compiled_model, COMPILED)],
    ),
)
