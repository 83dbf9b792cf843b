"""The mixture scan on the CPU: the matrices of a few steps exist at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sdssm.ops import chunks
from sdssm.ops.block_diagonal.cpu import BlockTransitions
from sdssm.ops.compiled import is_available
from sdssm.ops.layout import merge_replicas
from sdssm.ops.mixture import compiled
from sdssm.ops.transitions import Transitions, cut_into_chunks, no_factors, previous_states

#: Entries of the mixed matrices that exist at a time: few enough to stay in the caches, many enough for one call.
ENTRIES_AT_ONCE = 1 << 19

#: Called with a range of steps, their mixed matrices (P, T, N, N), the column norms or None, and the adjoints.
GradientCallback = Callable[[slice, Tensor, Tensor | None, Tensor], None]


class MixtureTransitions(Transitions):
    """Dictionary (R, K, N, N), weights (P, L, K), and p for each replica, or None for no normalisation."""

    def __init__(self, dictionary: Tensor, weights: Tensor, p: list[float] | None, norms: Tensor | None = None) -> None:
        self.dictionary, self.weights, self.p = dictionary, weights, p
        self.rows, self.length, _ = weights.shape
        self.size = self.block = dictionary.shape[-1]
        self.has_norms = norms is not None  # set by the backward pass; the forward pass computes them
        self.norms = norms
        self.chunks: MixtureTransitions | None = None
        if p is not None and norms is None:
            self.norms = weights.new_ones(self.rows, self.length, self.size)

    def mix(self, steps: slice) -> Tensor:
        """Return sum_k weights_t[k] dictionary_k for a range of steps: (P, T, N, N)."""
        replicas, count = self.dictionary.shape[:2]
        weights = self.weights[:, steps].reshape(replicas, -1, count)
        mixed = weights @ self.dictionary.flatten(2)  # (R, B T, N N)
        return mixed.reshape(self.rows, -1, self.size, self.size)

    def power(self, mixed: Tensor, shift: float) -> Tensor:
        """Return |mixed|^(p + shift), with the p of each replica."""
        assert self.p is not None
        size = mixed.abs()
        if len(set(self.p)) > 1:
            return size.pow_(self.per_row()[..., None] + shift)
        exponent = self.p[0] + shift
        # Logarithms take a third of the time of pow, with an error of a few units in the last place; log2(0) is -inf.
        return size if exponent == 1 else size.log2_().mul_(exponent).exp2_()

    def signed_power(self, A: Tensor) -> Tensor:
        """Return sign(A) |A|^(p - 1), the derivative of a column's norm; 0 for an entry that is 0."""
        assert self.p is not None
        if all(p == 1 for p in self.p):
            return A.sign()
        if any(p == 1 for p in self.p):
            return self.power(A, -1).mul_(A.sign())
        return self.power(A, -1).copysign_(A)

    def per_row(self) -> Tensor:
        """Return the p of each row: (P, 1, 1)."""
        assert self.p is not None
        return self.weights.new_tensor(self.p).repeat_interleave(self.rows // len(self.p))[:, None, None]

    def row_exponents(self) -> Tensor | None:
        """Return the p of each row, (P,), or None for no normalisation."""
        return None if self.p is None else self.per_row().flatten()

    def normalised(self, steps: slice) -> Tensor:
        """Return the matrices of a range of steps with normalised columns: (P, T, N, N).

        In a forward pass their norms are stored.
        """
        mixed = self.mix(steps)
        if self.norms is None:
            return mixed
        if not self.has_norms:
            self.norms[:, steps] = self.power(mixed, 0).sum(-2).pow_(1 / self.per_row())  # (P, T, N)
        return mixed.div_(self.norms[:, steps, None, :])

    def ranges(self) -> Iterator[slice]:
        """Iterate over the ranges of steps whose matrices exist at the same time."""
        width = max(1, ENTRIES_AT_ONCE // (self.rows * self.size**2))
        for start in range(0, self.length, width):
            yield slice(start, min(start + width, self.length))

    def apply(self, t: int, x: Tensor) -> Tensor:
        return (self.normalised(slice(t, t + 1))[:, 0] @ x[..., None])[..., 0]

    def adjoint(self, t: int, g: Tensor) -> Tensor:
        return (self.normalised(slice(t, t + 1))[:, 0].mT @ g[..., None])[..., 0]

    def matrix(self, t: int) -> Tensor:
        return self.normalised(slice(t, t + 1))  # (P, 1, N, N)

    def chunked(self, chunk: int) -> Transitions:
        # Steps past the end repeat the last one: the columns of a zero matrix cannot be normalised.
        missing = -self.length % chunk

        def pad(data: Tensor) -> Tensor:
            return cut_into_chunks(torch.cat([data, data[:, -1:].expand(-1, missing, -1)], 1), chunk)

        norms = pad(self.norms) if self.has_norms and self.norms is not None else None
        self.chunks = MixtureTransitions(self.dictionary, pad(self.weights), self.p, norms)
        return self.chunks

    def all_norms(self) -> Tensor | None:
        """Return the norms after a forward pass in either mode: (P, L, N)."""
        if self.norms is None or self.chunks is None or self.chunks.norms is None:
            return self.norms
        return self.chunks.norms.reshape(self.rows, -1, self.size)[:, : self.length].contiguous()

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        if is_available():
            exponents = self.row_exponents()
            return compiled.forward(self.dictionary, self.weights, exponents, self.norms, drive, x0, lengths, rescale)
        all_states, all_factors, x = [], [], x0
        for steps in self.ranges():
            remaining = None if lengths is None else (lengths - steps.start).clamp(0, steps.stop - steps.start)
            part = BlockTransitions(self.normalised(steps).unsqueeze(2))
            states, factors = part.forward(None if drive is None else drive[:, steps], x, remaining, rescale, like)
            x = states[:, -1]  # zeros past a row's length, where they are not used
            all_states.append(states)
            all_factors.append(factors)
        return torch.cat(all_states, 1), torch.cat(all_factors, 1) if rescale else no_factors(like)

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
        callback: GradientCallback | None = None,
    ) -> tuple[Tensor, Tensor]:
        adjoints = torch.empty_like(states)
        grads = chunks.add_final_gradient(grad_states, grad_final, lengths, states)
        carry: Tensor | None = None
        for steps in reversed(list(self.ranges())):
            width = steps.stop - steps.start
            A = self.normalised(steps)
            grad = grads[:, steps]
            if carry is not None:
                grad = grad.clone()
                grad[:, -1] += carry
            remaining = None if lengths is None else (lengths - steps.start).clamp(0, width)
            part = BlockTransitions(A.unsqueeze(2))
            part_factors = factors[:, steps] if rescale else factors
            part_adjoints, carry = part.backward(grad, None, remaining, states[:, steps], part_factors, rescale)
            adjoints[:, steps] = part_adjoints
            if callback is not None:
                callback(steps, A, None if self.norms is None else self.norms[:, steps], part_adjoints)
        assert carry is not None
        if lengths is not None and grad_final is not None:
            carry = torch.where((lengths == 0)[:, None], grad_final, carry)
        return adjoints, carry


class ParameterGradients:
    """Accumulates the gradients of dictionary and weights over ranges of steps.

    With A_ij = M_ij / n_j and q = A^T adjoint, the gradient at the mixed matrix M is
    (x_j / n_j) (adjoint_i - q_j sign(A_ij) |A_ij|^(p-1)) with x the previous state; without p it is adjoint_i x_j.
    """

    def __init__(self, transitions: MixtureTransitions, before: Tensor) -> None:
        self.transitions, self.before = transitions, before
        self.dictionary = torch.zeros_like(transitions.dictionary)
        self.weights = torch.empty_like(transitions.weights)

    def add(self, steps: slice, A: Tensor, norms: Tensor | None, adjoints: Tensor) -> None:
        """Add the gradients of a range of steps."""
        replicas, count = self.dictionary.shape[:2]
        before = self.before[:, steps]
        if norms is None:
            grad = adjoints[..., :, None] * before[..., None, :]
        else:
            pullback = adjoints[..., None, :] @ A  # (P, T, 1, N)
            grad = self.transitions.signed_power(A).mul_(pullback)
            torch.sub(adjoints[..., :, None], grad, out=grad).mul_((before / norms)[..., None, :])
        flat = grad.reshape(replicas, -1, grad.shape[-1] ** 2)  # (R, B T, N N)
        weights = self.transitions.weights[:, steps].reshape(replicas, -1, count)
        self.dictionary.flatten(2).baddbmm_(weights.mT, flat)
        grad_weights = flat @ self.transitions.dictionary.flatten(2).mT  # (R, B T, K)
        self.weights[:, steps] = grad_weights.reshape(A.shape[0], -1, count)


def transitions_of(
    dictionary: Tensor, weights: Tensor, p: Tensor | None, norms: Tensor | None = None
) -> MixtureTransitions:
    """Return the transitions.

    dictionary (R, K, N, N), weights (R, B, L, K), p (R,), norms (R, B, L, N).
    """
    exponents = None if p is None else p.tolist()
    flat_norms = None if norms is None or p is None else norms.flatten(0, 1)
    return MixtureTransitions(dictionary, weights.flatten(0, 1), exponents, flat_norms)


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
    """Return states (R, B, L, N), final (R, B, N), factors (R, B, L) and norms (R, B, L, N).

    Factors are empty without `rescale`, norms None without p.

    dictionary (R, K, N, N), weights (R, B, L, K), b (R, B, L, N), x0 (R, B, N), p (R,), lengths (R, B).
    """
    transitions = transitions_of(dictionary, weights, p)
    drive, start, steps = merge_replicas(b, x0, lengths)
    states, final, factors = chunks.scan_forward(transitions, drive, start, steps, rescale, mode, like=dictionary)
    norms = transitions.all_norms()
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
    """Return the gradients of dictionary, weights, b (None without b) and x0."""
    transitions = transitions_of(dictionary, weights, p, norms)
    grad_states, grad_final, start, steps, states = merge_replicas(grad_states, grad_final, x0, lengths, states)
    factors = factors.flatten(0, 1) if rescale else factors
    if mode != "parallel" and is_available():
        grad_dictionary, grad_weights, adjoints, grad_x0 = compiled.backward(
            dictionary,
            transitions.weights,
            transitions.row_exponents(),
            transitions.norms,
            grad_states,
            grad_final,
            start,
            steps,
            states,
            factors,
            rescale,
        )
        grad_b = None if b is None else adjoints.reshape(b.shape)
        return grad_dictionary, grad_weights.reshape(weights.shape), grad_b, grad_x0.reshape(*weights.shape[:2], -1)
    gradients = ParameterGradients(transitions, previous_states(states, start))
    if mode == "parallel":
        adjoints, grad_x0 = chunks.backward(transitions, grad_states, grad_final, steps, states, factors, rescale)
        for times in transitions.ranges():
            column_norms = None if transitions.norms is None else transitions.norms[:, times]
            gradients.add(times, transitions.normalised(times), column_norms, adjoints[:, times])
    else:
        adjoints, grad_x0 = transitions.backward(
            grad_states, grad_final, steps, states, factors, rescale, gradients.add
        )
    return (
        gradients.dictionary,
        gradients.weights.reshape(weights.shape),
        None if b is None else adjoints.reshape(b.shape),
        grad_x0.reshape(*weights.shape[:2], -1),
    )
