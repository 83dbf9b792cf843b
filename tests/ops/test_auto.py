"""`mode="auto"` selects the mode that was measured to be faster, and interpolates between measurements."""

from __future__ import annotations

import importlib.resources
import json
import timeit
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sdssm import ops
from sdssm.ops import backend, costs

MEASURED = ("triton", "torch")
ALLOWED = 1.2


def points(device: str) -> Iterator[tuple[str, int, int, int, float]]:
    """Yield (scan, N, L, B, log2(recurrent / parallel)) for every point in a file."""
    content = json.loads((importlib.resources.files("sdssm.ops") / "measured" / f"{device}.json").read_text())
    axes = content["axes"]
    for kind, by_size in content["log2_recurrent_over_parallel"].items():
        for N, by_length in zip(axes["N"], by_size, strict=True):
            for L, row in zip(axes["L"], by_length, strict=True):
                for B, value in zip(axes["B"], row, strict=True):
                    if value is not None:
                        yield kind, N, L, B, value


def block_of(kind: str, N: int) -> int:
    return {"diagonal": 1, "block_diagonal": max(1, N // costs.MEASURED_BLOCKS)}.get(kind, N)


@pytest.mark.parametrize("device", MEASURED)
def test_auto_is_close_to_the_better_mode_at_measured_points(device: str) -> None:
    measured = list(points(device))
    assert len(measured) > 100
    for kind, N, L, B, value in measured:
        chosen = costs.faster_mode(kind, device, B, L, N, block_of(kind, N))
        better = "parallel" if value > 0 else "recurrent"
        regret = 1.0 if chosen == better else 2 ** abs(value)
        assert regret <= ALLOWED, f"{kind} N {N} L {L} B {B} on {device}: {chosen}, {regret:.2f} times slower"


@pytest.mark.parametrize("device", MEASURED)
def test_interpolation_is_exact_at_measured_points(device: str) -> None:
    for kind, N, L, B, value in points(device):
        assert costs.log2_ratio(kind, device, B, L, N, block_of(kind, N)) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("device", MEASURED)
def test_a_measurement_file_names_its_origin(device: str) -> None:
    content = json.loads((importlib.resources.files("sdssm.ops") / "measured" / f"{device}.json").read_text())
    assert content["device"] and content["torch"] and "forward and backward" in content["what"]


@pytest.mark.parametrize(
    ("kind", "device"), [("dense", "numba"), ("dense", "abacus"), ("toeplitz", "triton"), ("axes", "triton")]
)
def test_unmeasured_devices_and_scans_run_recurrent(kind: str, device: str) -> None:
    assert costs.faster_mode(kind, device, 1, 4096, 64, 64) == "recurrent"


@pytest.mark.parametrize("kind", ["token", "mixture", "dense", "block_diagonal", "diagonal"])
def test_choice_outside_the_grid(kind: str) -> None:
    def choice(rows: int, L: int, N: int) -> str:
        return costs.faster_mode(kind, "triton", rows, L, N, block_of(kind, N))

    assert choice(1, 10**6, 64) == choice(1, 10**6, 5) == "parallel"
    assert choice(1, 1, 1) == choice(10**5, 10**5, 64) == choice(10**5, 40, 256) == "recurrent"


def test_choice_on_triton_depends_on_padded_sizes() -> None:
    ratios = [costs.log2_ratio("token", "triton", 4, 512, N, N) for N in (65, 100, 128)]
    assert len(set(ratios)) == 1


def test_blocks_are_interpolated_between_diagonal_and_dense() -> None:
    ratios = [costs.log2_ratio("block_diagonal", "triton", 16, 512, 64, block) for block in (1, 16, 64)]
    ends = [costs.log2_ratio(kind, "triton", 16, 512, 64, block) for kind, block in (("diagonal", 1), ("dense", 64))]
    assert [ratios[0], ratios[2]] == pytest.approx(ends)


def test_a_cached_choice_is_fast() -> None:
    seconds = (
        min(timeit.repeat(lambda: costs.faster_mode("dense", "triton", 3, 700, 50, 50), number=1000, repeat=5)) / 1000
    )
    assert seconds < 5e-6


def test_auto_runs_the_chosen_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    module = backend.implementation("diagonal", "cpu")
    original = module.forward

    def forward(*args: Any, mode: str, **options: Any) -> Any:
        modes.append(mode)
        return original(*args, mode=mode, **options)

    monkeypatch.setattr(module, "forward", forward)
    for answer in ("parallel", "recurrent"):
        monkeypatch.setattr(costs, "faster_mode", lambda *sizes, answer=answer: answer)
        ops.diagonal_scan(torch.ones(2, 9, 3))
    assert modes == ["parallel", "recurrent"]
