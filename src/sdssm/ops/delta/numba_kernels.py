"""The delta rule compiled by numba, row by row and head by head. Imported only if numba is installed.

The matrix S of one head stays in the cache. Nothing is kept from the forward pass for the gradient: the backward pass
runs forward again, keeps a checkpoint of S every T positions and the errors v - S k, and recomputes from them the
states of T positions at a time. Each kernel processes rows first..last; the result does not depend on how rows are
divided among threads. Optional arrays that are None for the caller are empty here.
"""

# Numba compiles each kernel for the arrays it is called with; one annotation could not describe them all.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST, copy_vector


@njit(nogil=True, cache=True)
def copy_matrix(source, out):
    """Copy a matrix row by row; see `copy_vector` for the reason."""
    for i in range(len(out)):
        copy_vector(source[i], out[i])


@njit(nogil=True, cache=True, fastmath=FAST)
def scale(S, factor, least):
    """Multiply S by `factor`.

    Entries below `least`, close to the denormal numbers, become 0, because denormals are slow.
    """
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            value = S[i, j] * factor
            S[i, j] = value if abs(value) > least else value * 0


@njit(nogil=True, cache=True, fastmath=FAST)
def update(S, key, value, strength, error):
    """Compute S += strength e key^T with e = value - S key, which is stored in `error`."""
    for i in range(S.shape[0]):
        row = S[i]
        e = value[i]
        for j in range(len(key)):
            e -= row[j] * key[j]
        error[i] = e
        change = strength * e
        for j in range(len(key)):
            row[j] += change * key[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def add_update(S, key, strength, error):
    """Compute S += strength error key^T."""
    for i in range(S.shape[0]):
        row, change = S[i], strength * error[i]
        for j in range(len(key)):
            row[j] += change * key[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def update_backward(S, dS, key, strength, error, dkey, dvalue):
    """Take S and its gradient dS back from after to before an update, in place.

    Fills dkey and dvalue and returns the gradient of `strength`.
    """
    dkey[:] = 0
    dstrength = strength * 0
    for i in range(S.shape[0]):
        row, drow = S[i], dS[i]
        de = dstrength * 0
        for j in range(len(key)):
            de += drow[j] * key[j]
        dstrength += de * error[i]
        de *= strength
        dvalue[i] = de
        change = strength * error[i]
        for j in range(len(key)):  # one loop for each array that is written: the compiler vectorises these
            row[j] -= change * key[j]
        for j in range(len(key)):
            dkey[j] += drow[j] * change - row[j] * de
        for j in range(len(key)):
            drow[j] -= de * key[j]
    return dstrength


@njit(nogil=True, cache=True, fastmath=FAST)
def output_backward(S, dS, query, grad, dquery):
    """Add the gradient of the output S query: dS += grad query^T, and set dquery = S^T grad."""
    dquery[:] = 0
    for i in range(S.shape[0]):
        row, drow, g = S[i], dS[i], grad[i]
        for j in range(len(query)):
            dquery[j] += row[j] * g
        for j in range(len(query)):
            drow[j] += g * query[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def inner_product(A, B):
    """Return the sum of A * B over all entries."""
    total = A[0, 0] * 0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(first, last, q, k, v, beta, gate, S0, lengths, steps, least, outputs, final):
    """Fill outputs (P, L, H, Dv) and final (P, H, Dv, Dk) for rows first..last of P = R B.

    q (P, L, H, Dk), k (P, L n, H, Dk), v (P, L n, H, Dv), beta (P, L n, H), gate (P, L, H), S0 (P, H, Dv, Dk).
    """
    error = np.empty(v.shape[3], v.dtype)
    for row in range(first, last):
        for h in range(q.shape[2]):
            S = final[row, h]
            S[:] = 0
            if len(S0):
                copy_matrix(S0[row, h], S)
            for t in range(lengths[row]):
                if len(gate):
                    scale(S, gate[row, t, h], least)
                for s in range(t * steps, (t + 1) * steps):
                    update(S, k[row, s, h], v[row, s, h], beta[row, s, h], error)
                query, out = q[row, t, h], outputs[row, t, h]
                for i in range(len(out)):
                    total = query[0] * 0
                    for j in range(len(query)):
                        total += S[i, j] * query[j]
                    out[i] = total
        outputs[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def backward(
    first, last, grad_outputs, grad_final, q, k, v, beta, gate, S0, lengths, steps, T, least,
    dq, dk, dv, dbeta, dgate, dS0,
):  # fmt: skip
    """Fill the gradients of rows first..last; T is the number of positions between two checkpoints of S."""
    L, Dv, Dk = q.shape[1], v.shape[3], q.shape[3]
    checkpoints, states = np.empty((-(-L // T), Dv, Dk), q.dtype), np.empty((T, Dv, Dk), q.dtype)
    S, dS = np.empty((Dv, Dk), q.dtype), np.empty((Dv, Dk), q.dtype)
    errors = np.empty((L * steps, Dv), q.dtype)
    for row in range(first, last):
        length = lengths[row]
        for h in range(q.shape[2]):
            S[:] = 0
            if len(S0):
                copy_matrix(S0[row, h], S)
            for t in range(length):
                if t % T == 0:
                    copy_matrix(S, checkpoints[t // T])
                if len(gate):
                    scale(S, gate[row, t, h], least)
                for s in range(t * steps, (t + 1) * steps):
                    update(S, k[row, s, h], v[row, s, h], beta[row, s, h], errors[s])
            dS[:] = 0
            if len(grad_final):
                copy_matrix(grad_final[row, h], dS)
            for t in range(length - 1, -1, -1):
                i = t % T
                if i == T - 1 or t == length - 1:  # entering a chunk: recompute its states from the checkpoint
                    copy_matrix(checkpoints[t // T], S)
                    for r in range(t - i, t + 1):
                        copy_matrix(S, states[r % T])
                        if len(gate):
                            scale(S, gate[row, r, h], least)
                        for s in range(r * steps, (r + 1) * steps):
                            add_update(S, k[row, s, h], beta[row, s, h], errors[s])
                else:
                    copy_matrix(states[i + 1], S)
                if len(grad_outputs):
                    output_backward(S, dS, q[row, t, h], grad_outputs[row, t, h], dq[row, t, h])
                else:
                    dq[row, t, h] = 0
                for s in range((t + 1) * steps - 1, t * steps - 1, -1):
                    dbeta[row, s, h] = update_backward(
                        S, dS, k[row, s, h], beta[row, s, h], errors[s], dk[row, s, h], dv[row, s, h]
                    )
                if len(gate):
                    dgate[row, t, h] = inner_product(dS, states[i])
                    scale(dS, gate[row, t, h], least)
            if len(dS0):
                copy_matrix(dS, dS0[row, h])
        dq[row, length:] = 0
        dk[row, length * steps :] = 0
        dv[row, length * steps :] = 0
        dbeta[row, length * steps :] = 0
        if len(gate):
            dgate[row, length:] = 0
