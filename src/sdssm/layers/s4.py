"""S4 with HiPPO-LegS initialisation (Gu, Goel and Re 2022)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.layers.channels import SHORT, fft_size
from sdssm.layers.convolution import LtiMixer, ModalSystem, as_complex, repeated
from sdssm.layers.settings import ModeSettings, S4Settings
from sdssm.ops.backend import has_fast_kernels
from sdssm.ops.low_rank import MOST_MODES, low_rank_taps
from sdssm.ops.tables import cached_table

#: Initial imaginary parts of B are clipped here; otherwise those of the fastest modes would dominate.
LARGEST_INPUT = 2.0


def hippo_legs(state: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return lambda, P and B (N / 2,) of HiPPO-LegS, A = diag(lambda) - P P^*.

    There is one mode of each conjugate pair.
    A_ij = -sqrt((2i + 1)(2j + 1)) below the diagonal, -(i + 1) on it, B_i = sqrt(2i + 1). With P_i = sqrt(i + 1/2),
    A + P P^T = -1/2 I + S with S skew-symmetric, so the eigenvectors are unitary. Their phases are arbitrary; here the
    first entry of each is positive.

    >>> eigenvalues, P, B = hippo_legs(4)
    >>> eigenvalues.imag, bool((eigenvalues.real == -0.5).all())
    (tensor([0.5565, 4.6033], dtype=torch.float64), True)
    """
    i = torch.arange(state, dtype=torch.float64)
    B, P = (2 * i + 1).sqrt(), (i + 0.5).sqrt()
    below = -torch.outer(B, B).tril(-1)
    S = (below - below.mT) / 2  # A + P P^T + I / 2
    frequency, V = torch.linalg.eigh(-1j * S)  # ascending, in pairs +-
    V = V[:, state // 2 :] * V[0, state // 2 :].sgn().conj()
    P, B = V.mH @ P.to(V.dtype), V.mH @ B.to(V.dtype)
    eigenvalues = torch.complex(torch.full((state // 2,), -0.5, dtype=torch.float64), frequency[state // 2 :])
    return eigenvalues, P, torch.complex(B.real, B.imag.clamp(-LARGEST_INPUT, LARGEST_INPUT))


def log_radius(points: int, length: int, digits: int) -> float:
    """Return -log r of the circle |z| = r that kernels are evaluated on, with this many binary digits."""
    return digits * math.log(2) / (points + length)


@cached_table
def circle_points(points: int, length: int, digits: int) -> Tensor:
    """Return (1 - z) / (1 + z) and 2 / (1 + z) for z on half of the circle, (2, points / 2 + 1).

    Computed in double precision and rounded once, because z may be near 1.
    """
    k = torch.arange(points // 2 + 1, dtype=torch.float64)
    z = torch.polar(torch.full_like(k, math.exp(-log_radius(points, length, digits))), -2 * math.pi / points * k)
    return torch.stack([(1 - z) / (1 + z), 2 / (1 + z)])


@cached_table
def inverse_radius_powers(points: int, length: int, digits: int) -> Tensor:
    """Return r^-l for l = 0, 1, .. (L,)."""
    return torch.exp(log_radius(points, length, digits) * torch.arange(length, dtype=torch.float64))


@cached_table
def conjugate_signs() -> Tensor:
    """Return the signs (2, 1, 1) that turn real and imaginary parts of w into those of conj(w)."""
    return torch.tensor([1.0, -1.0])[:, None, None]


class DiagonalPlusLowRank(ModalSystem):
    """The system of S4, A = diag(lambda) - P P^* over conjugate pairs, with the bilinear discretisation.

    Only one mode of each pair is stored, so P^* x is 2 Re of a sum over M modes. The Hermitian part of A is negative
    definite for all parameters, so Abar does not increase the norm of a state.
    """

    def __init__(self, width: int, settings: ModeSettings, *, generator: torch.Generator) -> None:
        eigenvalues, P, B = hippo_legs(settings.state)
        super().__init__(width, eigenvalues, settings, generator=generator)
        self.P = repeated(torch.stack([P.real, P.imag]), width)
        self.B = repeated(torch.stack([B.real, B.imag]), width)

    def kernel(self, length: int) -> Tensor:
        """Return the taps of the kernel, from its generating function on a circle |z| = r < 1.

        The function is sum_l K_l z^l = dt C ((1 - z) - dt/2 (1 + z) A)^{-1} B. The inverse uses Woodbury's formula.
        With M points on the circle, K_l has an aliasing error r^M K_{l+M}, and rounding errors grow by r^-l. For r^(M +
        L) equal to the unit roundoff both are about the same: 3e-6 of the largest tap for M = 4 L in float32. No matrix
        power is needed to truncate the sum, and there are no poles near the circle.

        Short kernels are computed step by step on a GPU, see `sdssm.ops.low_rank`.
        """
        if length <= SHORT and self.C.shape[-1] <= MOST_MODES and has_fast_kernels(self.log_dt):
            return low_rank_taps(self.log_dt, self.log_decay, self.frequency, self.P, self.B, self.C, length=length)
        digits = 23 if self.log_dt.dtype == torch.float32 else 52
        points = fft_size((4 if digits == 23 else 12) * length)
        # ((1 - z) - h A (1 + z))^{-1} = (s - h A)^{-1} / (1 + z) with s = (1 - z) / (1 + z) and h = dt / 2.
        h, rate = self.dt / 2, with_conjugates(self.dt / 2 * self.eigenvalues)
        s, factor = circle_points(rate, points, length, digits)
        left = with_conjugates(
            as_complex(torch.stack([self.C, self.P * conjugate_signs(self.P)], 2))
        )  # (D, 2, 2M): C, P^*
        right = with_conjugates(as_complex(torch.stack([self.B, self.P], 2)))  # B, P
        products = (left[:, :, None] * right[:, None]).flatten(1, 2)
        CB, CP, PB, PP = (products @ (s - rate[..., None]).reciprocal()).unbind(1)  # (D, points / 2 + 1) each
        taps: Tensor = torch.fft.irfft((CB - h * CP * PB / (1 + h * PP)) * factor, n=points)[..., :length]
        return h * taps * inverse_radius_powers(taps, points, length, digits)

    def advance(self, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        # Abar x + Bbar u = (I - h A)^{-1} ((I + h A) x + dt B u)
        x = self.dt * as_complex(self.B) * u[..., None]  # (B, D, M)
        x = self._solved(x if state is None else x + self._forward(state))
        return 2 * (as_complex(self.C) * x).real.sum(-1), x

    # M complex modes are N = 2M real numbers, on which Abar acts as a matrix. Its powers are computed by repeated
    # squaring, and only if a state is carried.

    def state_response(self, state: Tensor, length: int) -> Tensor:
        C = as_complex(self.C)
        rows = krylov(self._matrix().mT, 2 * as_real(C.conj()), length + 1)[..., 1:]  # (D, N, L): C Abar^{l+1}
        return torch.einsum("bdn,dnl->dlb", as_real(state), rows)

    def final_state(self, u: Tensor, state: Tensor | None) -> Tensor:
        A, B = self._matrix(), as_real(self._solved(self.dt * as_complex(self.B)))
        x = torch.einsum("dlb,dnl->bdn", u.flip(1), krylov(A, B, u.shape[1]))
        if state is not None:
            x = x + torch.einsum("dnm,bdm->bdn", torch.linalg.matrix_power(A, u.shape[1]), as_real(state))
        return torch.complex(*x.chunk(2, dim=-1))

    def _matrix(self) -> Tensor:
        """Return Abar as a real matrix (D, N, N); its columns are the images of the unit vectors."""
        eye = torch.eye(self.C.shape[-1], device=self.C.device, dtype=self.C.dtype)
        zero = torch.zeros_like(eye)
        units = torch.cat([torch.complex(eye, zero), torch.complex(zero, eye)])[:, None]  # (N, 1, M)
        return as_real(self._solved(self._forward(units))).permute(1, 2, 0)

    def _forward(self, x: Tensor) -> Tensor:
        """Return (I + h A) x with h = dt / 2: (..., D, M)."""
        P = as_complex(self.P)
        return x + self.dt / 2 * (self.eigenvalues * x - P * self._project(x))

    def _solved(self, x: Tensor) -> Tensor:
        """Return (I - h A)^{-1} x, by Woodbury's formula."""
        P, h = as_complex(self.P), self.dt / 2
        shrink = (1 - h * self.eigenvalues).reciprocal()
        coefficient = self._project(shrink * x) / (1 + h * self._project(shrink * P))
        return shrink * (x - h * P * coefficient)

    def _project(self, x: Tensor) -> Tensor:
        """Return P^* x: (..., D, M) -> (..., D, 1)."""
        return 2 * (as_complex(self.P).conj() * x).real.sum(-1, keepdim=True)


def with_conjugates(modes: Tensor) -> Tensor:
    """Append the conjugates of modes: (..., M) -> (..., 2M)."""
    return torch.cat([modes, modes.conj()], dim=-1)


def as_real(modes: Tensor) -> Tensor:
    """Return the real parts, then the imaginary parts: complex (..., M) -> real (..., 2M)."""
    return torch.cat([modes.real, modes.imag], dim=-1)


def krylov(A: Tensor, b: Tensor, length: int) -> Tensor:
    """Return b, A b, A^2 b, .. as columns: A (..., N, N), b (..., N) -> (..., N, length).

    It takes O(log length) matrix products.

    >>> krylov(torch.tensor([[2.0]]), torch.tensor([1.0]), 5)
    tensor([[ 1.,  2.,  4.,  8., 16.]])
    """
    columns = b[..., None]
    while columns.shape[-1] < length:
        columns = torch.cat([columns, A @ columns], dim=-1)
        A = A @ A
    return columns[..., :length]


class S4(LtiMixer):
    """S4: y = K * u + D u with K_l = C Abar^l Bbar and A = diag(lambda) - P P^*; then GELU, Linear, GLU.

    Every channel has N / 2 modes with its own B, C, P and dt; A is initialised to HiPPO-LegS. The kernel of every
    length comes from the same C, which is trained itself; the authors train C (I - Abar^L). Gu, Goel and Re 2022,
    "Efficiently Modeling Long Sequences with Structured State Spaces".

    >>> layer = S4(3, S4Settings(state=8), generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> outputs, final = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest], dim=1), atol=1e-5), outputs.shape, final.shape
    (True, torch.Size([2, 10, 3]), torch.Size([2, 3, 4]))
    """

    name = "s4"
    Settings = S4Settings

    def __init__(self, width: int, settings: S4Settings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or S4Settings()
        super().__init__(width, settings, generator=generator)
        self.system = DiagonalPlusLowRank(width, settings, generator=generator)
