"""Reading a run folder while another process trains in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sdssm.errors import RunError
from sdssm.runs import RunFolder
from sdssm.runs.checkpoint import Checkpoint
from tests.runs.configs import make_config


def test_a_run_without_a_checkpoint_says_whether_it_trains(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a", make_config())
    with pytest.raises(RunError, match=r"a is being trained by another process and has no checkpoint yet; try again"):
        run.load_checkpoint()
    run.finish("stopped")
    with pytest.raises(RunError, match=r"a has no checkpoint yet; train it first, as with sdssm train --resume"):
        run.load_checkpoint()


def test_checkpoints_that_are_replaced_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not damaged: the training has removed them, and there are newer ones."""
    run, original = RunFolder.create(tmp_path / "a", make_config()), RunFolder._load
    for step in (1, 2):
        run.save_checkpoint(step, {"x": torch.ones(1)})

    def load(self: RunFolder, step: int) -> Checkpoint:
        if step == 2:
            for newer in (3, 4):
                run.save_checkpoint(newer, {"x": torch.ones(1)})
        return original(self, step)

    monkeypatch.setattr(RunFolder, "_load", load)
    assert run.load_checkpoint().step == 4
