"""Strings on which the states of an SD-SSM outgrow float32, read all the same.

For p > 1 the matrices may have a spectral radius above 1, and a state that grows by a quarter at every step is infinite
after 400. What is read from it is its LayerNorm, which does not depend on its size: the direction is enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm import ops
from sdssm.layers import SelectiveDense
from sdssm.models.classifier import Classifier
from sdssm.models.readout import EPSILON
from sdssm.models.stack import State
from sdssm.ops.backend import TRITON_LARGEST_STATE


class Scaled:
    """A bare SD-SSM with LayerNorm, reading z = [x; 1] / |[x; 1]| instead of its state x.

    z_t is [A b; 0 1] z_{t-1}, rescaled; nothing in it grows. With c the last entry of z, LayerNorm(x) is
    (z - mean z) / sqrt(var z + epsilon c^2) over the others, epsilon included: the same as before where x is finite.

    >>> from sdssm.models import ModelSettings
    >>> settings = ModelSettings(mixer={"state": 4, "input_matrix": True, "rescale": False}, norm="affine")
    >>> model = Classifier(settings, 2, 3, generator=torch.Generator().manual_seed(0))
    >>> tokens = torch.tensor([[0, 1, 1, 0, 1]])
    >>> torch.allclose(Scaled(model).advance(tokens)[0], model(tokens), atol=1e-5)
    True
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.n_classes, self.numbers, self.recurrent = model.n_classes, model.numbers, True
        with torch.no_grad():  # it is read, not trained
            symbols = model._symbols()
            A = torch.nn.functional.pad(symbols.A, (0, 1, 0, 1))  # (V, N + 1, N + 1)
            A[:, -1, -1] = 1
            if symbols.b is not None:
                A[:, :-1, -1] = symbols.b
        self.A = A

    @staticmethod
    def reads(model: Classifier) -> bool:
        """Whether a model can be read so: it is linear up to its LayerNorm, and its states may grow."""
        mixer = model.mixers[0]
        if not model.bare or model.norm is None or not isinstance(mixer, SelectiveDense):
            return False
        on_cpu = mixer.dictionary.device.type == "cpu"  # a GPU's kernels take no more than so many entries
        fits = on_cpu or mixer.settings.state < TRITON_LARGEST_STATE
        return fits and not mixer.settings.rescale and not mixer.settings.skip

    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """As `Classifier.advance`, for (B, L)."""
        z, final = ops.token_scan(self.A, None, tokens, self._first(state, starts, tokens), rescale=True)
        if self.model.query is not None:
            z = z @ self.A[self.model.query].mT
        return self._logits(z), (final,)

    def carry(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> State:
        """As `Classifier.carry`."""
        return self.advance(tokens, state, starts=starts)[1]

    def last(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> Tensor:
        """As `Classifier.last`."""
        return self.advance(tokens, state, starts=starts)[0][:, -1]

    def _first(self, state: State, starts: Tensor | None, tokens: Tensor) -> Tensor:
        if state is not None:
            given: Tensor = state[0]
            return given
        known, mixer = self.model._first(None, starts), self.model.mixers[0]
        assert isinstance(mixer, SelectiveDense)
        x = mixer._start(None if known is None else known[0])
        x = self.A.new_zeros(self.A.shape[-1] - 1) if x is None else x
        x = x.expand(len(tokens), -1)
        return torch.cat([x, torch.ones_like(x[:, :1])], 1)

    def _logits(self, z: Tensor) -> Tensor:
        x, c = z[..., :-1], z[..., -1:]
        x = x - x.mean(-1, keepdim=True)
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON * c.square())
        norm, readout = self.model.norm, self.model.readout
        assert norm is not None
        if norm.elementwise_affine:
            h = h * norm.weight + norm.bias
        return readout(h, self.model.vectors)  # type: ignore[no-any-return]  # a module's
