"""DeltaNet and Gated DeltaProduct: each input updates the matrix of a head by the delta rule."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm.layers import initial
from sdssm.layers.mixer import Mixer, MixerState, last_position, last_window, select_rows
from sdssm.layers.settings import DeltaNetSettings, GatedDeltaProductSettings
from sdssm.ops.delta import delta_final, delta_scan, delta_step
from sdssm.ops.filter import causal_filter

#: The epsilon of the RMSNorm of a head, as in flash-linear-attention.
NORM_EPSILON = 1e-5
#: Initial forget gate: exp(A) uniform up to the first value, steps log-uniform between the other two.
FORGET_RATE, STEP_LEAST, STEP_MOST = 16.0, 1e-3, 0.1


class DeltaRule(Mixer):
    """Base class of both mixers: `steps` delta-rule updates for each input, with or without gates."""

    has_output_projection: ClassVar[bool] = True

    def __init__(
        self,
        width: int,
        settings: DeltaNetSettings,
        steps: int,
        *,
        forget: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__(width, settings)
        H, self.inner, self.steps = settings.heads, settings.heads * settings.head_size, steps
        channels = self.inner * (1 + 2 * steps)  # q, then all k, then all v
        self.projection = initial.linear(width, channels, generator, bias=False)
        self.strength = initial.linear(width, H * steps, generator, bias=False)
        taps = settings.conv
        self.filters = None if taps is None else initial.uniform((taps, channels), taps**-0.5, generator)
        self.decay: nn.Linear | None = None
        self.rate: nn.Parameter | None = None
        if forget:
            self.decay, self.rate = forget_gate(width, H, generator)
        self.gate = initial.linear(width, self.inner, generator, bias=False) if settings.output_gate else None
        self.gain = nn.Parameter(torch.ones(settings.head_size))
        self.output = initial.linear(self.inner, width, generator, bias=False)

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def numbers_per_symbol(self) -> int:
        """q, k and v before the convolution, after it and normalised; gates and outputs."""
        return 3 * self.projection.out_features + 4 * self.inner + self.width

    def transition_parameters(self) -> int:
        """Return the number of parameters of k with its filters, of beta and of the forget gate."""
        keys = self.inner * self.steps
        count = keys * (self.width + (self.settings.conv or 0)) + self.strength.weight.numel()
        if self.decay is not None and self.rate is not None:
            count += sum(parameter.numel() for parameter in self.decay.parameters()) + self.rate.numel()
        return count

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Return q, k, v before the convolution (..., C), beta (..., n H), alpha (..., H), gate (..., H D)."""
        parts = [self.projection(u), self.strength(u).sigmoid() * (2 if self.settings.negative_eigenvalues else 1)]
        if self.decay is not None and self.rate is not None:
            parts.append(torch.exp(-self.rate.exp() * functional.softplus(self.decay(u))))
        if self.gate is not None:
            parts.append(functional.silu(self.gate(u)))
        return tuple(parts)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        window, S = (None, None) if state is None else state
        q, k, v, window = self.vectors(parts[0], window)
        B, L, H, _ = q.shape
        beta = parts[1].reshape(B, L * self.steps, H)
        alpha = None if self.decay is None else parts[2]
        o, S = delta_scan(q, k.flatten(1, 2), v.flatten(1, 2), beta, alpha, S, steps=self.steps, lengths=lengths)
        return self.read(o, parts), (window, S) if carry else None

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        if state is not None:
            return super().mix_end(parts, state, lengths=lengths)
        x, *gates = parts
        if self.gate is not None:
            gates[-1] = last_position(gates[-1], lengths)[:, 0]
        queries, keys, values = self._split(x)
        window, exists = last_window(queries, lengths, self.settings.conv or 1)
        return self._end(window, exists, keys, values, gates, lengths)

    def mix_symbols_end(
        self,
        symbols: tuple[Tensor, ...],
        tokens: Tensor,
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        if state is not None:
            return super().mix_symbols_end(symbols, tokens, state, lengths=lengths)
        x, *tables = symbols
        gates = [select_rows(table, tokens) for table in (tables if self.gate is None else tables[:-1])]
        if self.gate is not None:
            gates.append(select_rows(tables[-1], last_position(tokens, lengths)[:, 0]))
        window, exists = last_window(tokens, lengths, self.settings.conv or 1)
        queries, keys, values = self._split(x)
        q, k, v = select_rows(queries, window), select_rows(keys, tokens), select_rows(values, tokens)
        return self._end(q, exists, k, v, gates, lengths)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split channels (..., (1 + 2 n) H D) into those of q, k and v."""
        queries, keys, values = torch.split(x, [self.inner, self.inner * self.steps, self.inner * self.steps], -1)
        return queries, keys, values

    def _end(
        self,
        window: Tensor,
        exists: Tensor | None,
        keys: Tensor,
        values: Tensor,
        gates: list[Tensor],
        lengths: Tensor | None,
    ) -> Tensor:
        """Return the output at the end of each row, (B, 1, F): only the last S is read.

        All before the convolution: of q (B, conv, H D) the last positions, as `last_window` returns them, and k and v
        (B, L, n H D). They are separate, since the scan reads each as one piece of memory. gates are beta and, if
        present, alpha (B, L, *) and the output gate at the end (B, H D).
        """
        B, L, C = keys.shape
        H, D, n = self.settings.heads, self.settings.head_size, self.steps
        filters = self._split(keys.new_ones(1, self.inner + 2 * C) if self.filters is None else self.filters)
        window = window if exists is None else torch.where(exists[..., None], window, 0)
        q, _ = causal_filter(window, filters[0], vectors=H, size=D)
        k = causal_filter(keys, filters[1], vectors=H * n, size=D)[0].reshape(B, L * n, H, D)
        v = causal_filter(values, filters[2])[0].reshape(B, L * n, H, D)
        beta, alpha = gates[0].reshape(B, L * n, H), None if self.decay is None else gates[1]
        S = delta_final(k, v, beta, alpha, steps=n, lengths=lengths)
        o = (S * (q[:, -1].reshape(B, H, 1, D) * D**-0.5)).sum(-1)
        return self.read(o, tuple(gates))[:, None]

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, MixerState]:
        parts = self.parts(u)
        window, S = (None, None) if state is None else state
        q, k, v, window = self.vectors(parts[0][:, None], window)
        B, _, H, D = q.shape
        S = u.new_zeros(B, H, D, D) if S is None else S
        alpha = None if self.decay is None else parts[2]
        beta = parts[1].reshape(B, self.steps, H)
        o, S = delta_step(q[:, 0], k[:, 0], v[:, 0], beta, S, alpha)
        return self.read(o, parts), (window, S)

    def vectors(self, x: Tensor, window: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Convolve x (B, L, C) -> q (B, L, H, D), k and v (B, L, n, H, D), and the last inputs.

        k has norm 1 and q norm D^-1/2. `read` divides by the norm of the outputs, so the factor of q only decides how
        large they are beside its epsilon.
        """
        B, L, C = x.shape
        H, D, n = self.settings.heads, self.settings.head_size, self.steps
        filters = x.new_ones(1, C) if self.filters is None else self.filters
        x, last = causal_filter(x, filters, before=window, vectors=H * (1 + n), size=D)
        q, k, v = self._split(x)
        q, k, v = q.reshape(B, L, H, D), k.reshape(B, L, n, H, D), v.reshape(B, L, n, H, D)
        return q * D**-0.5, k, v, None if self.filters is None else last

    def read(self, o: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
        """Normalise and gate the outputs of the heads (..., H, D), and map them to outputs (..., F)."""
        o = o * (o.square().mean(-1, keepdim=True) + NORM_EPSILON).rsqrt() * self.gain
        o = o.flatten(-2)
        y: Tensor = self.output(o if self.gate is None else o * parts[-1])
        return y


class DeltaNet(DeltaRule):
    """DeltaNet: S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T for each head, read as S_t q_t.

        q, k, v = SiLU(conv(W_q u)), SiLU(conv(W_k u)), SiLU(conv(W_v u)); q and k are then divided by their l2 norm,
                  and q by the square root of the head size
        beta_t  = 2 sigmoid(W_b u_t), or sigmoid(W_b u_t) without negative_eigenvalues
        S_t     = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, from S_0 = 0
        y_t     = W_o RMSNorm(S_t q_t), the norm over each head; with output_gate W_o (RMSNorm(S_t q_t) * SiLU(W_g u_t))

    conv is a causal depthwise convolution; no map has a bias. The eigenvalues of I - beta k k^T lie in (-1, 1];
    a reflection, beta = 2, is reached only by rounding. Equations: Yang et al. 2024 (Parallelizing Linear Transformers
    with the Delta Rule over Sequence Length) and, for the 2 in beta, Grazzi et al. 2025 (Unlocking State-Tracking in
    Linear RNNs Through Negative Eigenvalues). Details and initial values: flash-linear-attention, layers/delta_net.py.

    >>> layer = DeltaNet(3, generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> outputs, _ = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, _ = layer(u[:, 4:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest], dim=1), atol=1e-5), outputs.shape
    (True, torch.Size([2, 10, 3]))
    """

    name: ClassVar[str] = "delta-net"
    Settings: ClassVar[type[Any]] = DeltaNetSettings
    emulates: ClassVar[str] = (
        "With negative eigenvalues one layer computes the parity of its inputs. With positive eigenvalues only, no "
        "number of layers does so in finite precision (Grazzi et al. 2025)."
    )

    def __init__(self, width: int, settings: DeltaNetSettings | None = None, *, generator: torch.Generator) -> None:
        super().__init__(width, settings or DeltaNetSettings(), 1, forget=False, generator=generator)


class GatedDeltaProduct(DeltaRule):
    """Gated DeltaProduct: DeltaNet with n_h updates for each input, a forget gate and an output gate.

        alpha_t = exp(-exp(A) softplus(W_a u_t + a)), a scalar for each head; 1 without forget_gate
        S_t     = alpha_t S_{t-1}, then for each of the n_h keys, values and beta of u_t in turn
                  S_t = S_t (I - beta k k^T) + beta v k^T
        y_t     = W_o (RMSNorm(S_t q_t) * SiLU(W_g u_t)); W_o RMSNorm(S_t q_t) without output_gate

    The rest as in `DeltaNet`. Equations: Siems et al. 2025 (DeltaProduct: Improving State-Tracking in Linear RNNs via
    Householder Products); the gate is that of Yang et al. 2025 (Gated Delta Networks). Details and initial values:
    flash-linear-attention, layers/gated_deltaproduct.py.

    >>> layer = GatedDeltaProduct(3, generator=torch.Generator().manual_seed(0))
    >>> y, (window, S) = layer(torch.randn(2, 10, 3))
    >>> y.shape, S.shape
    (torch.Size([2, 10, 3]), torch.Size([2, 4, 16, 16]))
    """

    name: ClassVar[str] = "delta-product"
    Settings: ClassVar[type[Any]] = GatedDeltaProductSettings
    emulates: ClassVar[str] = (
        "With negative eigenvalues and alpha = 1 one layer composes permutations of householders + 1 elements, and "
        "finitely many layers with enough factors recognise any regular language (Grazzi et al. 2025)."
    )

    def __init__(
        self, width: int, settings: GatedDeltaProductSettings | None = None, *, generator: torch.Generator
    ) -> None:
        settings = settings or GatedDeltaProductSettings()
        super().__init__(width, settings, settings.householders, forget=settings.forget_gate, generator=generator)


def forget_gate(width: int, heads: int, generator: torch.Generator) -> tuple[nn.Linear, nn.Parameter]:
    """Return W_a with its bias a, and A, initialised as in Mamba-2.

    exp(A) is uniform on (0, 16], softplus(a) log-uniform on [0.001, 0.1].
    """
    decay = initial.linear(width, heads, generator, bias=False)
    rate = nn.Parameter(torch.log(FORGET_RATE * (1 - torch.rand(heads, generator=generator))))
    spread = math.log(STEP_MOST / STEP_LEAST)
    step = STEP_LEAST * torch.exp(torch.rand(heads, generator=generator) * spread)
    decay.bias = nn.Parameter(initial.inverse_softplus(step))
    return decay, rate
