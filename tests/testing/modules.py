"""Modules that obey all laws, and for each law a module that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sdssm.layers.settings import RnnSettings
from sdssm.models import Classifier, ModelSettings, TokenModel, WrappedModule
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.token_model import Reads

V, C, WIDTH = 3, 5, 6


class GRU(nn.Module):
    """A recurrent module that reads pieces of strings; it obeys all laws."""

    def __init__(self, n_symbols: int = V, n_classes: int = C) -> None:
        super().__init__()
        self.embed = nn.Embedding(n_symbols, WIDTH)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, n_classes)

    def features(self, tokens: Tensor) -> Tensor:
        outputs: Tensor = self.mix(self.embed(tokens))[0]
        return outputs

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.features(tokens))
        return logits

    def advance(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        before = None if state is None else state.transpose(0, 1).contiguous()
        outputs, after = self.mix(self.embed(tokens), before)
        return self.out(outputs), after.transpose(0, 1)


class CausalTransformer(nn.Module):
    """torch's encoder with a causal mask; it has no positions, and obeys all laws that say something about it."""

    def __init__(self, n_symbols: int = V, n_classes: int = C) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True, dropout=0.1)
        self.embed, self.encoder = nn.Embedding(n_symbols, WIDTH), nn.TransformerEncoder(layer, 1)
        self.out = nn.Linear(WIDTH, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        logits: Tensor = self.out(self.encoder(self.embed(tokens), mask=mask, is_causal=True))
        return logits


class WholeString(GRU):
    """A module with logits (B, C) for whole strings, which reads them in both directions."""

    advance = None  # type: ignore[assignment]  # it reads whole strings only

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.features(tokens)[:, -1] + self.features(tokens.flip(1))[:, -1])
        return logits


class Plain(GRU):
    """Without `advance`, so that a change of `forward` breaks only the law it is meant to break."""

    advance = None  # type: ignore[assignment]


class SqueezedBatch(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).squeeze(0)


class Overflowing(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        position = torch.arange(tokens.shape[1]) // 4
        return super().forward(tokens) * position.float().exp()[:, None]


class Noisy(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + torch.rand(C)


class Counting(Plain):
    calls = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(tokens) + self.calls * torch.arange(C)


class BatchCentred(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return logits - logits.mean(0)


class LooksAhead(Plain):
    """The prediction for prefix 3 depends on symbol 5, and on no other symbol after prefix 3."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        if tokens.shape[1] >= 5:
            logits = logits.clone()
            logits[:, 2] += 0.8 * tokens[:, 4, None] * (torch.arange(C) == 0)
        return logits


class LooksFarAhead(Plain):
    """The prediction for a prefix depends on the symbol 40 positions later, which short strings do not show."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        if tokens.shape[1] <= 40:
            return logits
        ahead = nn.functional.pad(tokens[:, 40:], (0, 40))
        return logits + ahead[..., None] * torch.arange(C)


class KnowsTheLength(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * tokens.shape[1]


class ForgetsTheState(GRU):
    def advance(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().advance(tokens, None)


class RootOfZero(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return logits + (self.embed.weight.sum() * 0).sqrt()


class Detached(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).detach()


class ZeroGradient(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return logits.detach() + 0 * logits


class DoubledByGrad(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * (2 if torch.is_grad_enabled() else 1)


class RunningMean(Plain):
    def __init__(self, n_symbols: int = V, n_classes: int = C) -> None:
        super().__init__(n_symbols, n_classes)
        self.norm = nn.BatchNorm1d(n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.norm(super().forward(tokens).mT).mT
        return logits


class Unsaved(Plain):
    """Its random vector is neither a parameter nor a buffer, so that no file holds it."""

    def __init__(self, n_symbols: int = V, n_classes: int = C) -> None:
        super().__init__(n_symbols, n_classes)
        self.shift = torch.randn(n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + self.shift


class UnsavedShift(nn.Module):
    """As `Unsaved`, without a GRU, which torch.func cannot run."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.shift = nn.Embedding(V, C), torch.randn(C)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.table(tokens) + self.shift
        return logits


class Raising(Plain):
    def forward(self, tokens: Tensor) -> Tensor:
        raise RuntimeError("no forward today\nand a second line")


class PaddedLoss(WrappedModule):
    """A model whose loss reads the symbols after the end of a string."""

    def loss(self, tokens: Tensor, labels: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        return super().loss(tokens, labels, **{**options, "lengths": None})


class AnySymbol(Classifier):
    """A classifier that reads symbols outside the alphabet."""

    def _check_tokens(self, tokens: Tensor) -> Tensor:
        return tokens.long() % self.n_symbols


def wrapped(
    module: Callable[..., nn.Module],
    seed: int = 0,
    kind: type[WrappedModule] = WrappedModule,
    reads: Reads = "prefixes",
) -> WrappedModule:
    """Return a module as a model, without the checks of `wrap_module`."""
    torch.manual_seed(seed)
    return kind(module(), ModuleSettings(name=getattr(module, "__name__", "module")), V, C, reads).eval()


def any_symbol(seed: int = 0) -> TokenModel:
    settings = ModelSettings(name="rnn", readout="linear", mixer=RnnSettings(state=4))
    return AnySymbol(settings, V, C, generator=torch.Generator().manual_seed(seed))
