"""Pages of the playground with untrained models, which need no run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sdssm.models import Classifier
from sdssm.models.settings import ModelSettings, default_settings
from sdssm.report.page.html_page import render_page
from sdssm.report.page.page_types import PlayerModel, PlaygroundData, PlaygroundEntry
from sdssm.report.page.player_models import make_player_model
from sdssm.report.page.task_data import make_task_data
from sdssm.report.page.weight_files import read_tensors
from sdssm.tasks import Task


def make_untrained(task: Task, name: str, mixer: Mapping[str, Any], others: Mapping[str, Any]) -> Classifier:
    """Build an untrained model; its outputs depend on all parts of its settings."""
    settings = default_settings(name).with_parts({"mixer": dict(mixer), "model": dict(others)})
    assert isinstance(settings, ModelSettings)
    model = Classifier(settings, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():  # some start at zero, and would not be noticed
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)), alpha=0.1)
    return model.eval()


def pack_model(model: Classifier, folder: Path) -> PlayerModel:
    """Return a model as the page has it, from its weight file."""
    model.save(folder)
    return make_player_model(
        model.settings, read_tensors(folder / "model.safetensors"), model.n_symbols, model.n_classes
    )


def make_entry(label: str, task: Task, *models: PlayerModel) -> PlaygroundEntry:
    """Return a model of a page; a second model is its snapped variant."""
    variants = [{"name": name, "model": model} for name, model in zip(("trained", "snapped"), models, strict=False)]
    player: Any = {"train_length": 40, "certified": None, "variants": variants}
    return {"label": label, "task": make_task_data(task), "player": player}


def write_playground(file: Path, entries: list[PlaygroundEntry]) -> str:
    """Write a page of the playground, and return its address."""
    data: PlaygroundData = {"format": 1, "title": "Playground", "version": "0", "entries": entries}
    file.write_text(render_page("playground", "Playground", data), encoding="utf-8")
    return file.as_uri()
