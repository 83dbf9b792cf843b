"""Tensors of safetensors files as numpy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from sdssm.checksums import ChecksumError, check_tensors, read_tensors_file
from sdssm.errors import RunError
from sdssm.files import describe_file_error, format_path

Tensors = dict[str, np.ndarray]


def read_tensors(path: Path) -> Tensors:
    """Return the tensors of a safetensors file by name; raise a `RunError` if the file cannot be read."""
    try:
        data = read_tensors_file(path)
        check_tensors(data)
        return load(data)
    except OSError as error:
        raise RunError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    except ChecksumError as error:
        raise RunError(f"{format_path(path)} is damaged: {error}") from None
    except (SafetensorError, KeyError, TypeError, ValueError):  # KeyError: a dtype that numpy does not have
        raise RunError(f"{format_path(path)} is damaged: it is not a safetensors file of numbers") from None
