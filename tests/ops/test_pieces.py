"""Mixture scans whose matrices are read from memory, piece by piece, compared with the reference in the interpreter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interpreted import interpreted
from tests.ops.cases import Case, compare_with_reference

pytest.importorskip("triton")

#: Rows of length 0, of full length and between; with x0 and without.
OPTIONS: list[dict[str, Any]] = [
    {"b": True, "x0": False, "lengths": True},
    {"rescale": True, "lengths": True},
    {"b": True, "p": None},
]


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize(("mode", "L"), [("recurrent", 7), ("parallel", 35)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rows_at_once", [1, 2, 6])  # rows of a replica, a complete replica, all
def test_agrees_with_the_reference_in_pieces(
    rows_at_once: int, options: dict[str, Any], mode: str, L: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No dictionary fits the registers; several pieces follow one another; programs add up several tiles and blocks."""
    from sdssm.ops._triton import pieces, source
    from sdssm.ops.mixture import triton as mixture

    steps = 3 if mode == "recurrent" else 20
    monkeypatch.setattr(source, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(pieces, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(pieces, "WORKSPACE", steps * rows_at_once * 5 * 5 * 8)
    monkeypatch.setattr(mixture, "GRADIENTS", mixture.MixingTile(32, 16, 2, 4, 1))
    monkeypatch.setattr(mixture, "PROGRAMS", 1)
    monkeypatch.setattr(mixture, "GROUPS", 2)
    compare_with_reference(Case("mixture", L, 5, lead=(3, 2), **options), "triton", mode)


@pytest.mark.parametrize(("R", "B", "L"), [(1, 1, 1), (3, 2, 10), (2, 300, 7), (1, 5, 1000)])
@pytest.mark.parametrize("matrices", [1, 40, 100_000])
def test_pieces_cover_every_step_once(R: int, B: int, L: int, matrices: int) -> None:
    import torch

    from sdssm.ops._triton.pieces import ROWS_AT_ONCE, WORKSPACE, cut

    steps = torch.zeros(R, B, L)
    for pieces in cut(R, B, L, WORKSPACE // matrices):
        assert [piece.steps.start for piece in pieces[1:]] == [piece.steps.stop for piece in pieces[:-1]]
        for piece in pieces:
            part = steps[piece.replicas, piece.rows, piece.steps]
            assert part.numel() <= max(matrices, ROWS_AT_ONCE)
            part += 1
    assert bool((steps == 1).all())
