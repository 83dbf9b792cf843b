"""Reading model.safetensors: damaged files and weights that are not finite are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from sdssm.checksums import ChecksumError, check_tensors, read_tensors_file
from sdssm.errors import ModelError, first_line, format_value
from sdssm.files import describe_file_error, format_path
from sdssm.models.settings import WEIGHTS_FILE


def read_weights(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, Tensor], bool]:
    """Return the tensors of model.safetensors, and whether the file has a checksum; raise ModelError if it is damaged.

    Weights that are not finite are damage too, unless `model.save` wrote exactly these. A run never stores such a
    model: one that diverges keeps its last checkpoint.

    config: the contents of config.json.
    """
    path, is_run = folder / WEIGHTS_FILE, "format" in config
    advice = f"sdssm runs --repair {format_path(folder)} restores it" if is_run else "restore it, or save it again"
    try:
        data = read_tensors_file(path, follow_links=not is_run)
        _, is_verified = check_tensors(data)
        weights = load(data)
    except OSError as error:
        raise ModelError(f"{format_path(path)} cannot be read: {describe_file_error(error)}") from None
    except (ChecksumError, SafetensorError, KeyError) as error:  # KeyError: a dtype that torch does not have
        raise ModelError(f"{format_path(path)} is damaged and cannot be read: {first_line(error)}; {advice}") from None
    if is_run or not is_verified:
        # Modules of others may keep a mask with infinities; none keeps NaN.
        allows_infinity = config["model"].get("import_path") is not None
        for name, value in weights.items():
            number = value.float() if value.is_floating_point() else value  # torch compares no 8-bit numbers
            is_valid = ~number.isnan() if allows_infinity else number.isfinite()
            if not bool(is_valid.all()):
                raise ModelError(
                    f"{format_path(path)} is damaged: {format_value(name)} holds NaN or infinite values; {advice}"
                )
    return weights, is_verified
