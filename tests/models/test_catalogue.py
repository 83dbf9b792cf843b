"""The catalogue: published parameter counts, the presets of the paper, and Proposition 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import sdssm
from sdssm.errors import SettingsError, UnknownNameError
from sdssm.layers import MIXERS
from sdssm.models import PRESETS, Classifier, default_preset, get_preset
from sdssm.runs.schema import resolve_settings
from sdssm.settings import settings_to_dict
from sdssm.tasks import get_task
from tests.edited_files import edit_json

#: The settings of sd-ssm: the defaults, and what each preset changes for each task. A new setting is not listed.
SD_SSM = json.loads((Path(__file__).parents[1] / "data" / "sd-ssm-presets.json").read_text())


def build_model(model: str, preset_name: str, name: str, **changed: object) -> Classifier:
    task = get_task(name)
    settings = resolve_settings(model, preset_name, name, changed).model
    return Classifier(settings, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(0))


def count(model: Classifier) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


#: Parameter counts of the published code, by model, preset and task; those of sd-ssm are in test_classifier.py.
COUNTS = {
    ("complex-diagonal", "paper-b0-linear", "c2xc30"): 41_408,
    ("complex-diagonal", "paper-b0-mlp", "d30"): 57_920,
    ("complex-diagonal", "paper-linear", "d30"): 41_664,
    ("complex-diagonal", "paper", "c2xc30"): 58_176,
    # embedding of 9 symbols, MLP of the transitions, B, readout
    ("complex-diagonal", "paper", "arithmetic"): 9 * 9 + 10 * 256 + 257 * 128 + 128 * 9 + 129 * 128 + 129 * 5,
    ("regular-lrnn", "paper", "a5"): 308_736 + 64 * 2 + 65 * 60,
    ("regular-lrnn", "paper", "cycle"): 308_736 + 64 * 3 + 65 * 5,
    ("rnn", "paper", "a5"): 64 * (2 + 64 + 2) + 64 * 60,
    ("lstm", "paper", "a5"): 4 * 64 * (2 + 64 + 2) + 64 * 60,
}


@pytest.mark.parametrize("which", COUNTS, ids=" ".join)
def test_number_of_parameters_as_published(which: tuple[str, str, str]) -> None:
    assert count(build_model(*which)) == COUNTS[which]


@pytest.mark.parametrize(
    ("preset", "name", "symbols"), [("paper", "arithmetic", 9), ("default", "arithmetic", 8), ("paper", "cycle", 3)]
)
def test_initial_embedding_of_the_complex_diagonal_model(preset: str, name: str, symbols: int) -> None:
    """Uniform within symbols^-1/2, as a linear map of one-hot vectors; published arithmetic has a ninth symbol."""
    largest = 0.0
    for seed in range(40):
        task, settings = get_task(name), resolve_settings("complex-diagonal", preset, name).model
        model = Classifier(settings, task.n_symbols, task.n_classes, generator=torch.Generator().manual_seed(seed))
        assert model.embedding is not None and model.embedding.shape == (symbols, symbols)
        largest = max(largest, model.embedding.abs().max().item())
    assert 0.98 * symbols**-0.5 < largest <= symbols**-0.5


@pytest.mark.parametrize(("model", "gated"), [("delta-net", False), ("delta-product", True)])
def test_a_folder_without_output_gate_has_the_gate_of_its_time(model: str, gated: bool, tmp_path: Path) -> None:
    """Before there was the setting, DeltaProduct had an output gate and DeltaNet had none."""
    saved = build_model(model, "default", "parity", output_gate=gated)
    saved.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())["model"]
    del config["mixer"]["output_gate"]
    edit_json(tmp_path / "model" / "config.json", model=config)
    loaded = sdssm.load(tmp_path / "model")
    assert isinstance(loaded, Classifier) and loaded.settings == saved.settings
    assert ("layers.0.mixer.gate.weight" in dict(loaded.named_parameters())) == gated
    tokens = torch.tensor([[0, 1, 1, 0, 1]])
    torch.testing.assert_close(loaded(tokens), saved(tokens))


def test_a_folder_with_an_embedding_wider_than_its_symbols_loads(tmp_path: Path) -> None:
    """The preset `paper` had embedding=9 on arithmetic, with a row for each of its eight symbols."""
    saved = build_model("complex-diagonal", "paper", "arithmetic", embedding=9, width=None)
    assert saved.embedding is not None and saved.embedding.shape == (8, 9)
    saved.save(tmp_path / "model")
    tokens = torch.tensor([[0, 7, 1, 5, 2]])
    torch.testing.assert_close(sdssm.load(tmp_path / "model")(tokens), saved(tokens))


def test_transition_parameters_are_those_the_paper_compares() -> None:
    """k (d + n^2) and d n sqrt(n) + n^3, plus the biases, which the paper does not count."""
    dense, blocks = (build_model(model, "paper", "a5").mixers[0] for model in ("sd-ssm", "regular-lrnn"))
    assert dense.transition_parameters() == 6 * (2 + 64**2) + 6
    assert blocks.transition_parameters() == 64 * 64 * 8 + 64**3 + 2 * 512


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_models(name: str) -> None:
    for model, tasks in PRESETS[name].items():
        for task_name in tasks:
            built = build_model(model, name, task_name or "cycle")
            assert count(built) > 0
            assert built.n_classes == get_task(task_name or "cycle").n_classes


def test_every_model_is_complete() -> None:
    for name, mixer in MIXERS.items():
        assert mixer.name == name
        assert len(mixer.emulates) > 20
        assert mixer.__doc__
        assert get_preset(default_preset(name), name, "a5") is not None


def test_a_preset_without_settings_is_refused() -> None:
    with pytest.raises(SettingsError, match="no settings for mamba on a5; it has them for: parity"):
        resolve_settings("mamba", "paper", "a5")
    with pytest.raises(SettingsError, match="no settings for lstm on a5; lstm has: default, paper, length"):
        resolve_settings("lstm", "scale-free", "a5")
    with pytest.raises(UnknownNameError, match="did you mean"):
        resolve_settings("lstn", "default", "a5")


@pytest.mark.parametrize("readout", ["linear", "mlp"])
def test_one_complex_diagonal_layer_without_b_ignores_the_order(readout: str) -> None:
    """Proposition 1: the final logits do not change if the string is shuffled; with B they do."""
    tokens = torch.randint(2, (6, 40), generator=torch.Generator().manual_seed(1))
    shuffled = tokens[:, torch.randperm(40, generator=torch.Generator().manual_seed(2))]
    blind = build_model("complex-diagonal", "paper-b0-mlp", "d30", readout=readout).double()
    torch.testing.assert_close(blind.last_logits(shuffled), blind.last_logits(tokens), rtol=1e-10, atol=1e-10)
    seeing = build_model("complex-diagonal", "paper", "d30", readout=readout).double()
    assert (seeing.last_logits(shuffled) - seeing.last_logits(tokens)).abs().max() > 1e-3


def test_published_settings_of_the_other_models() -> None:
    assert resolve_settings("mamba", "paper", "cycle").model.mixer.state == 256
    assert resolve_settings("complex-diagonal", "paper-3-layers", "d30").train.lr == 1e-3
    settings = resolve_settings("regular-lrnn", "paper", "arithmetic")
    assert (settings.train.lr, settings.train.weight_decay, settings.train.schedule) == (2e-4, 1e-4, "constant")
    settings = resolve_settings("lstm", "length-efficiency-7", "a5")
    assert (settings.model.mixer.state, settings.train.lr, settings.train.train_length) == (128, 2.5e-3, 7)


def resolved_values(preset: str, task: str) -> dict[str, Any]:
    values = settings_to_dict(resolve_settings("sd-ssm", preset, task))
    return {**values["model"], **values["model"]["mixer"], **values["train"]}


def test_defaults_of_sd_ssm_do_not_change() -> None:
    for task in ("a5", "regex:(ab)*"):
        values = resolved_values("scale-free", task)
        assert {name: values[name] for name in SD_SSM["defaults"]} == SD_SSM["defaults"]


@pytest.mark.parametrize("preset", SD_SSM["presets"])
def test_presets_of_sd_ssm_do_not_change(preset: str) -> None:
    assert set(PRESETS[preset]["sd-ssm"]) == set(SD_SSM["presets"][preset])
    for task, changed in SD_SSM["presets"][preset].items():
        values = resolved_values(preset, task)
        assert {name: values[name] for name in SD_SSM["defaults"]} == {**SD_SSM["defaults"], **changed}
