"""Prototypes: a trained recurrence that moves its state to the nearest of them, and the proof that this is exact."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from sdssm.automata import Machine, get_machine
from sdssm.cli import main
from sdssm.evaluation import evaluate
from sdssm.exact import extract, snap
from sdssm.exact.certification.prototype_proof import Prototypes
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.matrix_search import MatrixSearch
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.prototypes import build_snapped, choose_prototypes, make_proof
from sdssm.exact.watch import UNWATCHED
from sdssm.models import Classifier, ModelSettings
from sdssm.models.evidence import find_evidence
from sdssm.models.model_card import make_card
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.runs import load
from tests.evaluation.machines import exact, tiring_parity
from tests.exact.test_extract import noisy, random_machine


@pytest.mark.parametrize("every", [1, 3])
def test_a_drifting_model_with_prototypes_is_exact(every: int, tmp_path: Path) -> None:
    model = noisy(exact(get_machine("d4")), 0.04)
    snapped = snap(model, "d4", every=every)
    assert snapped.certificate.horizon is None and snapped.certificate.float_horizon is None
    assert snapped.difference is None
    moved = "after every symbol" if every == 1 else "every 3 symbols"
    proved = f"nearest prototype {moved}, is proved to emulate the extracted machine for every length."
    assert snapped.to_table().notes[-1].endswith(proved)
    snapped.save(tmp_path)
    loaded = load(tmp_path)
    assert evaluate(model, task="d4", lengths=500, strings=16).runs[0].accuracy[0] < 80
    assert evaluate(loaded, task="d4", lengths=500, strings=16).runs[0].accuracy[0] == 100
    assert torch.equal(loaded.module.A, TokenMatrices.read(model).A)  # the trained matrices are kept


@pytest.mark.parametrize("size", [4, 200])
def test_a_string_is_read_in_pieces(size: int) -> None:
    """Both ways of multiplying, and the definition: one symbol after the other."""
    generator = torch.Generator().manual_seed(0)
    module = SnappedRecurrence(3, 2, state=size, prototypes=5, every=4)
    for name in ("A", "rows", "points"):
        value = getattr(module, name)
        value.copy_(torch.randn(value.shape, generator=generator))
    tokens = torch.randint(3, (6, 11), generator=generator)
    logits, _ = module.advance(tokens, None)
    first, state = module.advance(tokens[:, :6], None)
    assert torch.allclose(torch.cat([first, module.advance(tokens[:, 6:], state)[0]], 1), logits, atol=1e-4)
    for row, string in enumerate(tokens.tolist()):
        x = module.start
        for position, symbol in enumerate(string):
            x = module.A[symbol] @ x
            x = x / x.norm()
            assert torch.allclose(module.rows @ x, logits[row, position], atol=1e-3)
            if (position + 1) % 4 == 0:
                x = module.points[(module.points @ x).argmax()]


@pytest.mark.parametrize("every", [1, 2])
def test_the_proof_finds_every_wrong_prototype(every: int) -> None:
    """Whatever prototypes are swapped or turned, the proof holds exactly if every short string is correct."""
    machine = random_machine(3, states=5, outputs=5)
    matrices = TokenMatrices.read(exact(machine))
    proof, generator = make_proof(matrices, machine, every, UNWATCHED), np.random.default_rng(0)
    proved = 0
    for _ in range(40):
        states = np.arange(5)
        points = np.eye(5) + generator.choice([0, 0.3, 0.8]) * generator.normal(size=(5, 5))
        points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32).astype(np.float64)
        prototypes = Prototypes(points, states)
        correct = all(
            _ends_well(matrices, machine, prototypes, start, state, word)
            for start, state in [
                (matrices.start.double().numpy(), machine.start),
                *zip(points, states.tolist(), strict=True),
            ]
            for word in product(range(2), repeat=every)
        )
        assert (proof.find_failure(prototypes) is None) == correct
        proved += correct
    assert 0 < proved < 40


def _ends_well(
    matrices: TokenMatrices, machine: Machine, prototypes: Prototypes, x: np.ndarray, q: int, word: tuple[int, ...]
) -> bool:
    for symbol in word:
        x, q = matrices.A[symbol].double().numpy() @ x, int(machine.table[q, symbol])
        if (matrices.rows.double().numpy() @ x).argmax() != machine.outputs[q]:
            return False
    return bool(prototypes.states[(prototypes.points @ x).argmax()] == q)


def test_averaging_repairs_prototypes() -> None:
    """States that carry their history are far from each other; their means are proved to work."""
    model = noisy(exact(get_machine("d4")), 0.06)
    extraction = extract(model, "d4", lengths=[5], strings=16)
    assert extraction.graph is not None and extraction.difference is None
    matrices = TokenMatrices.read(model)
    prototypes = choose_prototypes(matrices, extraction.graph, extraction.machine, 1, UNWATCHED)
    assert make_proof(matrices, extraction.machine, 1, UNWATCHED).find_failure(prototypes) is None


def test_several_centres_for_a_label() -> None:
    """A readout with a centre for each state: the label is that of the nearest, and states join by it."""
    machine = random_machine(1, states=6)
    states = TokenMatrices.read(exact(Machine(table=machine.table, outputs=np.arange(6))))
    matrices = replace(states, row_labels=torch.tensor(machine.outputs), n_classes=2)
    found = MatrixSearch(matrices, max_states=100, longest=20).run()
    assert found.candidate is not None and found.error == 0
    assert found.candidate.machine.distinguish(machine) is None
    prototypes = choose_prototypes(matrices, found.candidate.graph, found.candidate.machine, 2, UNWATCHED)
    model = build_snapped(matrices, prototypes, 2)
    tokens = torch.randint(2, (8, 300), generator=torch.Generator().manual_seed(0))
    labels = model(tokens).argmax(-1)
    for row, string in enumerate(tokens.tolist()):
        assert labels[row].tolist() == machine.outputs[machine.trace(string)].tolist()


def test_refused_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExactError, match="pass at most every=19"):
        snap(exact(tiring_parity(5)), every=40)
    other = Classifier(ModelSettings(name="rnn"), 2, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ExactError, match="prototypes need the matrices of a single SD-SSM, .* leave every out"):
        snap(other, every=1, max_states=50)
    with pytest.raises(ExactError, match="not every string of arithmetic is valid; leave every out"):
        snap(exact(get_machine("arithmetic")), "arithmetic", every=1)
    exact(get_machine("parity")).save(tmp_path / "parity")
    arguments = ["snap", str(tmp_path / "parity"), "--out", str(tmp_path / "out"), "--quiet"]
    assert main([*arguments, "--every", "60"]) == 2
    assert "pass at most --every 22" in capsys.readouterr().err
    assert main([*arguments, "--every", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["horizon"] is None
    assert main(["evaluate", str(tmp_path / "out"), "--task", "parity", "--lengths", "50", "--strings", "8"]) == 0
    assert "100.00" in capsys.readouterr().out
    model = load(tmp_path / "out")
    card = make_card(model, find_evidence(model))
    assert "trust" not in card and "fixed numbers" in card  # its code is part of this package
