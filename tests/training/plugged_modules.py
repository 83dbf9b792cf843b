"""Modules as someone else would write them, for tests of training."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn


class Gru(nn.Module):
    """The GRU of torch, which does not support vmap."""

    def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.readout = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.gru(self.embedding(tokens))[0])
        return out


class Encoder(nn.Module):
    """The transformer of torch with a causal mask, and its default dropout."""

    def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, width)
        layer = nn.TransformerEncoderLayer(width, 2, 8, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)
        self.readout = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        out: Tensor = self.readout(self.layers(self.embedding(tokens), mask=mask, is_causal=True))
        return out


class LinearRnn(nn.Module):
    """h_t = A h_{t-1} + e(x_t), which supports vmap and CUDA graphs."""

    def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, width)
        self.A = nn.Parameter(0.5 * torch.randn(width, width))
        self.readout = nn.Linear(width, n_classes)

    def features(self, tokens: Tensor) -> Tensor:
        h, states = torch.zeros_like(self.embedding.weight[0]), []
        for u in self.embedding(tokens).unbind(1):
            h = h @ self.A + u
            states.append(h)
        return torch.stack(states, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.features(tokens))
        return out


class WholeStrings(LinearRnn):
    """Logits for the whole string, from the mean over all positions: padding would change it."""

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.features(tokens).mean(1))
        return out


class Dropout(LinearRnn):
    """Random numbers of torch and of Python, in training only."""

    def forward(self, tokens: Tensor) -> Tensor:
        features = nn.functional.dropout(self.features(tokens), 0.3, self.training)
        out: Tensor = self.readout(features * (1 + 0.1 * random.random() if self.training else 1))
        return out


class BatchNorm(LinearRnn):
    """Running statistics; the name of a parameter is one that checkpoints use too."""

    def __init__(self, n_symbols: int, n_classes: int, width: int = 4) -> None:
        super().__init__(n_symbols, n_classes, width)
        self.window = nn.BatchNorm1d(width)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.window(self.features(tokens).mT).mT)
        return out


class Unusual(nn.Module):
    """Tied, frozen, unused, complex, half and double parameters, and buffers of both kinds."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, n_classes)
        self.tied = nn.Linear(n_classes, n_symbols, bias=False)
        self.tied.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.randn(n_classes), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.phases = nn.Parameter(torch.randn(n_classes, dtype=torch.complex64))
        self.low = nn.Parameter(torch.randn(n_classes).bfloat16())
        self.high = nn.Parameter(torch.randn(n_classes).double())
        self.register_buffer("kept", torch.randn(n_classes))
        self.register_buffer("rebuilt", torch.ones(n_classes), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens).cumsum(1) @ self.tied.weight.mT @ self.tied.weight
        offset = self.frozen + self.get_buffer("kept") * self.get_buffer("rebuilt")
        return x * (self.phases.abs() * self.low * self.high + offset)  # float64 logits


class Fails(LinearRnn):
    """Raises an error in a later training step, or returns NaN."""

    def __init__(self, n_symbols: int, n_classes: int, how: str = "raise", call: int = 12) -> None:
        super().__init__(n_symbols, n_classes)
        self.how, self.call, self.calls = how, call, 0

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        self.calls += self.training
        if self.calls < self.call:
            return logits
        if self.how == "raise":
            raise ValueError("the module is tired\nand says so in two lines")
        return logits * torch.nan


class Constant(nn.Module):
    """No parameter at all."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.n_classes, device=tokens.device)


class Detached(LinearRnn):
    """Logits through which no gradient flows."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).detach()


class Waits(LinearRnn):
    """Reads a number from the device in each step."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return logits if logits.abs().max().item() < 1e9 else logits / 2


class Branches(LinearRnn):
    """Each seed builds a module of its own: vmap would use the first one for all."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__(n_symbols, n_classes)
        self.factor = float(torch.rand(()))  # not a tensor, so it is neither a parameter nor a buffer

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * self.factor


class Lazy(nn.Module):
    """A parameter that is drawn in the first call, a tensor kept from the last one, and a view of the tokens."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, 4)
        self.readout = nn.LazyLinear(n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        self.last = self.embedding(tokens.view(-1).view(tokens.shape)).cumsum(1)
        out: Tensor = self.readout(self.last)
        return out


class Normalised(LinearRnn):
    """Scales its readout to norm 1 in each step, into new memory."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__(n_symbols, n_classes)
        nn.init.normal_(self.readout.weight, std=2.0)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.readout.weight.data = self.readout.weight.data / self.readout.weight.data.norm()
        return super().forward(tokens)


class NormalisedHalf(Normalised):
    """The same in a precision in which it is not trained."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__(n_symbols, n_classes)
        self.bfloat16()


class Moved(LinearRnn):
    """Moves its parameters in memory, as `flatten_parameters` does on a GPU."""

    def forward(self, tokens: Tensor) -> Tensor:
        self.readout.weight.data = self.readout.weight.data.clone()
        return super().forward(tokens)


class Replaced(LinearRnn):
    """Replaces a parameter, which then is not the one that is trained."""

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.readout.weight = nn.Parameter(self.readout.weight.detach() * 2)
        return super().forward(tokens)


class RunningMean(LinearRnn):
    """A running mean in a buffer that is not saved."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__(n_symbols, n_classes)
        self.register_buffer("mean", torch.zeros(n_classes), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits, mean = super().forward(tokens), self.get_buffer("mean")
        if self.training:
            mean.lerp_(logits.detach().mean((0, 1)), 0.1)
        return logits - mean


class Counts(LinearRnn):
    """A counter in Python."""

    calls = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += self.training
        return super().forward(tokens) * (1 + 0.01 * self.calls)


class OwnGenerator(LinearRnn):
    """Random numbers from a generator of its own."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__(n_symbols, n_classes)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * (torch.rand((), generator=self.generator) if self.training else 1)


class Infinite(nn.Module):
    """A gradient that is NaN at the start: that of the square root at zero."""

    def __init__(self, n_symbols: int, n_classes: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(n_symbols, n_classes))

    def forward(self, tokens: Tensor) -> Tensor:
        return (self.table * self.table).sqrt()[tokens]


class TooLarge(LinearRnn):
    """Runs out of memory under vmap only."""

    def forward(self, tokens: Tensor) -> Tensor:
        if torch._C._functorch.is_batchedtensor(tokens):
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(tokens)
