"""Laws that every model of the catalogue satisfies; a new model is covered as soon as it is in the catalogue.

Most are those of `sdssm.testing`, which check that each of them finds a model that breaks it (`tests/testing`).

`test_mixers.py` has the laws of the layers themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sdssm
from sdssm.errors import SettingsError
from sdssm.layers.settings import TRANSITIONS
from sdssm.models import MODELS, Classifier, default_preset
from sdssm.models.settings import BLOCKS
from sdssm.runs.schema import create_config, resolve_settings, setting_names
from sdssm.tasks import get_task
from sdssm.testing import LAWS, check_laws
from sdssm.training.engine import TrainingEngine

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: Small sizes, for each model that has these settings.
SMALL: dict[str, Any] = {
    "state": 8,
    "dictionary": 3,
    "embedding": 8,
    "feed_forward": 8,
    "hidden": 8,
    "heads": 2,
    "head_size": 4,
    "block_size": 4,
    "filter_width": 8,
    "positions": 600,
    "batch": 4,
    "train_length": 6,
    "steps": 20,
}
V, C = 3, 5
#: The models of the catalogue, and the SD-SSM with each other form of its matrices: their laws are the same.
NAMES = [*MODELS, *(f"sd-ssm/{form}" for form in TRANSITIONS if form != "signed")]


def small_settings(name: str, **changed: Any) -> Any:
    """The model's default settings with small sizes."""
    model, _, form = name.partition("/")
    if form:
        changed = {"transition": form, **changed}
    defaults = resolve_settings(model, default_preset(model), "cycle")
    known = setting_names(defaults)
    values = {name: value for name, value in SMALL.items() if name in known}
    for name in ("embedding", "feed_forward"):  # a part that the model does not have is not added
        if getattr(defaults.model, name) in (None, 0):
            values.pop(name, None)
    return resolve_settings(model, default_preset(model), "cycle", {**values, **changed})


def build(model: str, seed: int = 0, **changed: Any) -> Classifier:
    """A model of the catalogue with small sizes, in float64."""
    settings = small_settings(model, **changed).model
    return Classifier(settings, V, C, generator=torch.Generator().manual_seed(seed)).double().eval()


def draw_tokens(count: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(V, (count, length), generator=torch.Generator().manual_seed(seed))


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


#: Settings that change how a model computes; for other models, blocks with normalisation.
OTHER: dict[str, dict[str, Any]] = {"transformer": {"causal_mask": True}, "pd-ssm": {"initial_state": "learned"}}


#: The laws that do not apply to some of the models, see `sdssm.testing`.
DO_NOT_APPLY: dict[str, set[str]] = {"transformer": {"causal", "prefixes", "chunks"}, "hyena": {"chunks"}}


@pytest.fixture(params=["plain", "query", "other", "deep query"])
def model(request: pytest.FixtureRequest, name: str) -> Classifier:
    if request.param == "other":
        return build(name, query=False, **OTHER.get(name, {"block": "pre-norm", "layers": 2}))
    if request.param == "deep query":
        return build(name, query=True, **OTHER.get(name, {"block": "post-norm"}), layers=2)
    return build(name, query=request.param == "query")


def test_the_laws_of_all_models(model: Classifier) -> None:
    """The laws that other test suites use as well; in float64, so that a difference is not a rounding error."""
    results = check_laws(model, laws=LAWS)
    assert {result.name: result.detail for result in results if result.passed is False} == {}
    without = {result.name for result in results if result.passed is None}
    assert without <= DO_NOT_APPLY.get(model.settings.name, set())


def build_with_centres() -> Classifier:
    """A small SD-SSM with a centre for each state of a machine, two of them with the same label."""
    values = {**{name: SMALL[name] for name in ("state", "dictionary")}, "centres": 9}
    settings = resolve_settings("sd-ssm", "states", "cycle", values).model
    model = Classifier(settings, V, C, generator=torch.Generator().manual_seed(0)).double().eval()
    model.readout.assign_centres(torch.tensor([0, 3, 1, 2, 4, 1]))
    return model


def test_the_laws_of_a_model_with_centres_for_states() -> None:
    model = build_with_centres()
    assert (
        len(set(model(draw_tokens(50, 9)).argmax(-1).flatten().tolist())) > 1
    )  # else these would be the laws of a constant
    results = check_laws(model, laws=LAWS)
    assert {result.name: result.detail for result in results if result.passed is False} == {}
    assert {result.name for result in results if result.passed is None} == set()


@pytest.mark.parametrize("device", DEVICES)
def test_the_laws_of_all_models_in_single_precision(name: str, device: str) -> None:
    results = check_laws(build(name).float().to(device), task=get_task("cycle"))
    assert {result.name: result.detail for result in results if result.passed is False} == {}


def test_later_symbols_change_later_logits(model: Classifier) -> None:
    """A model that reads nothing would obey most laws. A model that is not causal reads each prefix separately."""
    tokens = draw_tokens(3, 9)
    other = tokens.clone()
    other[:, 5:] = (other[:, 5:] + 1) % V
    assert_same(model(other)[:, :5], model(tokens)[:, :5])
    assert not torch.allclose(model(other)[:, 5:], model(tokens)[:, 5:], rtol=1e-6, atol=1e-6)


def test_a_model_without_a_state_cannot_step(model: Classifier) -> None:
    if not model.is_recurrent:
        with pytest.raises(sdssm.SdssmError):
            model.step(draw_tokens(3, 1)[:, 0])


def test_last_logits_equal_those_of_the_prefix(model: Classifier) -> None:
    tokens = draw_tokens(3, 9)
    logits = model(tokens)
    for length in (1, 4, 9):
        assert_same(model.last_logits(tokens[:, :length]), logits[:, length - 1])


def test_leading_dimensions_are_rows(model: Classifier) -> None:
    tokens = draw_tokens(5, 7)
    assert_same(model(tokens[2]), model(tokens)[2])  # one string, without a batch
    assert_same(model(tokens.reshape(1, 5, 7))[0], model(tokens))


def test_lengths_cut_the_strings(model: Classifier) -> None:
    tokens, labels = draw_tokens(4, 9), torch.tensor([0, 3, 1, 4])
    for length in (1, 6, 9):
        _, cut_correct = model.loss(tokens[:, :length], labels)
        _, padded_correct = model.loss(tokens, labels, lengths=torch.full((4,), length))
        assert padded_correct == cut_correct


def test_an_empty_string_has_no_logits(model: Classifier) -> None:
    logits, state = model.advance(draw_tokens(3, 4)[:, :0])
    assert logits.shape == (3, 0, C)
    assert state is None


def test_a_loaded_model_is_the_same_bit_for_bit(model: Classifier, tmp_path: Path) -> None:
    model = model.float()
    model.save(tmp_path)
    loaded = sdssm.load(tmp_path)
    assert loaded.settings == model.settings
    tokens = draw_tokens(2, 5)
    assert torch.equal(loaded(tokens), model(tokens))


def test_gradients_are_not_huge_at_length_500(name: str) -> None:
    model = build(name).float()
    loss, _ = model.loss(draw_tokens(2, 500), torch.tensor([0, 1]))
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    assert 0 < max(float(grad.abs().max()) for grad in grads if grad is not None) < 1e6


def configure_runs(name: str, seeds: list[int], **changed: Any) -> list[Any]:
    return [create_small_config(name, seed, **changed) for seed in seeds]


def create_small_config(name: str, seed: int = 0, **changed: Any) -> Any:
    preset = default_preset(name.partition("/")[0])
    return create_config(get_task("cycle"), seed, small_settings(name, **changed), preset)


@pytest.mark.parametrize("device", DEVICES)
def test_a_replica_trains_as_it_does_alone(name: str, device: str) -> None:
    fast = {"lr": 1e-2, "warmup": 0.0}
    together = TrainingEngine(get_task("cycle"), configure_runs(name, [0, 1, 2], **fast), torch.device(device))
    alone = TrainingEngine(get_task("cycle"), configure_runs(name, [1], **fast), torch.device(device))
    before = {key: value.clone() for key, value in alone.model(0).state_dict().items()}
    for engine in (together, alone):
        engine.advance(6)
    torch.testing.assert_close(together.window().loss[1], alone.window().loss[0], rtol=1e-4, atol=1e-4)
    actual, expected = together.model(1).state_dict(), alone.model(0).state_dict()
    change = 0.0
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, rtol=3e-3, atol=3e-3, msg=key)
        if value.is_floating_point():
            change = max(change, float((value - before[key]).abs().max()))
    assert change > 0.02  # larger than the tolerance above


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_agree(name: str) -> None:
    engines = [
        TrainingEngine(get_task("cycle"), configure_runs(name, [0, 1]), torch.device(device))
        for device in ("cpu", "cuda")
    ]
    for engine in engines:
        engine.advance(12)
    on_cpu, on_gpu = (engine.window() for engine in engines)
    torch.testing.assert_close(on_gpu.loss.cpu(), on_cpu.loss, rtol=1e-4, atol=1e-4)
    model, tokens = build(name), draw_tokens(3, 40)
    torch.testing.assert_close(model.cuda()(tokens.cuda()).cpu(), model.cpu()(tokens), rtol=1e-8, atol=1e-8)


def test_a_wrong_setting_is_an_error(name: str) -> None:
    with pytest.raises(sdssm.SdssmError, match="there is no setting"):
        small_settings(name, stat=3)
    if "state" in setting_names(small_settings(name)):
        with pytest.raises(sdssm.SdssmError, match="state is 0"):
            small_settings(name, state=0)


def test_two_layers_train(name: str) -> None:
    runs = [create_small_config(name, layers=2)]
    if small_settings(name).model.block == "last-bare":
        runs = [create_small_config(name, layers=2, embedding=8)]
    engine = TrainingEngine(get_task("cycle"), runs, torch.device("cpu"))
    before = engine.replicas.flat.clone()
    engine.advance(2)
    assert bool(engine.window().loss.isfinite().all())
    assert not torch.equal(before, engine.replicas.flat)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_works_with_every_mixer_or_is_refused(name: str, block: str) -> None:
    changed: dict[str, Any] = {"layers": 2, "block": block}
    if block not in ("pre-norm", "post-norm"):
        changed |= {"feed_forward": None, "block_dropout": 0.0}
    try:
        model = build(name, **changed)
    except SettingsError as error:
        assert block == "last-bare"
        assert "set block=pre-norm" in str(error)
        return
    loss, _ = model.loss(draw_tokens(3, 4), torch.tensor([0, 1, 2]))
    assert bool(loss.isfinite())
