"""Names of devices: one, or several that share a training."""

from __future__ import annotations

import pytest
import torch

from sdssm.devices import check_device_name, check_device_names, has_capability, resolve_devices
from sdssm.errors import DeviceError


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("cuda:0,cuda:0", "cuda:0 is given twice in 'cuda:0,cuda:0'; name each GPU once"),
        ("cuda:0,cpu", "cpu is one of several devices, but only GPUs share a training"),
        ("cuda:0,cuda", "the GPUs of a list are named by their numbers; write it as cuda:0,cuda:1"),
        ("cuda:0,tpu", "there is no device 'tpu'"),
        ("cuda:0,", "names an empty device; write it as cuda:0,cuda:1"),
        ([], "the list of devices is empty"),
    ],
)
def test_a_list_that_breaks_a_rule_is_an_error(names: object, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        check_device_names(names)


def test_each_device_of_a_list_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    expected = [torch.device("cuda:0"), torch.device("cuda:1")]
    assert resolve_devices("cuda:0,cuda:1") == resolve_devices(expected) == expected
    with pytest.raises(DeviceError, match="cuda:2 was requested, but there are 2 GPUs"):
        resolve_devices("cuda:0,cuda:2")


def test_a_list_is_refused_if_one_device_is_used() -> None:
    with pytest.raises(DeviceError, match="names several devices, but one is used here; give one, as cuda:0"):
        check_device_name("cuda:0,cuda:1")


def test_capabilities_are_those_of_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert has_capability(torch.device("cuda"), (8, 0)) and not has_capability(torch.device("cuda"), (9, 1))
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert not has_capability(torch.device("cuda"), (9, 0))
