"""Encoding and decoding of checkpoint files."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save

from sdssm.errors import RunError
from sdssm.runs.checkpoint import decode, encode

TENSORS = {
    "float32": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "float64": torch.tensor([0.1, float("nan"), float("inf")], dtype=torch.float64),
    "bfloat16": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    "int64": torch.tensor(2**62),
    "bool": torch.tensor([True, False]),
    "nothing": torch.empty(0, 5),
    "a name\nwith é": torch.zeros(()),
}


def test_decoding_returns_identical_bits() -> None:
    checkpoint = decode(encode(40_000, TENSORS))
    assert checkpoint.step == 40_000
    assert set(checkpoint.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        decoded = checkpoint.tensors[name]
        assert (decoded.dtype, decoded.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(decoded.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_tensors_that_share_memory_or_are_transposed() -> None:
    matrix = torch.arange(12.0).view(3, 4).requires_grad_()
    tensors = decode(encode(0, {"row": matrix[1], "same": matrix[1], "transposed": matrix.T, "all": matrix})).tensors
    assert torch.equal(tensors["row"], matrix[1])
    assert torch.equal(tensors["transposed"], matrix.T)
    assert not tensors["all"].requires_grad


def test_every_flipped_bit_is_detected() -> None:
    tensors = {"w": torch.tensor([1.5, -2.0]), "step": torch.tensor(3)}
    data = encode(7, tensors)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RunError, match="truncated or not a checkpoint|checksum"):
            decode(bytes(flipped))


def test_every_truncation_is_detected() -> None:
    data = encode(7, {"w": torch.arange(5)})
    with pytest.raises(RunError, match="the file is empty"):
        decode(b"")
    for length in range(1, len(data)):
        with pytest.raises(RunError):
            decode(data[:length])
    for suffix in (b"\0", b"x" * 100):
        with pytest.raises(RunError):
            decode(data + suffix)


def test_other_files_are_refused() -> None:
    data = encode(7, {"w": torch.ones(2)})
    for other in (save(load(data)), save(load(data), metadata={"step": "7"}), b"[" * 100_000, b"PK\3\4" * 1000):
        with pytest.raises(RunError, match="truncated or not a checkpoint"):
            decode(other)
