"""Devices by name, and the limits of their kernels.

torch presents AMD's GPUs (its build for ROCm) as "cuda", like NVIDIA's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from sdssm.errors import DeviceError, format_value, most_similar

if TYPE_CHECKING:
    import torch

#: A device, or its name.
DeviceLike: TypeAlias = "str | torch.device"

#: The largest state of most Triton kernels: a larger tile of a transition matrix does not fit one multiprocessor.
TRITON_LARGEST_STATE = 256
#: The largest matrix of the token scan, the mixture scan and mixed matrices in Triton, which read larger ones in tiles.
TRITON_LARGEST_MATRIX = 512
#: The largest projection that is part of the kernel of the readout; a larger one would not fit beside the classes.
TRITON_LARGEST_PROJECTION = 64
#: The largest head of `delta_scan` in Triton: three matrices of a larger one would not fit the registers.
TRITON_LARGEST_HEAD = 128
#: What users call devices that have another name here.
SYNONYMS = {"gpu": "cuda", "nvidia": "cuda", "amd": "cuda", "rocm": "cuda", "hip": "cuda", "cuda0": "cuda:0"}


def check_device_name(name: object) -> str:
    """Return the name of a device, or raise an error if no device can have it; needs no torch.

    >>> check_device_name("gpu")
    Traceback (most recent call last):
    sdssm.errors.DeviceError: there is no device 'gpu'; did you mean 'cuda'?
    """
    if isinstance(name, str) and re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name, re.ASCII):
        return name
    if isinstance(name, str) and "," in name:
        first = next((part for part in name.split(",") if part), "cuda:0")
        raise DeviceError(f"{format_value(name)} names several devices, but one is used here; give one, as {first}")
    typed = str(name).lower()
    similar = SYNONYMS.get(typed) or most_similar(typed, ("auto", "cpu", "cuda", "cuda:0"))
    hint = f"did you mean {similar!r}?" if similar else "choose auto, cpu, cuda or cuda:1"
    raise DeviceError(f"there is no device {format_value(name)}; {hint}")


def check_device_names(names: object) -> list[str]:
    """Return the names of one or several devices, separated by commas or in a list, that share a training.

    Whether this machine has them is checked by `resolve_devices`; this needs no torch.

    >>> check_device_names("cuda:0,cuda:1"), check_device_names("cpu")
    (['cuda:0', 'cuda:1'], ['cpu'])
    >>> check_device_names("cuda:0,cuda:0")
    Traceback (most recent call last):
    sdssm.errors.DeviceError: cuda:0 is given twice in 'cuda:0,cuda:0'; name each GPU once
    """
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    parts = [str(part) for part in names] if is_list else str(names).split(",")  # type: ignore[attr-defined]
    if len(parts) == 1 and not is_list:
        return [check_device_name(names if isinstance(names, str) else str(names))]
    if not parts:
        raise DeviceError("the list of devices is empty; give one, as in 'cuda:0', or 'auto'")
    for part in parts:
        if not part.strip():
            raise DeviceError(f"{format_value(names)} names an empty device; write it as cuda:0,cuda:1")
        check_device_name(part)
        if len(parts) > 1 and ":" not in part:
            reason = "only GPUs share a training" if part == "cpu" else "the GPUs of a list are named by their numbers"
            raise DeviceError(f"{part} is one of several devices, but {reason}; write it as cuda:0,cuda:1")
        if parts.count(part) > 1:
            raise DeviceError(f"{part} is given twice in {format_value(','.join(parts))}; name each GPU once")
    return parts


def resolve_device(name: DeviceLike) -> torch.device:
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


def resolve_devices(names: DeviceLike | Sequence[DeviceLike]) -> list[torch.device]:
    """Return the devices of these names, separated by commas or in a list; see `resolve_device`.

    >>> resolve_devices("cpu"), resolve_devices(["cpu"])
    ([device(type='cpu')], [device(type='cpu')])
    """
    return [resolve_device(name) for name in check_device_names(names)]


def device_name(device: DeviceLike) -> str:
    """Return the name of a device: "CPU", or the product name of the GPU.

    >>> device_name("cpu")
    'CPU'
    """
    import torch

    device = resolve_device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def has_capability(device: torch.device, least: tuple[int, int]) -> bool:
    """Return whether a GPU is one of NVIDIA's with this compute capability or a higher one.

    AMD's GPUs have pairs of numbers too, which mean other things.
    """
    import torch

    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= least


def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; on a CPU those of an H100, for which kernels are then compiled."""
    import torch

    count: int = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132
    return count


def select_device(device: torch.device) -> None:
    """Make a GPU the current one of this process, for kernels and memory that name none."""
    import torch

    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
