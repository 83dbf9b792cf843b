"""Laws that every model of the catalogue keeps, whatever its mixer: a new one inherits them by being there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sdssm
from sdssm.errors import SettingsError
from sdssm.models import MODELS, Classifier, default_preset
from sdssm.models.settings import BLOCKS
from sdssm.runs.schema import configure, resolve, setting_names
from sdssm.tasks import get_task
from sdssm.training.engine import Engine

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: Sizes for tests, where a model has such a setting.
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


def small(model: str, **changed: Any) -> Any:
    """The model's default settings, but for its sizes."""
    base = resolve(model, default_preset(model), "cycle")
    known, kept = setting_names(base), ("embedding", "feed_forward")
    values = {name: value for name, value in SMALL.items() if name in known}
    for name in kept:  # what is absent stays absent
        if getattr(base.model, name) in (None, 0):
            values.pop(name, None)
    return resolve(model, default_preset(model), "cycle", {**values, **changed})


def built(model: str, seed: int = 0, **changed: Any) -> Classifier:
    settings = small(model, **changed).model
    made = Classifier(settings, V, C, generator=torch.Generator().manual_seed(seed)).double()
    return made.eval()


def strings(count: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(V, (count, length), generator=torch.Generator().manual_seed(seed))


def same(a: Tensor, b: Tensor, tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


#: Settings with which a model follows other ways than by default.
OTHER: dict[str, dict[str, Any]] = {"transformer": {"causal_mask": True}, "pd-ssm": {"initial_state": "learned"}}


@pytest.fixture(params=["plain", "query", "other", "deep query"])
def model(request: pytest.FixtureRequest, name: str) -> Classifier:
    if request.param == "other":
        return built(name, query=False, **OTHER.get(name, {"block": "pre-norm", "layers": 2}))
    if request.param == "deep query":
        return built(name, query=True, **OTHER.get(name, {"block": "post-norm"}), layers=2)
    return built(name, query=request.param == "query")


def test_future_symbols_change_nothing(model: Classifier) -> None:
    tokens = strings(3, 9)
    other = tokens.clone()
    other[:, 5:] = (other[:, 5:] + 1) % V
    same(model(other)[:, :5], model(tokens)[:, :5])
    assert not torch.allclose(model(other)[:, 5:], model(tokens)[:, 5:], rtol=1e-6, atol=1e-6)


def test_future_inputs_change_no_output_of_a_causal_mixer(name: str) -> None:
    """Of the mixer itself: a model that reads every prefix alone would keep the law above whatever its mixer does."""
    (mixer,) = built(name, **OTHER.get(name, {}), layers=1).mixers
    assert mixer.causal
    generator = torch.Generator().manual_seed(3)
    u = torch.randn(2, 9, mixer.width, generator=generator, dtype=torch.float64)
    other = torch.cat([u[:, :5], torch.randn(2, 4, mixer.width, generator=generator, dtype=torch.float64)], 1)
    shape = mixer.chance(9)
    noise = None if shape is None else torch.rand(shape, generator=generator)
    (a, _), (b, _) = (mixer(x, None, None, noise) for x in (u, other))
    same(b[:, :5], a[:, :5])
    assert not torch.allclose(b[:, 5:], a[:, 5:], rtol=1e-6, atol=1e-6)


def test_step_by_step_equals_all_at_once(model: Classifier) -> None:
    tokens = strings(3, 9)
    if not model.recurrent:
        with pytest.raises(sdssm.SdssmError):
            model.step(tokens[:, 0])
        return
    state, told = None, []
    for token in tokens.unbind(1):
        logits, state = model.step(token, state)
        told.append(logits)
    same(torch.stack(told, 1), model(tokens))


def test_pieces_equal_the_whole(model: Classifier) -> None:
    tokens = strings(3, 11)
    if not model.recurrent:
        return
    state, told = None, []
    for piece in torch.split(tokens, [1, 6, 4], dim=1):
        logits, state = model.advance(piece, state)
        told.append(logits)
    same(torch.cat(told, 1), model(tokens))
    before = model.carry(tokens[:, :7])
    same(model.last(tokens[:, 7:], before), model(tokens)[:, -1])


def test_the_last_prefix_is_the_string(model: Classifier) -> None:
    tokens = strings(3, 9)
    every = model(tokens)
    for length in (1, 4, 9):
        same(model.last(tokens[:, :length]), every[:, length - 1])


def test_the_order_of_a_batch_does_not_matter(model: Classifier) -> None:
    tokens = strings(5, 7)
    order = torch.tensor([3, 0, 4, 1, 2])
    same(model(tokens[order]), model(tokens)[order])
    same(model(tokens[2]), model(tokens)[2])  # alone, without a batch
    same(model(tokens.reshape(1, 5, 7))[0], model(tokens))


def test_lengths_cut_the_strings(model: Classifier) -> None:
    tokens, labels = strings(4, 9), torch.tensor([0, 3, 1, 4])
    for length in (1, 6, 9):
        cut, right = model.loss(tokens[:, :length], labels)
        padded, also = model.loss(tokens, labels, lengths=torch.full((4,), length))
        same(padded, cut)
        assert right == also
    ends = torch.tensor([3, 9, 1, 6])
    mean, _ = model.loss(tokens, labels, lengths=ends)
    alone = [model.loss(tokens[i : i + 1, :end], labels[i : i + 1])[0] for i, end in enumerate(ends.tolist())]
    same(mean, torch.stack(alone).mean())


def test_an_empty_string_says_nothing(model: Classifier) -> None:
    logits, state = model.advance(strings(3, 4)[:, :0])
    assert logits.shape == (3, 0, C)
    assert state is None


def test_saved_and_loaded_it_says_the_same(model: Classifier, tmp_path: Path) -> None:
    model = model.float()
    model.save(tmp_path)
    loaded = sdssm.load(tmp_path)
    assert loaded.settings == model.settings
    tokens = strings(2, 5)
    assert torch.equal(loaded(tokens), model(tokens))


def test_gradients_are_finite_at_length_500(name: str) -> None:
    model = built(name).float()
    loss, _ = model.loss(strings(2, 500), torch.tensor([0, 1]))
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    assert all(grad is None or bool(grad.isfinite().all()) for grad in grads)
    largest = max(float(grad.abs().max()) for grad in grads if grad is not None)
    assert 0 < largest < 1e6


def _runs(name: str, seeds: list[int], **changed: Any) -> list[Any]:
    return [configure(get_task("cycle"), seed, small(name, **changed), default_preset(name)) for seed in seeds]


@pytest.mark.parametrize("device", DEVICES)
def test_a_replica_trains_as_it_would_alone(name: str, device: str) -> None:
    fast = {"lr": 1e-2, "warmup": 0.0}
    together = Engine(get_task("cycle"), _runs(name, [0, 1, 2], **fast), torch.device(device))
    alone = Engine(get_task("cycle"), _runs(name, [1], **fast), torch.device(device))
    before = {key: value.clone() for key, value in alone.model(0).state_dict().items()}
    for engine in (together, alone):
        engine.advance(6)
    torch.testing.assert_close(together.window().loss[1], alone.window().loss[0], rtol=1e-4, atol=1e-4)
    beside, wanted = together.model(1).state_dict(), alone.model(0).state_dict()
    moved = 0.0
    for key, value in wanted.items():
        torch.testing.assert_close(beside[key], value, rtol=3e-3, atol=3e-3, msg=key)
        if value.is_floating_point():
            moved = max(moved, float((value - before[key]).abs().max()))
    assert moved > 0.02  # more than what is let pass above


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_agree(name: str) -> None:
    engines = [Engine(get_task("cycle"), _runs(name, [0, 1]), torch.device(device)) for device in ("cpu", "cuda")]
    for engine in engines:
        engine.advance(12)
    here, there = (engine.window() for engine in engines)
    torch.testing.assert_close(there.loss.cpu(), here.loss, rtol=1e-4, atol=1e-4)
    model, tokens = built(name), strings(3, 40)
    torch.testing.assert_close(model.cuda()(tokens.cuda()).cpu(), model.cpu()(tokens), rtol=1e-8, atol=1e-8)


def test_a_wrong_setting_is_told(name: str) -> None:
    with pytest.raises(sdssm.SdssmError, match="there is no setting"):
        small(name, stat=3)
    if "state" in setting_names(small(name)):
        with pytest.raises(sdssm.SdssmError, match="state is 0"):
            small(name, state=0)


def test_two_layers_train(name: str) -> None:
    runs = [configure(get_task("cycle"), 0, small(name, layers=2), default_preset(name))]
    if small(name).model.block == "last-bare":
        runs = [configure(get_task("cycle"), 0, small(name, layers=2, embedding=8), default_preset(name))]
    engine = Engine(get_task("cycle"), runs, torch.device("cpu"))
    before = engine.replicas.flat.clone()
    engine.advance(2)
    assert bool(engine.window().loss.isfinite().all())
    assert not torch.equal(before, engine.replicas.flat)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_goes_with_every_mixer_or_says_why_not(name: str, block: str) -> None:
    beside: dict[str, Any] = {"layers": 2, "block": block}
    if block not in ("pre-norm", "post-norm"):
        beside |= {"feed_forward": None, "block_dropout": 0.0}
    try:
        model = built(name, **beside)
    except SettingsError as error:
        assert block == "last-bare"
        assert "set block=pre-norm" in str(error)
        return
    loss, _ = model.loss(strings(3, 4), torch.tensor([0, 1, 2]))
    assert bool(loss.isfinite())
