from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save

from sdssm.errors import RunError
from sdssm.runs.checkpoint import decode, encode

EVERY_KIND = {
    "float32": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "float64": torch.tensor([0.1, float("nan"), float("inf")], dtype=torch.float64),
    "bfloat16": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    "int64": torch.tensor(2**62),
    "bool": torch.tensor([True, False]),
    "nothing": torch.empty(0, 5),
    "a name\nwith é": torch.zeros(()),
}


def test_what_goes_in_comes_out_bit_for_bit() -> None:
    found = decode(encode(40_000, EVERY_KIND))
    assert found.step == 40_000
    assert set(found.tensors) == set(EVERY_KIND)
    for name, tensor in EVERY_KIND.items():
        got = found.tensors[name]
        assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(got.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_rows_of_one_memory_and_transposed_tensors() -> None:
    every = torch.arange(12.0).view(3, 4).requires_grad_()
    found = decode(encode(0, {"one": every[1], "same": every[1], "turned": every.T, "all": every}))
    assert torch.equal(found.tensors["one"], every[1])
    assert torch.equal(found.tensors["turned"], every.T)
    assert not found.tensors["all"].requires_grad


def test_no_flipped_bit_goes_unseen() -> None:
    tensors = {"w": torch.tensor([1.5, -2.0]), "step": torch.tensor(3)}
    data = encode(7, tensors)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(RunError, match="cut short or no checkpoint|checksum"):
            decode(bytes(flipped))


def test_no_cut_goes_unseen() -> None:
    data = encode(7, {"w": torch.arange(5)})
    with pytest.raises(RunError, match="the file is empty"):
        decode(b"")
    for length in range(1, len(data)):
        with pytest.raises(RunError):
            decode(data[:length])
    for more in (b"\0", b"x" * 100):
        with pytest.raises(RunError):
            decode(data + more)


def test_other_files_are_no_checkpoints() -> None:
    data = encode(7, {"w": torch.ones(2)})
    for other in (save(load(data)), save(load(data), metadata={"step": "7"}), b"[" * 100_000, b"PK\3\4" * 1000):
        with pytest.raises(RunError, match="cut short or no checkpoint"):
            decode(other)
