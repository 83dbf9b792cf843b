"""The recurrence and its adjoint, one row after the other, compiled by numba. Imported only where it is installed.

Both run over rows first..last and write all of their outputs. Arrays that were not given are empty.
"""

# Kernels take whatever arrays numba compiles them for: one signature would say less than it hides.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import njit

from sdssm.ops.numba_kernels import start_state


@njit(nogil=True, cache=True)
def keep(values, least, out):
    """Store complex numbers. Those next to the denormal ones become 0, which slow every product a hundredfold; no
    absolute value is taken for it, a square root each."""
    for i in range(len(values)):
        value = values[i]
        out[i] = value * 0 if abs(value.real) < least and abs(value.imag) < least else value


@njit(nogil=True, cache=True)
def forward(first, last, D, to, index, b, x0, lengths, least, states):
    """D (M, N), to (M, N): all transitions; index (P, L): which of them each step takes."""
    x = states[0, 0].copy()
    for row in range(first, last):
        start_state(x0, row, x)
        for t in range(lengths[row]):
            here = index[row, t]
            z = states[row, t]
            z[:] = 0
            if len(b):
                z[:] = b[row, t]
            for j in range(len(x)):
                z[to[here, j]] += D[here, j] * x[j]
            keep(z, least, x)
            z[:] = x
        states[row, lengths[row] :] = 0


@njit(nogil=True, cache=True)
def backward(first, last, D, to, index, grad_states, grad_final, lengths, least, adjoints, dx0):
    """adjoints (P, L, N): the gradient at x_t from everywhere; dx0 (P, N)."""
    carry = dx0[0].copy()
    for row in range(first, last):
        length = lengths[row]
        adjoints[row, length:] = 0
        carry[:] = 0
        if len(grad_final):
            carry[:] = grad_final[row]
        for t in range(length - 1, -1, -1):
            here = index[row, t]
            if len(grad_states):
                carry += grad_states[row, t]
            keep(carry, least, adjoints[row, t])
            for j in range(len(carry)):
                carry[j] = D[here, j].conjugate() * adjoints[row, t, to[here, j]]
        dx0[row] = carry
