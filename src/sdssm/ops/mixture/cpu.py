"""Mixture scan on the CPU: matrices are mixed and normalised a few steps at a time, used, and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sdssm.ops import chunks
from sdssm.ops.block_diagonal.cpu import BlockTransitions
from sdssm.ops.transitions import Transitions, cut, no_factors, previous

#: Entries of the mixed matrices that exist at one time: few enough to stay in the caches, enough to be worth a call.
ENTRIES_AT_ONCE = 1 << 19

#: Called with a stretch of steps, the mixed matrices (P, T, N, N), their column norms or None, and the adjoints there.
Sink = Callable[[slice, Tensor, Tensor | None, Tensor], None]


class MixtureTransitions(Transitions):
    """Dictionary (R, K, N, N), weights (P, L, K), and p for each replica, or None for no normalisation."""

    def __init__(self, dictionary: Tensor, weights: Tensor, p: list[float] | None, norms: Tensor | None = None) -> None:
        self.dictionary, self.weights, self.p = dictionary, weights, p
        self.rows, self.length, _ = weights.shape
        self.size = self.block = dictionary.shape[-1]
        self.known = norms is not None  # the backward pass is given them, the forward pass finds them
        self.norms = norms
        self.inside: MixtureTransitions | None = None
        if p is not None and norms is None:
            self.norms = weights.new_ones(self.rows, self.length, self.size)

    def mix(self, steps: slice) -> Tensor:
        """sum_k weights_t[k] dictionary_k for a stretch of steps: (P, T, N, N)."""
        replicas, many = self.dictionary.shape[:2]
        weights = self.weights[:, steps].reshape(replicas, -1, many)
        mixed = weights @ self.dictionary.flatten(2)  # (R, B T, N N)
        return mixed.reshape(self.rows, -1, self.size, self.size)

    def power(self, mixed: Tensor, shift: float) -> Tensor:
        """|mixed|^(p + shift), with each replica's own p."""
        assert self.p is not None
        size = mixed.abs()
        if len(set(self.p)) > 1:
            return size.pow_(self.per_row()[..., None] + shift)
        exponent = self.p[0] + shift
        # Through logarithms: a third of the time of pow, wrong by a few units in the last place; log2(0) = -inf fits.
        return size if exponent == 1 else size.log2_().mul_(exponent).exp2_()

    def signed_power(self, A: Tensor) -> Tensor:
        """sign(A) |A|^(p - 1): the slope of a column's norm, 0 at an entry that is 0."""
        assert self.p is not None
        if all(p == 1 for p in self.p):
            return A.sign()
        if any(p == 1 for p in self.p):
            return self.power(A, -1).mul_(A.sign())
        return self.power(A, -1).copysign_(A)

    def per_row(self) -> Tensor:
        """p beside each row: (P, 1, 1)."""
        assert self.p is not None
        return self.weights.new_tensor(self.p).repeat_interleave(self.rows // len(self.p))[:, None, None]

    def normed(self, steps: slice) -> Tensor:
        """The matrices of a stretch of steps, columns divided: (P, T, N, N). Their norms are remembered."""
        mixed = self.mix(steps)
        if self.norms is None:
            return mixed
        if not self.known:
            self.norms[:, steps] = self.power(mixed, 0).sum(-2).pow_(1 / self.per_row())  # (P, T, N)
        return mixed.div_(self.norms[:, steps, None, :])

    def stretches(self) -> Iterator[slice]:
        width = max(1, ENTRIES_AT_ONCE // (self.rows * self.size**2))
        for begin in range(0, self.length, width):
            yield slice(begin, min(begin + width, self.length))

    def apply(self, t: int, x: Tensor) -> Tensor:
        return (self.normed(slice(t, t + 1))[:, 0] @ x[..., None])[..., 0]

    def adjoint(self, t: int, g: Tensor) -> Tensor:
        return (self.normed(slice(t, t + 1))[:, 0].mT @ g[..., None])[..., 0]

    def matrix(self, t: int) -> Tensor:
        return self.normed(slice(t, t + 1))  # (P, 1, N, N)

    def chunked(self, chunk: int) -> Transitions:
        # Steps past the end repeat the last one: a matrix of zeros has no columns to normalise.
        missing = -self.length % chunk

        def pad(data: Tensor) -> Tensor:
            return cut(torch.cat([data, data[:, -1:].expand(-1, missing, -1)], 1), chunk)

        norms = pad(self.norms) if self.known and self.norms is not None else None
        self.inside = MixtureTransitions(self.dictionary, pad(self.weights), self.p, norms)
        return self.inside

    def found_norms(self) -> Tensor | None:
        """The norms after a forward pass, whichever mode ran it: (P, L, N)."""
        if self.norms is None or self.inside is None or self.inside.norms is None:
            return self.norms
        return self.inside.norms.reshape(self.rows, -1, self.size)[:, : self.length].contiguous()

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        found, kept, x = [], [], x0
        for steps in self.stretches():
            inside = None if lengths is None else (lengths - steps.start).clamp(0, steps.stop - steps.start)
            part = BlockTransitions(self.normed(steps).unsqueeze(2))
            states, factors = part.forward(None if drive is None else drive[:, steps], x, inside, rescale, like)
            x = states[:, -1]  # zeros past a row's length, where nothing is read any more
            found.append(states)
            kept.append(factors)
        return torch.cat(found, 1), torch.cat(kept, 1) if rescale else no_factors(like)

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
        sink: Sink | None = None,
    ) -> tuple[Tensor, Tensor]:
        adjoints = torch.empty_like(states)
        arriving = chunks.add_final_gradient(grad_states, grad_final, lengths, states)
        carry: Tensor | None = None
        for steps in reversed(list(self.stretches())):
            width = steps.stop - steps.start
            A = self.normed(steps)
            given = arriving[:, steps]
            if carry is not None:
                given = given.clone()
                given[:, -1] += carry
            inside = None if lengths is None else (lengths - steps.start).clamp(0, width)
            part = BlockTransitions(A.unsqueeze(2))
            kept = factors[:, steps] if rescale else factors
            found, carry = part.backward(given, None, inside, states[:, steps], kept, rescale)
            adjoints[:, steps] = found
            if sink is not None:
                sink(steps, A, None if self.norms is None else self.norms[:, steps], found)
        assert carry is not None
        if lengths is not None and grad_final is not None:
            carry = torch.where((lengths == 0)[:, None], grad_final, carry)
        return adjoints, carry


class ParameterGradients:
    """Sums the gradients of dictionary and weights over stretches of steps.

    With A_ij = M_ij / n_j and q = A^T adjoint, the gradient at the mixed matrix M is
    (x_j / n_j) (adjoint_i - q_j sign(A_ij) |A_ij|^(p-1)), x the state before; without p it is adjoint_i x_j.
    """

    def __init__(self, transitions: MixtureTransitions, before: Tensor) -> None:
        self.transitions, self.before = transitions, before
        self.dictionary = torch.zeros_like(transitions.dictionary)
        self.weights = torch.empty_like(transitions.weights)

    def add(self, steps: slice, A: Tensor, norms: Tensor | None, adjoints: Tensor) -> None:
        replicas, many = self.dictionary.shape[:2]
        before = self.before[:, steps]
        if norms is None:
            grad = adjoints[..., :, None] * before[..., None, :]
        else:
            pulled = adjoints[..., None, :] @ A  # (P, T, 1, N)
            grad = self.transitions.signed_power(A).mul_(pulled)
            torch.sub(adjoints[..., :, None], grad, out=grad).mul_((before / norms)[..., None, :])
        flat = grad.reshape(replicas, -1, grad.shape[-1] ** 2)  # (R, B T, N N)
        weights = self.transitions.weights[:, steps].reshape(replicas, -1, many)
        self.dictionary.flatten(2).baddbmm_(weights.mT, flat)
        found = flat @ self.transitions.dictionary.flatten(2).mT  # (R, B T, K)
        self.weights[:, steps] = found.reshape(A.shape[0], -1, many)


def transitions_of(
    dictionary: Tensor, weights: Tensor, p: Tensor | None, norms: Tensor | None = None
) -> MixtureTransitions:
    exponents = None if p is None else p.tolist()
    rows_of_norms = None if norms is None or p is None else norms.flatten(0, 1)
    return MixtureTransitions(dictionary, weights.flatten(0, 1), exponents, rows_of_norms)


def forward(
    dictionary: Tensor,
    weights: Tensor,
    b: Tensor | None,
    x0: Tensor | None,
    p: Tensor | None,
    lengths: Tensor | None,
    *,
    rescale: bool,
    mode: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """dictionary (R, K, N, N), weights (R, B, L, K), b (R, B, L, N), p (R,)
    -> states (R, B, L, N), final (R, B, N), factors (R, B, L) or empty, norms (R, B, L, N) or None."""
    transitions = transitions_of(dictionary, weights, p)
    drive, start, steps = (None if given is None else given.flatten(0, 1) for given in (b, x0, lengths))
    states, final, factors = chunks.scan_forward(transitions, drive, start, steps, rescale, mode, like=dictionary)
    norms = transitions.found_norms()
    lead = weights.shape[:3]
    return (
        states.reshape(*lead, -1),
        final.reshape(*lead[:2], -1),
        factors.reshape(lead) if rescale else factors,
        None if norms is None else norms.reshape(*lead, -1),
    )


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    dictionary: Tensor,
    weights: Tensor,
    b: Tensor | None,
    x0: Tensor | None,
    p: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    norms: Tensor,
    *,
    rescale: bool,
    mode: str,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Gradients of dictionary, weights, b and x0."""
    transitions = transitions_of(dictionary, weights, p, norms)
    flat = [None if given is None else given.flatten(0, 1) for given in (grad_states, grad_final, lengths, x0)]
    rows_of_states = states.flatten(0, 1)
    kept = factors.flatten(0, 1) if rescale else factors
    gradients = ParameterGradients(transitions, previous(rows_of_states, flat[3]))
    if mode == "parallel":
        adjoints, grad_x0 = chunks.backward(transitions, flat[0], flat[1], flat[2], rows_of_states, kept, rescale)
        for stretch in transitions.stretches():
            column_norms = None if transitions.norms is None else transitions.norms[:, stretch]
            gradients.add(stretch, transitions.normed(stretch), column_norms, adjoints[:, stretch])
    else:
        adjoints, grad_x0 = transitions.backward(
            flat[0], flat[1], flat[2], rows_of_states, kept, rescale, gradients.add
        )
    return (
        gradients.dictionary,
        gradients.weights.reshape(weights.shape),
        None if b is None else adjoints.reshape(b.shape),
        grad_x0.reshape(*weights.shape[:2], -1),
    )
