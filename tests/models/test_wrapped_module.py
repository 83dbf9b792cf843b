"""Someone else's module as a model: which modules are accepted, and what they are used for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sdssm
from sdssm.errors import ModelError
from sdssm.models import WrappedModule, wrap_module

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
        (lambda y, t: y[:, 100], r"raises IndexError for tokens of shape \(3, 7\) and type torch.int64: index 100"),
    ],
)
def test_a_module_that_breaks_a_rule_is_refused_in_one_line(change: Callable[..., Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        wrap(Changed(change))
    assert "\n" not in str(caught.value)


def test_probing_leaves_no_trace() -> None:
    module = nn.Sequential(nn.Embedding(SYMBOLS, CLASSES), nn.Dropout(0.5)).train()
    before = torch.random.get_rng_state()
    wrap(module)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert module.training and all(parameter.grad is None for parameter in module.parameters())


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


def test_the_loss_is_the_cross_entropy_at_the_end_of_each_string() -> None:
    model, tokens, labels = wrap(Gru()), tokens_of(4, 6), torch.tensor([0, 1, 2, 3])
    lengths = torch.tensor([6, 3, 1, 5])
    loss, correct = model.loss(tokens, labels, lengths=lengths)
    ends = torch.stack([model.last_logits(tokens[i : i + 1, :n])[0] for i, n in enumerate(lengths.tolist())])
    assert torch.allclose(loss, nn.functional.cross_entropy(ends, labels), atol=1e-6)
    assert int(correct) == int((ends.argmax(-1) == labels).sum())


def test_tied_weights_are_saved_and_loaded(tmp_path: Any) -> None:
    module = Gru()
    module.gru.weight_hh_l0 = module.gru.weight_ih_l0
    model = wrap(module)
    model.save(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size > 0
    assert model.file_name("module.gru.weight_ih_l0") == "gru.weight_ih_l0"


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
