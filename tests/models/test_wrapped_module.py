"""Someone else's module as a model: which modules are accepted, and what they are used for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.errors import ModelError
from sdssm.models import WrappedModule, randomness, registry, wrap_module
from sdssm.models.building import untrained_model
from sdssm.models.module_settings import ModuleSettings

SYMBOLS, CLASSES = 3, 5


class Gru(nn.Module):
    """Logits after every symbol, and a state to continue from."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.out = (
            nn.Embedding(SYMBOLS, 4),
            nn.GRU(4, 4, batch_first=True),
            nn.Linear(4, CLASSES),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.gru(self.embedding(tokens))[0])
        return logits


class RecurrentGru(Gru):
    def advance(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs, after = self.gru(self.embedding(tokens), None if state is None else state.transpose(0, 1).contiguous())
        return self.out(outputs), after.transpose(0, 1)


class Changed(Gru):
    """A GRU whose output is changed by a function."""

    def __init__(self, change: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, tokens: Tensor) -> Any:
        return self.change(super().forward(tokens), tokens)


def last(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits[:, -1]


def wrap(module: nn.Module) -> WrappedModule:
    return wrap_module(module, SYMBOLS, CLASSES)


def tokens_of(*shape: int) -> Tensor:
    return torch.randint(SYMBOLS, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y, t: y[..., :-1], r"returns shape \(3, 7, 4\) for tokens of shape \(3, 7\); it must be \(3, 7, 5\)"),
        (lambda y, t: y.mT, r"returns shape \(3, 5, 7\)"),
        (lambda y, t: (y, None), "returns a tuple .*; return the logits alone"),
        (lambda y, t: y.argmax(-1), "returns torch.int64 .*; return logits, not predictions"),
        (lambda y, t: y.flip(1), "is not causal: its logits after the first 3 symbols change by .* when later symbols"),
        (lambda y, t: y + t.shape[1], "is not causal: .* when later symbols are left out; mask later positions"),
        (lambda y, t: y * torch.nan, "is not finite: it returns NaN for random strings of 7 symbols; look for 0/0"),
        (
            lambda y, t: y[:, 100],
            r"raises IndexError in .*, line \d+, for tokens of shape \(3, 7\) and type torch.int64: index 100",
        ),
    ],
)
def test_a_module_that_breaks_a_rule_is_refused_in_one_line(change: Callable[..., Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        wrap(Changed(change))
    assert "\n" not in str(caught.value)


class WithoutSuper(nn.Module):
    def __init__(self, n_symbols: int, n_classes: int) -> None:
        self.embedding = nn.Embedding(n_symbols, 4)


def test_an_error_in_a_module_names_its_file_and_line() -> None:
    place = r"in .*test_wrapped_module\.py, line \d+"
    with pytest.raises(ModelError, match=rf"raises RuntimeError {place}, for tokens .* cannot be multiplied"):
        wrap(Changed(lambda y, t: torch.zeros(3, 8) @ torch.zeros(9, 2)))
    with pytest.raises(ModelError, match=rf"AttributeError {place}: .*; call super\(\).__init__\(\) first") as caught:
        sdssm.train("parity", model=WithoutSuper, steps=1, device="cpu")
    assert "two sizes" not in str(caught.value)


class Draws(Gru):
    """Draws random numbers of every kind, also in evaluation mode."""

    def forward(self, tokens: Tensor) -> Tensor:
        torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002
        return super().forward(tokens)


def test_probing_leaves_no_trace() -> None:
    module = nn.Sequential(Draws(), nn.Dropout(0.5)).train()
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    expected = torch.rand(()).item(), np.random.rand(), random.random()  # noqa: NPY002
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    wrap(module)
    assert (torch.rand(()).item(), np.random.rand(), random.random()) == expected  # noqa: NPY002
    assert all(part.training for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_random_numbers_of_gpus_start_from_the_seed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)  # in place of that of a GPU
    before = generator.get_state()
    monkeypatch.setattr(randomness, "_used_cuda_generators", lambda: [generator])

    def on_gpu(n_symbols: int, n_classes: int) -> nn.Module:
        return nn.Embedding(n_symbols, n_classes, _weight=torch.rand(n_symbols, n_classes, generator=generator))

    monkeypatch.setattr(registry, "_registered", {})
    sdssm.register(on_gpu, name="on-gpu")
    built = [untrained_model(ModuleSettings(name="on-gpu"), 2, 2, seed=seed).module.weight for seed in (1, 1, 2)]
    assert torch.equal(built[0], built[1]) and not torch.equal(built[0], built[2])
    assert torch.equal(generator.get_state(), before)


def test_a_module_for_gpus_only_is_checked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class GpuOnly(Gru):
        device = "cpu"

        def forward(self, tokens: Tensor) -> Tensor:
            if self.device == "cpu":
                raise RuntimeError("expected x.is_cuda() to be true")
            return super().forward(tokens)

    def move(model: WrappedModule, device: str) -> WrappedModule:
        model.module.device = device  # type: ignore[assignment]
        return model

    with pytest.raises(ModelError, match="GpuOnly raises RuntimeError .*is_cuda"):
        wrap(GpuOnly())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(WrappedModule, "to", move)
    model = wrap(GpuOnly())
    assert model.needs_gpu and model.module.device == "cpu"  # it is back
    with pytest.raises(ModelError, match="raises IndexError"):  # which a GPU does not survive
        wrap(Changed(lambda y, t: y[:, 100]))


class Pool(nn.Module):
    """Looks at the whole string, which a readout of zero hides."""

    def __init__(self, n_symbols: int = SYMBOLS, n_classes: int = CLASSES) -> None:
        super().__init__()
        self.embedding, self.readout = nn.Embedding(n_symbols, 4), nn.Linear(4, n_classes)
        nn.init.zeros_(self.readout.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        out: Tensor = self.readout(x + x.mean(1, keepdim=True))
        return out


def test_a_module_that_looks_ahead_after_training_is_not_evaluated(tmp_path: Path) -> None:
    sdssm.register(Pool, name="zero-pool")
    try:
        model = untrained_model(ModuleSettings(name="zero-pool"), 2, 2, seed=0)
        sdssm.evaluate(model, task="parity", max_length=4, strings=4)
        nn.init.ones_(model.module.readout.weight[0])
        with pytest.raises(ModelError, match="zero-pool is not causal") as caught:
            sdssm.evaluate(model, task="parity", max_length=4, strings=4)
        assert "\n" not in str(caught.value)
        assert sdssm.evaluate(model, task="parity", max_length=4, strings=4, fresh=True).runs[0].chance == 50
        model.save(tmp_path)
        with pytest.raises(ModelError, match="zero-pool is not causal"):
            sdssm.load(tmp_path)
        with pytest.raises(ModelError, match="zero-pool is not causal once its weights are no longer zero"):
            sdssm.train("parity", model="zero-pool", steps=2, out=tmp_path / "runs", device="cpu")
        assert not (tmp_path / "runs").exists()
    finally:
        registry._registered.pop("zero-pool")


@pytest.mark.parametrize("chunk", [2, 3, 7, 16, 31])
def test_looking_ahead_inside_chunks_is_found(chunk: int) -> None:
    def mix(logits: Tensor, tokens: Tensor) -> Tensor:
        return torch.cat([part.mean(1, keepdim=True).expand_as(part) for part in torch.split(logits, chunk, 1)], 1)

    with pytest.raises(ModelError, match="is not causal"):
        wrap(Changed(mix))


@pytest.mark.parametrize("distance", [1, 7, 32])
def test_looking_far_ahead_is_found(distance: int) -> None:
    def shift(logits: Tensor, tokens: Tensor) -> Tensor:
        later = nn.functional.pad(tokens[:, distance:], (0, min(distance, tokens.shape[1])))
        return logits + later[..., None]

    with pytest.raises(ModelError, match="is not causal"):
        wrap(Changed(shift))


def test_a_module_for_every_prefix_reads_them_at_once() -> None:
    module = Gru()
    model, tokens = wrap(module), tokens_of(2, 4, 6)
    assert (model.reads, model.is_causal, model.can_read_prefixes_at_once) == ("prefixes", True, True)
    assert not model.is_recurrent
    assert torch.equal(model(tokens), module(tokens.reshape(8, 6)).reshape(2, 4, 6, CLASSES))
    assert torch.equal(model.last_logits(tokens[0]), module(tokens[0])[:, -1])
    assert model(tokens[..., :0]).shape == (2, 4, 0, CLASSES)


def test_a_module_for_whole_strings_is_called_once_for_each_length() -> None:
    module = Changed(last)
    model, tokens = wrap(module), tokens_of(4, 6)
    assert (model.reads, model.is_causal, model.can_read_prefixes_at_once) == ("strings", False, False)
    assert torch.allclose(model(tokens), Gru.forward(module, tokens), atol=1e-6)
    assert torch.equal(model.last_logits(tokens), module(tokens))
    with pytest.raises(ModelError, match="all strings of a batch must have the same length"):
        model.loss(tokens, torch.zeros(4, dtype=torch.long), lengths=torch.tensor([6, 5, 6, 6]))


def test_a_module_with_a_state_is_recurrent() -> None:
    model, tokens = wrap(RecurrentGru()), tokens_of(2, 4, 6)
    assert model.is_recurrent
    first, state = model.advance(tokens[..., :2])
    rest, _ = model.advance(tokens[..., 2:], state)
    assert torch.allclose(torch.cat([first, rest], -2), model(tokens), atol=1e-6)


def test_a_single_string_is_continued() -> None:
    model, tokens = wrap(RecurrentGru()), tokens_of(6)
    first, state = model.advance(tokens[:2])
    second, state = model.advance(tokens[2:4], state)
    third, _ = model.advance(tokens[4:], state)
    assert torch.allclose(torch.cat([first, second, third]), model(tokens), atol=1e-6)


class StatesInDicts(RecurrentGru):
    def advance(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        logits, after = super().advance(tokens, None if state is None else state["h"][0])
        return logits, {"h": [after]}


def test_a_state_may_hold_dicts_and_lists() -> None:
    model, tokens = wrap(StatesInDicts()), tokens_of(4, 6)
    state = model.advance(tokens[:, :2])[1]
    assert torch.allclose(model.advance(tokens[:, 2:], state)[0], model(tokens)[:, 2:], atol=1e-6)


def start_again(module: RecurrentGru, tokens: Tensor, state: Any) -> Any:
    return RecurrentGru.advance(module, tokens)


def add_number(module: RecurrentGru, tokens: Tensor, state: Any) -> Any:
    logits, after = RecurrentGru.advance(module, tokens, state and state[0])
    return logits, (after, 3)


def batch_second(module: RecurrentGru, tokens: Tensor, state: Any) -> Any:
    logits, after = RecurrentGru.advance(module, tokens)
    return logits, after.transpose(0, 1)


@pytest.mark.parametrize(
    ("advance", "message"),
    [
        (lambda module, count: count, "raises TypeError .*; it must take .tokens .B, L., state or None. and return"),
        (lambda module, tokens, state: tokens, "returns .*; it must return .logits .B, L, C., state."),
        (lambda module, tokens, state: (tokens, None), r"returns logits \(3, 16\); they must be \(3, 16, 5\)"),
        (start_again, "disagrees with forward: for a string in 3 pieces the logits differ by"),
        (add_number, "a state holds 3; use tensors"),
        (batch_second, r"holds shape \(1, 3, 4\) for 3 strings; put the strings on the first axis"),
    ],
)
def test_a_wrong_advance_is_refused_in_one_line(advance: Any, message: str) -> None:
    module = type("Continued", (RecurrentGru,), {"advance": advance})()
    with pytest.raises(ModelError, match=f"Continued.advance.*{message}") as caught:
        wrap(module)
    assert "\n" not in str(caught.value)


def test_a_limit_that_the_module_does_not_tell_is_named() -> None:
    class Positions(Gru):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens) + torch.arange(20)[torch.arange(tokens.shape[1])][:, None]

    with pytest.raises(ModelError, match="raises IndexError .*; if it reads only short strings, set its attribute"):
        wrap(Positions())
    module = Positions()
    module.longest = 20  # type: ignore[assignment]
    with pytest.raises(ModelError, match="reads at most 20 symbols, got 21; pass shorter strings"):
        wrap(module)(tokens_of(2, 21))


def test_the_loss_is_the_cross_entropy_at_the_end_of_each_string() -> None:
    model, tokens, labels = wrap(Gru()), tokens_of(4, 6), torch.tensor([0, 1, 2, 3])
    lengths = torch.tensor([6, 3, 1, 5])
    loss, correct = model.loss(tokens, labels, lengths=lengths)
    ends = torch.stack([model.last_logits(tokens[i : i + 1, :n])[0] for i, n in enumerate(lengths.tolist())])
    assert torch.allclose(loss, nn.functional.cross_entropy(ends, labels), atol=1e-6)
    assert int(correct) == int((ends.argmax(-1) == labels).sum())


def test_tied_weights_are_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tied(n_symbols: int, n_classes: int) -> nn.Module:
        module = Gru()
        module.gru.weight_hh_l0 = module.gru.weight_ih_l0
        return module

    monkeypatch.setattr(registry, "_registered", {})
    sdssm.register(tied, name="tied-gru")
    model = untrained_model(ModuleSettings(name="tied-gru"), SYMBOLS, CLASSES, seed=1)
    model.save(tmp_path)
    loaded = sdssm.load(tmp_path)
    assert loaded.module.gru.weight_hh_l0 is loaded.module.gru.weight_ih_l0
    assert torch.equal(loaded(tokens_of(4, 6)), model(tokens_of(4, 6)))
    assert model.file_name("module.gru.weight_ih_l0") == "gru.weight_ih_l0"


def test_a_state_that_is_not_a_tensor_is_not_saved(tmp_path: Path) -> None:
    class Counts(Gru):
        def get_extra_state(self) -> dict[str, int]:
            return {"calls": 1}

    with pytest.raises(ModelError, match="Counts has the state _extra_state, which is not a tensor; return a tensor"):
        wrap(Counts()).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("module", [Gru(), Changed(last), RecurrentGru()], ids=["prefixes", "strings", "recurrent"])
def test_any_module_can_be_evaluated(module: nn.Module) -> None:
    task = sdssm.task(sdssm.machine([[0, 1, 2], [1, 2, 0], [2, 0, 1], [3, 3, 3], [4, 4, 4]]))
    evaluation = sdssm.evaluate(module, task=task, max_length=12, strings=64).runs[0]
    assert len(evaluation.accuracy) == 12 and evaluation.chance == 20
    assert (evaluation.note or "").endswith("reads whole strings only") == (wrap(module).reads == "strings")
    with pytest.raises(sdssm.SdssmError, match="pass task="):
        sdssm.evaluate(module)


def test_an_untrained_copy_of_the_machine_is_always_correct() -> None:
    parity = sdssm.task("parity")

    class Exact(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return nn.functional.one_hot(tokens.cumsum(1) % 2, 2).float()

    evaluation = sdssm.evaluate(Exact(), task=parity, max_length=50, strings=16).runs[0]
    assert evaluation.mean == 100.0
