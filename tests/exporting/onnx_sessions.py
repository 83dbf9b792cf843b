"""Run exported ONNX files on strings, with what stands in their folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

import sdssm


class OnnxSessions:
    """A model as ONNX, opened with onnxruntime: whole strings and, if it has a state, symbol by symbol."""

    def __init__(self, model: Any, folder: Path, **options: Any) -> None:
        """Export a model to a folder, and open the files."""
        runtime = pytest.importorskip("onnxruntime")
        sdssm.export(model, folder, **options)
        single = runtime.SessionOptions()
        single.intra_op_num_threads = single.inter_op_num_threads = 1  # test workers share the cores
        self.sessions = {path.name: runtime.InferenceSession(path, single) for path in folder.glob("*.onnx")}
        self.description: dict[str, Any] = json.loads((folder / "model.json").read_text())

    @property
    def has_step(self) -> bool:
        return "step.onnx" in self.sessions

    def read_strings(self, tokens: Tensor) -> NDArray[Any]:
        """The logits of `model.onnx` for tokens (B, L): (B, L, C), or (B, C) of whole strings."""
        logits: NDArray[Any]
        (logits,) = self.sessions["model.onnx"].run(["logits"], {"tokens": tokens.numpy()})
        return logits

    def read_symbols(self, tokens: Tensor) -> NDArray[Any]:
        """The logits (B, L, C) of `step.onnx`, one symbol at a time from the initial state of the description."""
        initial = self.description["files"]["step.onnx"]["initial_state"]
        state = {name: np.array([value] * len(tokens), np.float32) for name, value in initial.items()}
        logits = []
        for token in tokens.numpy().T:
            row, *after = self.sessions["step.onnx"].run(None, {"token": token, **state})
            state = dict(zip(state, after, strict=True))
            logits.append(row)
        return np.stack(logits, 1)
