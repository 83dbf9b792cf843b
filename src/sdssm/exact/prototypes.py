"""Prototypes of the states of a model: the choice of those for which moving to the nearest every m symbols is exact."""

from __future__ import annotations

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.prototype_proof import Failure, PrototypeProof, Prototypes
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.explored_classes import START, ClassGraph
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.watch import Watch
from sdssm.models.module_settings import ModuleSettings, options_class
from sdssm.models.registry import SNAPPED_NAME, SNAPPED_PATH
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.models.wrapped_module import WrappedModule, wrap_module
from sdssm.settings import build_settings

#: How often prototypes are replaced by the mean of what leads to them, until the proof succeeds.
ROUNDS = (0, 1, 2, 4, 8, 16, 64)


def choose_prototypes(
    matrices: TokenMatrices, graph: ClassGraph, machine: Machine, every: int, watch: Watch
) -> Prototypes:
    """Return prototypes that are proved to be exact every `every` symbols; raise ExactError if none are found.

    The first ones are the states that the extraction found first. If the proof fails, each is replaced by the mean of
    the states that one symbol leads to from the others, again and again; then by one prototype for each state of the
    machine.
    """
    watch.start("prove the prototypes")
    proof = make_proof(matrices, machine, every, watch)
    states = _machine_states(graph, machine)
    first = Prototypes(graph.points.double().numpy()[START + 1 :], states[START + 1 :])
    failure = None
    for merged in (False, True):
        prototypes = _merge(first) if merged else first
        done = 0
        for rounds in ROUNDS:
            for _ in range(rounds - done):
                prototypes = _average(matrices, prototypes, machine)
            done = rounds
            latest = proof.find_failure(prototypes)
            if latest is None:
                return prototypes
            failure = failure or latest
    assert failure is not None
    raise _not_proved(graph, machine, failure, every)


def _not_proved(graph: ClassGraph, machine: Machine, failure: Failure, every: int) -> ExactError:
    word = (*graph.words[failure.prototype + 1], *failure.word)
    text = f"no prototypes are proved to be exact: after the string {machine.decode(word)[:80]!r} {failure.fault}"
    if every == 1:
        return ExactError(
            f"{text}; train longer, or snap without every", shell=f"{text}; train longer, or omit --every"
        )
    return ExactError(
        f"{text}; pass a smaller every, or snap without every", shell=f"{text}; pass a smaller --every, or omit it"
    )


def _machine_states(graph: ClassGraph, machine: Machine) -> Ints:
    """Return the state of the machine that each class of the graph stands for: (Q,)."""
    states = np.full(len(graph.labels), machine.start)
    for q, word in enumerate(graph.words):
        states[q] = machine.run(word)
    return states


def _merge(prototypes: Prototypes) -> Prototypes:
    """Return one prototype for each state: the mean of all."""
    states = np.unique(prototypes.states)
    points = np.stack([prototypes.points[prototypes.states == q].mean(0) for q in states])
    return Prototypes(_unit(points), states)


def _average(matrices: TokenMatrices, prototypes: Prototypes, machine: Machine) -> Prototypes:
    """Replace each prototype by the mean of the states after one symbol that are nearest to it among its own."""
    points = torch.from_numpy(prototypes.points).float()
    after = matrices.successors(points).flatten(0, 1)
    following = machine.table[prototypes.states].ravel()
    scores = (after @ points.T).numpy()
    nearest = np.where(prototypes.states == following[:, None], scores, -np.inf).argmax(1)
    sums = np.zeros_like(prototypes.points)
    np.add.at(sums, nearest, after.double().numpy())
    reached = np.bincount(nearest, minlength=len(points)) > 0
    return Prototypes(_unit(np.where(reached[:, None], sums, prototypes.points)), prototypes.states)


def _unit(points: Floats) -> Floats:
    """Divide each point by its norm, and round it to float32."""
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-30)
    return np.asarray(unit, dtype=np.float32).astype(np.float64)


def build_snapped(matrices: TokenMatrices, prototypes: Prototypes, every: int) -> WrappedModule:
    """Return the model that moves its state to the nearest prototype every `every` symbols."""
    symbols, size = matrices.A.shape[:2]
    sizes = {
        "state": size,
        "prototypes": len(prototypes.points),
        "every": every,
        "centres": len(matrices.rows) if matrices.has_centres else 0,
    }
    options = build_settings(options_class(SnappedRecurrence), sizes)
    module = SnappedRecurrence(symbols, matrices.n_classes, **sizes)
    with torch.no_grad():
        module.A.copy_(matrices.A)
        module.start.copy_(matrices.start)
        module.rows.copy_(matrices.rows)
        module.points.copy_(torch.from_numpy(prototypes.points))
        if module.row_labels is not None:
            module.row_labels.copy_(matrices.row_labels)
    settings = ModuleSettings(name=SNAPPED_NAME, import_path=SNAPPED_PATH, options=options)
    return wrap_module(module.eval(), symbols, matrices.n_classes, settings=settings)


def make_proof(matrices: TokenMatrices, machine: Machine, every: int, watch: Watch) -> PrototypeProof:
    """Return the proof for the matrices of a model."""
    A, start, rows = (values.double().numpy() for values in (matrices.A, matrices.start, matrices.rows))
    return PrototypeProof(A, start, rows, matrices.row_labels.numpy(), machine, every, watch)
