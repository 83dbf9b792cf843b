"""Models with a centre of the readout for each state of an automaton: extraction, certificates, prototypes."""

from __future__ import annotations

import itertools
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.export import Dim

from benchmarks.proofs import build_noisy
from sdssm.automata import Machine
from sdssm.exact import certify, extract, snap
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.candidates import CandidateMachines, find_disagreements
from sdssm.exact.extraction.model_reader import ModelReader
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.experiments.mlregtest.proofs import prove_language
from sdssm.exporting.step_module import make_step_module
from sdssm.models import Classifier, TokenModel
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.tasks import Task, get_task
from tests.evaluation.machines import exact
from tests.exact.test_extract import random_machine


def wrong_strings(model: TokenModel, machine: Machine, longest: int) -> list[tuple[int, ...]]:
    """Read every string up to a length, and return those that are misclassified."""
    wrong = []
    for length in range(1, longest + 1):
        tokens = np.array(list(itertools.product(range(machine.n_symbols), repeat=length)))
        with torch.no_grad():
            predictions = model.advance(torch.from_numpy(tokens))[0][:, -1].argmax(-1).tolist()
        labels = [machine.output(word) for word in tokens.tolist()]
        rows = zip(tokens.tolist(), predictions, labels, strict=True)
        wrong += [tuple(word) for word, prediction, label in rows if prediction != label]
    return wrong


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("seed", [1, 3])
def test_certified_strings_are_classified_correctly(seed: int, noise: float) -> None:
    task = get_task(random_machine(seed, states=5))
    model = build_noisy(task, 12, noise)
    certificate = certify(model, task, strings=500, search=60)
    horizon = 9 if certificate.horizon is None else certificate.horizon
    wrong = wrong_strings(model, task.machine, 9)
    assert not [word for word in wrong if len(word) <= horizon]
    if certificate.counterexample is not None:
        assert model.last_logits(torch.tensor([certificate.counterexample])).argmax() != task.machine.output(
            certificate.counterexample
        )
    assert horizon >= 3 or noise == 0.3
    # The states of the same model are harder to predict than their labels.
    states = get_task(Machine(table=task.minimal.table, start=task.minimal.start, outputs=np.arange(5)))
    of_states = certify(build_noisy(states, 12, noise), states, strings=500, search=0).horizon
    assert certificate.horizon is None or (of_states is not None and certificate.horizon >= of_states)


def test_matrices_that_stretch_the_unused_directions_are_certified() -> None:
    """Training leaves a multiple of the identity on directions that no state has; it must not spoil the bounds."""
    task = get_task("regex:(b|c|aa*b)*")
    model = build_noisy(task, 16, 1e-5, rotate=False)
    unused = torch.arange(task.minimal.n_states, 16)
    model.dictionary.data[:, unused, unused] += 1.2
    horizon = certify(model, task, strings=200, search=0).horizon
    assert horizon is not None and horizon >= 4  # what is checked string by string
    assert not wrong_strings(model, task.machine, horizon)


def test_a_model_of_whole_numbers_with_centres_is_certified_for_every_length() -> None:
    task = get_task(random_machine(2, states=6))
    model = build_noisy(task, 6, 0.0, rotate=False)
    certificate = certify(model, task)
    assert certificate.exact and certificate.horizon is None
    labels = model.readout.centre_labels
    assert labels is not None
    labels[3] = 1 - labels[3]
    certificate = certify(model, task)
    assert certificate.horizon is not None and certificate.counterexample is not None
    assert certificate.counterexample in wrong_strings(model, task.machine, certificate.horizon + 1)
    assert not wrong_strings(model, task.machine, certificate.horizon)


def test_a_centre_without_a_label_is_never_predicted() -> None:
    """Neither one that is not used, nor that of a state which no valid string reaches."""
    task = get_task(random_machine(1, states=6))
    model = build_noisy(task, 12, 0.05)
    assert model.readout.centre_labels is not None
    model.readout.centre_labels[2], model.readout.centre_labels[4] = -1, model.n_classes
    tokens = torch.randint(2, (64, 30), generator=torch.Generator().manual_seed(0))
    expected = model(tokens).argmax(-1)
    matrices = TokenMatrices.read(model)
    assert len(matrices.rows) == 4
    assert np.array_equal(matrices.labels_of_prefixes(tokens.numpy()), expected.numpy())
    assert extract(model, task, lengths=[10], strings=32).n_classes == 2
    labels = model.readout.centre_labels
    labels[labels == 1] = 0
    with pytest.raises(ExactError, match="no centre of the readout has the label 1"):
        certify(model, task)


# -- prototypes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("centres", [True, False])
def test_blocks_are_read_as_symbol_by_symbol(every: int, centres: bool) -> None:
    task = get_task(random_machine(4, states=5))
    module = snap(build_noisy(task, 12, 0.05, centres=centres), task, every=every).model.module
    assert isinstance(module, SnappedRecurrence)
    tokens = torch.randint(2, (7, 200), generator=torch.Generator().manual_seed(0))
    first = module.start.expand(7, -1), torch.zeros(7, 1, dtype=torch.long)
    assert module._pays_off(tokens, first) and not module._pays_off(tokens[:, :every], first)
    expected, (x, since) = module.read_symbols(tokens, first)
    logits, state = module.advance(tokens, None)
    assert torch.allclose(logits, expected, atol=1e-5)
    assert torch.equal(state[0], x) == (int(since[0]) == 0) or torch.allclose(state[0], x, atol=1e-5)
    assert torch.equal(state[1], since)
    parts: list[Tensor] = []
    carried: tuple[Tensor, Tensor] | None = None
    for piece in torch.split(tokens, [61, 1, 100, 38], 1):
        logits, carried = module.advance(piece, carried)
        parts.append(logits)
    assert torch.allclose(torch.cat(parts, 1), expected, atol=1e-5)
    # States of different ages have no common blocks.
    mixed = x, torch.arange(7)[:, None] % every
    assert every == 1 or not module._pays_off(tokens, mixed)


@pytest.mark.parametrize("every", [1, 3])
def test_a_model_with_prototypes_is_certified_from_its_tensors(every: int) -> None:
    """Whatever is changed in them: a certified model classifies every short string correctly."""
    task = get_task(random_machine(5, states=5))
    model = snap(build_noisy(task, 12, 0.05), task, every=every).model
    certificate = certify(model)
    assert certificate.horizon is None and certificate.float_horizon is None and certificate.task == task.name
    generator, proved = torch.Generator().manual_seed(0), 0
    for size in (0.1, 0.4, 0.8, 1.5):
        changed = deepcopy(model)
        module = changed.module
        assert isinstance(module, SnappedRecurrence)
        for values in (module.points, module.rows):
            values += size * torch.randn(values.shape, generator=generator) * 12**-0.5
            values /= values.norm(dim=1, keepdim=True)
        certificate = certify(changed, task)
        wrong = wrong_strings(changed, task.machine, 8)
        assert certificate.horizon == (None if not certificate.proves_nothing else 0)
        assert certificate.horizon == 0 or not wrong
        assert not wrong or certificate.counterexample is not None
        if certificate.counterexample is not None:
            assert wrong and len(certificate.counterexample) >= len(wrong[0])
        proved += certificate.horizon is None
    assert 0 < proved < 4
    assert certify(model, max_seconds=0.0).stopped


def test_one_step_is_exported_for_any_number_of_strings() -> None:
    task = get_task(random_machine(4, states=5))
    step = make_step_module(snap(build_noisy(task, 130, 0.05), task, every=2).model)
    example = (torch.tensor([0, 1, 1, 0]), *(value.expand(4, *value.shape[1:]).contiguous() for value in step.initial))
    shapes = ({0: Dim.AUTO}, tuple({0: Dim.AUTO} for _ in step.initial))
    program = torch.export.export(step, example, dynamic_shapes=shapes, strict=False).module()
    inputs = torch.tensor([1, 0, 1]), *(value.expand(3, *value.shape[1:]).contiguous() for value in step.initial)
    for actual, expected in zip(program(*inputs), step(*inputs), strict=True):
        assert torch.allclose(actual, expected, atol=1e-6)


# -- the tie between automaton and model -------------------------------------------------------------------------------


def sparse_machine(*, accepts: bool = True) -> Machine:
    """Whether a string has five zeros in a row, among 16 symbols: one uniform string of 20 symbols in 70,000 has."""
    table = np.zeros((6, 16), dtype=np.int64)
    table[:, 0] = [1, 2, 3, 4, 5, 5]
    table[5] = 5
    return Machine(table=table, outputs=[0, 0, 0, 0, 0, int(accepts)])


def test_machine_and_model_are_compared_where_uniform_strings_do_not_lead() -> None:
    model = exact(Machine(table=sparse_machine().table, outputs=[0, 0, 1, 0, 0, 0]))
    model = replace_outputs(model, sparse_machine(accepts=False))
    reader = ModelReader(model, None)
    candidates = CandidateMachines(reader, None, 20, seed=0)
    uniform = candidates.draw(256, 20)
    assert not find_disagreements(sparse_machine(), uniform, reader.labels(uniform)).any()
    fidelity = candidates.fidelity(sparse_machine(), 20, 256)
    assert fidelity.throughout < 256 and fidelity.agree < 256
    assert candidates.fidelity(sparse_machine(), 20, 1).strings == 1


def replace_outputs(model: Classifier, machine: Machine) -> Classifier:
    """Give a compiled model the outputs of a machine with the same transitions."""
    hot = torch.nn.functional.one_hot(torch.tensor(machine.outputs), model.n_classes).T.float()
    with torch.no_grad():
        model.readout.weight.copy_(hot)
    return model


@pytest.mark.parametrize("centres", [True, False])
def test_a_proof_says_what_ties_the_automaton_to_the_model(centres: bool) -> None:
    task = Task(name="sparse", machine=sparse_machine())
    right = prove_language(build_noisy(task, 16, 0.0, centres=centres), task, 10.0)
    assert (right.verdict, right.is_followed, right.is_snapped) == ("equal", True, True)
    drifting = prove_language(build_noisy(task, 16, 0.1, centres=centres), task, 10.0)
    assert (drifting.verdict, drifting.is_followed, drifting.is_snapped) == ("equal", False, True)
    assert drifting.string is not None
    other, expected = (get_task(random_machine(seed, states=6)) for seed in (2, 1))
    wrong = prove_language(build_noisy(other, 16, 0.0, centres=centres), expected, 10.0)
    assert (wrong.verdict, wrong.is_followed, wrong.is_snapped) == ("different", False, False)
