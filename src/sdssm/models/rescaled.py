"""Evaluation of SD-SSMs whose states overflow float32.

For p > 1 the matrices may have a spectral radius above 1, and a state that grows by 25 % at every step is infinite
after 400 steps. The readout uses only its LayerNorm, which does not depend on the norm of the state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm import ops
from sdssm.devices import TRITON_LARGEST_MATRIX
from sdssm.layers import SelectiveDense
from sdssm.models.classifier import Classifier
from sdssm.models.readout import EPSILON
from sdssm.models.stack import State


class RescaledModel:
    """A single-layer SD-SSM with LayerNorm that runs on z = [x; 1] / |[x; 1]| instead of its state x.

    z_t is [A b; 0 1] z_{t-1} divided by its norm, so it does not grow. With c the last entry of z, LayerNorm(x) is
    (z - mean z) / sqrt(var z + epsilon c^2) over the other entries, which equals that of x, epsilon included.

    >>> from sdssm.models import ModelSettings
    >>> settings = ModelSettings(mixer={"state": 4, "input_matrix": True, "rescale": False}, norm="affine")
    >>> model = Classifier(settings, 2, 3, generator=torch.Generator().manual_seed(0))
    >>> tokens = torch.tensor([[0, 1, 1, 0, 1]])
    >>> torch.allclose(RescaledModel(model).advance(tokens)[0], model(tokens), atol=1e-5)
    True
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.n_classes, self.numbers_per_symbol, self.is_recurrent = model.n_classes, model.numbers_per_symbol, True
        with torch.no_grad():  # for evaluation only
            symbols = model.symbol_parts()
            A = torch.nn.functional.pad(symbols.A, (0, 1, 0, 1))  # (V, N + 1, N + 1)
            A[:, -1, -1] = 1
            if symbols.b is not None:
                A[:, :-1, -1] = symbols.b
        self.A = A

    @staticmethod
    def supports(model: Classifier) -> bool:
        """Return whether a model can run in this form: linear up to its LayerNorm, with growing states."""
        mixer = model.mixers[0]
        if not model.is_single_sd_ssm or model.norm is None or not isinstance(mixer, SelectiveDense):
            return False
        on_cpu = mixer.dictionary.device.type == "cpu"  # GPU kernels limit the size of the state
        fits = on_cpu or mixer.settings.state < TRITON_LARGEST_MATRIX
        return fits and not mixer.settings.rescale and not mixer.settings.skip

    def advance(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Run as `Classifier.advance`, on tokens (B, L)."""
        z, final = ops.token_scan(self.A, None, tokens, self._first(state, starts, tokens), rescale=True)
        return self.logits(z), (final,)

    def advance_state(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> State:
        """Return the final state, as `Classifier.advance_state`."""
        return self.advance(tokens, state, starts=starts)[1]

    def last_logits(self, tokens: Tensor, state: State = None, *, starts: Tensor | None = None) -> Tensor:
        """Return the logits after the last symbol, as `Classifier.last_logits`."""
        return self.advance(tokens, state, starts=starts)[0][:, -1]

    def _first(self, state: State, starts: Tensor | None, tokens: Tensor) -> Tensor:
        if state is not None:
            z: Tensor = state[0]
            return z
        return self.first_states(starts, len(tokens))

    def first_states(self, starts: Tensor | None, count: int) -> Tensor:
        """Return [x_0; 1] for `count` strings (B, N + 1), which may start from states of the automaton (B,)."""
        x = self.model.start_states(starts)
        x = self.A.new_zeros(self.A.shape[-1] - 1) if x is None else x
        x = x.expand(count, -1)
        return torch.cat([x, torch.ones_like(x[:, :1])], 1)

    def logits(self, z: Tensor) -> Tensor:
        """Return the logits (..., C) after states z (..., N + 1), with a query step if the model has one."""
        return self._logits(z if self.model.query is None else z @ self.A[self.model.query].mT)

    def _logits(self, z: Tensor) -> Tensor:
        x, c = z[..., :-1], z[..., -1:]
        x = x - x.mean(-1, keepdim=True)
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON * c.square())
        norm, readout = self.model.norm, self.model.readout
        assert norm is not None
        if norm.elementwise_affine:
            h = h * norm.weight + norm.bias
        return readout(h, self.model.vectors)  # type: ignore[no-any-return]  # a module's
