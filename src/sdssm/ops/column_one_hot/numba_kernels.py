"""The recurrence and its adjoint compiled by numba, row by row. Imported only if numba is installed.

Both process rows first..last and fill all of their outputs. Optional arrays that are None for the caller are empty
here.
"""

# Numba compiles each kernel for the arrays it is called with; one annotation could not describe them all.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import njit

from sdssm.ops.numba_kernels import copy_vector, start_state


@njit(nogil=True, cache=True)
def store(values, least, out):
    """Store complex numbers; numbers close to the denormal ones become 0.

    Denormal numbers make every product a hundred times slower. Real and imaginary parts are compared separately,
    because an absolute value would need a square root.
    """
    for i in range(len(values)):
        value = values[i]
        out[i] = value * 0 if abs(value.real) < least and abs(value.imag) < least else value


@njit(nogil=True, cache=True)
def forward(first, last, D, targets, index, b, x0, lengths, least, states):
    """Fill states (P, L, N) for rows first..last.

    D and targets (M, N) hold all transitions, index (P, L) the one that each step takes.
    """
    x = states[0, 0].copy()
    for row in range(first, last):
        start_state(x0, row, x)
        for t in range(lengths[row]):
            i = index[row, t]
            z = states[row, t]
            z[:] = 0
            if len(b):
                copy_vector(b[row, t], z)
            for j in range(len(x)):
                z[targets[i, j]] += D[i, j] * x[j]
            store(z, least, x)
            copy_vector(x, z)
        states[row, lengths[row] :] = 0


@njit(nogil=True, cache=True)
def backward(first, last, D, targets, index, grad_states, grad_final, lengths, least, adjoints, dx0):
    """Fill adjoints (P, L, N), the whole gradient of each x_t, and dx0 (P, N)."""
    carry = dx0[0].copy()
    for row in range(first, last):
        length = lengths[row]
        adjoints[row, length:] = 0
        carry[:] = 0
        if len(grad_final):
            copy_vector(grad_final[row], carry)
        for t in range(length - 1, -1, -1):
            i = index[row, t]
            if len(grad_states):
                for j in range(len(carry)):
                    carry[j] += grad_states[row, t, j]
            store(carry, least, adjoints[row, t])
            for j in range(len(carry)):
                carry[j] = D[i, j].conjugate() * adjoints[row, t, targets[i, j]]
        copy_vector(carry, dx0[row])
