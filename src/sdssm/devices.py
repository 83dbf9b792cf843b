"""Which device to work on, by name, and what it is called."""

from __future__ import annotations

import re

import torch

from sdssm.errors import DeviceError, format_value


def resolve_device(name: str | torch.device) -> torch.device:
    """ "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if isinstance(name, torch.device):
        name = str(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not isinstance(name, str) or not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name, re.ASCII):
        raise DeviceError(f"there is no device {format_value(name)}; choose auto, cpu, cuda or cuda:1")
    if name.startswith("cuda"):
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if there == 0:
            raise DeviceError(f"{name} was asked for, but torch sees no GPU here; use --device cpu or auto")
        if int(name.partition(":")[2] or 0) >= there:
            raise DeviceError(f"{name} was asked for, but there are {there} GPUs, counted from 0")
    return torch.device(name)


def device_name(device: str | torch.device) -> str:
    """What a device is called: a GPU as its maker does.

    >>> device_name("cpu")
    'CPU'
    """
    where = resolve_device(device)
    return torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU"
