"""The errors of someone else's module, each in one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb

import torch
from torch import Tensor

from sdssm.errors import ModelError, first_line
from sdssm.files import format_path

#: A module that fails for strings longer than this may have a limit that it does not tell.
SHORT = 7
#: Parts of the errors of torch if a module chooses a device that is not there, or not that of its input.
DEVICE_ERRORS = ("not compiled with CUDA", "no NVIDIA driver", "No CUDA GPUs", "be on the same device")
#: Code in these folders is not that of a user who writes a model: this package, Python, and what is installed.
FOLDERS_OF_OTHERS = (
    Path(__file__).parents[1],
    *(Path(get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    Path(torch.__file__).parent,
)
#: What to do then.
DEVICE_ADVICE = "; build it on the CPU, and use the device of the tokens in its methods: sdssm moves it to the device"


@contextmanager
def errors_named(name: str, tokens: Tensor) -> Iterator[None]:
    """Raise what a module raises for these tokens as a ModelError that names the module."""
    try:
        yield
    except (torch.OutOfMemoryError, ModelError):
        raise
    except Exception as error:
        raise module_error(name, tokens, error) from error


def describe_place(error: BaseException) -> str:
    """Return where in the code of a user an error was raised, as in " in net.py, line 12"; empty if it is not known.

    That is the last call outside of this package, of Python itself and of installed packages.
    """
    place = ""
    for frame in extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_file() and not any(path.is_relative_to(folder) for folder in FOLDERS_OF_OTHERS):
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            place = f" in {format_path(shown)}, line {frame.lineno},"
    return place


def module_error(name: str, tokens: Tensor, error: Exception) -> ModelError:
    """Return the error for a module that raises one itself.

    >>> tokens = torch.zeros(4, 9, dtype=torch.long)
    >>> print(module_error("Net", tokens, IndexError("index out of range")))  # doctest: +ELLIPSIS
    Net raises IndexError for tokens of shape (4, 9) and type torch.int64: index out of range; if it reads only ...
    """
    if is_device_error(error):
        advice = DEVICE_ADVICE
    elif name.endswith(".advance"):
        advice = "; it must take (tokens (B, L), state or None) and return (logits (B, L, C), state); else rename it"
    elif tokens.shape[-1] > SHORT and isinstance(error, IndexError | RuntimeError | ValueError | AssertionError):
        advice = "; if it reads only short strings, set its attribute `longest`"
    elif isinstance(error, TypeError | NotImplementedError):
        advice = "; it must take tokens (B, L) and return logits (B, L, C) or (B, C)"
    else:
        advice = ""
    what = f"{name} raises {type(error).__name__}{describe_place(error)}"
    return ModelError(
        f"{what} for tokens of shape {tuple(tokens.shape)} and type {tokens.dtype}: {first_line(error, 200)}{advice}"
    )


def is_gpu_missing(error: ModelError) -> bool:
    """Return whether a module raised this error because it is on the CPU and runs on GPUs only."""
    cause = error.__cause__
    # An index that is out of range must not be tried on a GPU: no program can use the GPU after that.
    if cause is None or isinstance(cause, IndexError):
        return False
    return any(word in str(cause).lower() for word in ("cuda", "gpu", "cpu tensor"))


def is_device_error(error: Exception) -> bool:
    """Return whether a module chose a device that is not there, or not that of its input."""
    return any(part.lower() in str(error).lower() for part in DEVICE_ERRORS)
