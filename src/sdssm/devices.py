"""Devices by name, and the limits of their kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sdssm.errors import DeviceError, format_value, most_similar

if TYPE_CHECKING:
    import torch

#: The largest state of most Triton kernels: a larger tile of a transition matrix does not fit one multiprocessor.
TRITON_LARGEST_STATE = 256
#: The largest matrix of the token scan, the mixture scan and mixed matrices in Triton, which read larger ones in tiles.
TRITON_LARGEST_MATRIX = 512
#: The largest head of `delta_scan` in Triton: three matrices of a larger one would not fit the registers.
TRITON_LARGEST_HEAD = 128
#: What users call devices that have another name here.
SYNONYMS = {"gpu": "cuda", "nvidia": "cuda", "cuda0": "cuda:0"}


def check_device_name(name: object) -> str:
    """Return the name of a device, or raise an error if no device can have it; needs no torch.

    >>> check_device_name("gpu")
    Traceback (most recent call last):
    sdssm.errors.DeviceError: there is no device 'gpu'; did you mean 'cuda'?
    """
    if isinstance(name, str) and re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name, re.ASCII):
        return name
    typed = str(name).lower()
    similar = SYNONYMS.get(typed) or most_similar(typed, ("auto", "cpu", "cuda", "cuda:0"))
    hint = f"did you mean {similar!r}?" if similar else "choose auto, cpu, cuda or cuda:1"
    raise DeviceError(f"there is no device {format_value(name)}; {hint}")


def resolve_device(name: str | torch.device) -> torch.device:
    """Return the device of this name: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    import torch

    if isinstance(name, torch.device):
        name = str(name)
    if check_device_name(name) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            problem = f"{name} was requested, but torch sees no GPU here"
            raise DeviceError(f"{problem}; use device='cpu' or 'auto'", shell=f"{problem}; use --device cpu or auto")
        if int(name.partition(":")[2] or 0) >= count:
            raise DeviceError(
                f"{name} was requested, but there are {count} GPUs, counted from 0; use cuda:{count - 1} or lower"
            )
    return torch.device(name)


def device_name(device: str | torch.device) -> str:
    """Return the name of a device: "CPU", or the product name of the GPU.

    >>> device_name("cpu")
    'CPU'
    """
    import torch

    device = resolve_device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
