"""Devices by name, what each kind of device can do, and the limits of the kernels.

This is the only module that knows which kinds of GPU there are. torch presents AMD's GPUs (its build for ROCm) as "cuda"
like NVIDIA's, and Intel's as "xpu".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from sdssm.errors import DeviceError, format_value, most_similar

if TYPE_CHECKING:
    import torch

#: A device, or its name.
DeviceLike: TypeAlias = "str | torch.device"

#: The largest state of most Triton kernels: a larger tile of a transition matrix does not fit one multiprocessor.
TRITON_LARGEST_STATE = 256
#: The largest matrix of the token scan, the mixture scan and mixed matrices in Triton, which read larger ones in tiles.
TRITON_LARGEST_MATRIX = 512
#: The largest head of `delta_scan` in Triton: three matrices of a larger one would not fit the registers.
TRITON_LARGEST_HEAD = 128
#: The kinds of GPU, by their names in torch, in the order in which "auto" looks for them.
GPU_TYPES = ("cuda", "xpu")
#: The kinds of GPU whose kernel launches torch can capture and replay as a graph; on others steps run eagerly.
GRAPH_TYPES = ("cuda",)
#: What users call devices that have another name here.
SYNONYMS = {"gpu": "cuda", "nvidia": "cuda", "amd": "cuda", "rocm": "cuda", "hip": "cuda", "intel": "xpu"}
SYNONYMS |= {"cuda0": "cuda:0", "xpu0": "xpu:0"}


# -- names -------------------------------------------------------------------------------------------------------------


def check_device_name(name: object) -> str:
    """Return the name of a device, or raise an error if no device can have it; needs no torch.

    >>> check_device_name("gpu")
    Traceback (most recent call last):
    sdssm.errors.DeviceError: there is no device 'gpu'; did you mean 'cuda'?
    """
    if isinstance(name, str) and re.fullmatch(r"auto|cpu|(cuda|xpu)(:\d{1,3})?", name, re.ASCII):
        return name
    if isinstance(name, str) and "," in name:
        first = next((part for part in name.split(",") if part), "cuda:0")
        raise DeviceError(f"{format_value(name)} names several devices, but one is used here; give one, as {first}")
    typed = str(name).lower()
    similar = SYNONYMS.get(typed) or most_similar(typed, ("auto", "cpu", "cuda", "cuda:0", "xpu"))
    hint = f"did you mean {similar!r}?" if similar else "choose auto, cpu, cuda, cuda:1 or xpu"
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
    """Return the device of this name: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1" or "xpu".

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    import torch

    if isinstance(name, torch.device):
        name = str(name)
    if check_device_name(name) == "auto":
        return torch.device(next((kind for kind in GPU_TYPES if count_gpus(kind)), "cpu"))
    kind, _, index = name.partition(":")
    if kind in GPU_TYPES:
        count = count_gpus(kind)
        if count == 0:
            problem = f"{name} was requested, but torch sees no {'GPU' if kind == 'cuda' else 'Intel GPU'} here"
            raise DeviceError(f"{problem}; use device='cpu' or 'auto'", shell=f"{problem}; use --device cpu or auto")
        if int(index or 0) >= count:
            gpus = "is 1 GPU, which is 0" if count == 1 else f"are {count} GPUs, counted from 0"
            fix = f"use {kind}:0" if count == 1 else f"use {kind}:{count - 1} or lower"
            raise DeviceError(f"{name} was requested, but there {gpus}; {fix}")
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
    device = resolve_device(device)
    return str(gpu_module(device).get_device_name(device)) if is_gpu(device) else "CPU"


# -- what a device can do ----------------------------------------------------------------------------------------------


def is_gpu(device: torch.device) -> bool:
    """Return whether a device is a GPU, on which work is queued and the Triton kernels run.

    >>> import torch
    >>> [is_gpu(torch.device(name)) for name in ("cpu", "cuda:1", "xpu", "meta")]
    [False, True, True, False]
    """
    return device.type in GPU_TYPES


def has_graphs(device: torch.device) -> bool:
    """Return whether torch can capture the work on a device and replay it as a graph (CUDA and HIP graphs)."""
    return device.type in GRAPH_TYPES


def device_kind(device: torch.device) -> str:
    """Return the key of tables with a column for CPUs and one for GPUs: "cpu" or "cuda"."""
    return "cuda" if is_gpu(device) else "cpu"


def has_triton() -> bool:
    """Return whether Triton is installed; torch's builds for NVIDIA, AMD and Intel each bring their own."""
    return find_spec("triton") is not None


def gpu_module(device: torch.device | str) -> Any:
    """Return the module of torch for a kind of GPU: `torch.cuda`, also for AMD, or `torch.xpu`.

    Both have Stream, stream, current_stream, synchronize, empty_cache, memory_reserved, mem_get_info and others.
    """
    import torch

    kind = device if isinstance(device, str) else device.type
    return getattr(torch, kind)


def count_gpus(kind: str) -> int:
    """Return how many GPUs of a kind torch sees; 0 also if it was built without support for them."""
    module = gpu_module(kind)
    return int(module.device_count()) if module.is_available() else 0


def has_capability(device: torch.device, capabilities: Sequence[tuple[int, int]]) -> bool:
    """Return whether a device is an NVIDIA GPU with one of these compute capabilities.

    AMD's GPUs have pairs of numbers too, which mean other things.
    """
    import torch

    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device) in capabilities


def select_device(device: torch.device) -> None:
    """Make a GPU the current one of this process, for kernels and memory that name none."""
    if is_gpu(device) and device.index is not None:
        gpu_module(device).set_device(device)
