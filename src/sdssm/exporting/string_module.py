"""A model without a state as a module of plain tensors: tokens (B, L) -> logits."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm.layers.channels import SHORT
from sdssm.layers.convolution import Convolution
from sdssm.models import Classifier, TokenModel, WrappedModule

#: Length of the strings that someone else's module is traced with. Sizes of 0 and 1 would be taken as constants.
TRACED_LENGTH = 6


class StringModule(nn.Module):
    """Classify whole strings: tokens (B, L) -> logits after every symbol (B, L, C), or of the string (B, C).

    >>> from sdssm.models.module_settings import ModuleSettings
    >>> module = StringModule(WrappedModule(nn.Embedding(2, 3), ModuleSettings(name="table"), 2, 3, "prefixes"))
    >>> module(torch.zeros(4, 7, dtype=torch.long)).shape, module.reads_prefixes
    (torch.Size([4, 7, 3]), True)
    """

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.model = with_direct_convolutions(model) if isinstance(model, Classifier) else model
        self.reads_prefixes = model.can_read_prefixes_at_once
        # The short convolutions of the catalogue have another form up to `SHORT`, which does not fit longer strings.
        length = TRACED_LENGTH if isinstance(model, WrappedModule) else SHORT + TRACED_LENGTH
        self.traced_length = length if model.longest is None else min(length, model.longest)

    def forward(self, tokens: Tensor) -> Tensor:
        """Read tokens (B, L)."""
        if isinstance(self.model, WrappedModule):
            logits: Tensor = self.model.module(tokens)
            return logits.float()
        return self.model(tokens) if self.reads_prefixes else self.model.last_logits(tokens)


def with_direct_convolutions(model: Classifier) -> Classifier:
    """Return a copy of a model whose long convolutions are computed directly, for strings of any length.

    An FFT has a fixed size, and ONNX has no fast one for most sizes.
    """
    changed = copy.deepcopy(model)
    for mixer in changed.mixers:
        for convolution in [part for part in mixer.modules() if isinstance(part, Convolution)]:
            with torch.no_grad():
                direct = DirectConvolution(convolution.kernel(mixer.longest or SHORT), convolution.skip)
            convolution.filter_inputs = direct.filter_inputs  # type: ignore[method-assign]  # on this copy only
            convolution.query_outputs = direct.query_outputs  # type: ignore[method-assign]
            convolution.direct = direct
    return changed


class DirectConvolution(nn.Module):
    """The convolution y = K * u + D u of each channel with all taps of its kernel, as `Convolution` computes it."""

    kernel: Tensor
    skip: Tensor

    def __init__(self, kernel: Tensor, skip: Tensor) -> None:
        """Take the taps of each channel, kernel (D, taps), and skip (D,)."""
        super().__init__()
        self.register_buffer("kernel", kernel.detach().clone())
        self.register_buffer("skip", skip.detach().clone())

    def filter_inputs(self, u: Tensor) -> Tensor:
        """Convolve inputs: u (D, L, B) -> (D, L, B)."""
        return self._convolve(u, self.kernel) + self.skip[:, None, None] * u

    def query_outputs(self, u: Tensor, query: Tensor) -> Tensor:
        """Return the output for query t after inputs 0..t, for every t: u and query (D, L, B) -> (D, L, B)."""
        first = self.kernel[:, 0] + self.skip
        return first[:, None, None] * query + self._convolve(u, self.kernel[:, 1:])

    def _convolve(self, u: Tensor, kernel: Tensor) -> Tensor:
        padded = functional.pad(u.permute(2, 0, 1), (kernel.shape[1] - 1, 0))  # (B, D, taps - 1 + L)
        return functional.conv1d(padded, kernel.flip(-1)[:, None], groups=kernel.shape[0]).permute(1, 2, 0)
