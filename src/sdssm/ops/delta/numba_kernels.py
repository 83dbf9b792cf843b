"""The delta rule, row after row and head after head, compiled by numba. Imported only where it is installed.

The matrix S of one head stays in the cache. Nothing is kept for the gradient: backward runs forward again, keeps S
every T positions and the errors v - S k, and from them forms the states of T positions at a time. Every kernel runs
over rows first..last, which are the same for any number of threads. Arrays that were not given are empty.
"""

# Kernels take whatever arrays numba compiles them for: one signature would say less than it hides.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST


@njit(nogil=True, cache=True, fastmath=FAST)
def scale(S, factor, least):
    """S *= factor; entries below `least`, next to the denormal numbers, become 0: those slow every product."""
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            value = S[i, j] * factor
            S[i, j] = value if abs(value) > least else value * 0


@njit(nogil=True, cache=True, fastmath=FAST)
def correct(S, key, value, strength, error):
    """S += strength e key^T with e = value - S key, left in `error`."""
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
def add(S, key, strength, error):
    """S += strength error key^T."""
    for i in range(S.shape[0]):
        row, change = S[i], strength * error[i]
        for j in range(len(key)):
            row[j] += change * key[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def step_back(S, D, key, strength, error, dkey, dvalue):
    """From S and its gradient D after a step to both before it, in place; fills dkey, dvalue, returns d(strength)."""
    dkey[:] = 0
    dstrength = strength * 0
    for i in range(S.shape[0]):
        row, drow = S[i], D[i]
        de = dstrength * 0
        for j in range(len(key)):
            de += drow[j] * key[j]
        dstrength += de * error[i]
        de *= strength
        dvalue[i] = de
        change = strength * error[i]
        for j in range(len(key)):  # a loop for each array that is written: the compiler does these eight at a time
            row[j] -= change * key[j]
        for j in range(len(key)):
            dkey[j] += drow[j] * change - row[j] * de
        for j in range(len(key)):
            drow[j] -= de * key[j]
    return dstrength


@njit(nogil=True, cache=True, fastmath=FAST)
def read_back(S, D, query, grad, dquery):
    """The gradient of S query: D += grad query^T, and dquery = S^T grad."""
    dquery[:] = 0
    for i in range(S.shape[0]):
        row, drow, g = S[i], D[i], grad[i]
        for j in range(len(query)):
            dquery[j] += row[j] * g
        for j in range(len(query)):
            drow[j] += g * query[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def inner(A, B):
    total = A[0, 0] * 0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(first, last, q, k, v, beta, gate, S0, lengths, steps, least, outputs, final):
    """q (P, L, H, Dk), k (P, L n, H, Dk), v (P, L n, H, Dv), beta (P, L n, H), gate (P, L, H), S0 (P, H, Dv, Dk)."""
    error = np.empty(v.shape[3], v.dtype)
    for row in range(first, last):
        for h in range(q.shape[2]):
            S = final[row, h]
            S[:] = 0
            if len(S0):
                S[:] = S0[row, h]
            for t in range(lengths[row]):
                if len(gate):
                    scale(S, gate[row, t, h], least)
                for s in range(t * steps, (t + 1) * steps):
                    correct(S, k[row, s, h], v[row, s, h], beta[row, s, h], error)
                query, out = q[row, t, h], outputs[row, t, h]
                for i in range(len(out)):
                    total = query[0] * 0
                    for j in range(len(query)):
                        total += S[i, j] * query[j]
                    out[i] = total
        outputs[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def backward(
    first, last, grad, grad_final, q, k, v, beta, gate, S0, lengths, steps, T, least,
    dq, dk, dv, dbeta, dgate, dS0,
):  # fmt: skip
    L, Dv, Dk = q.shape[1], v.shape[3], q.shape[3]
    marks, states = np.empty((-(-L // T), Dv, Dk), q.dtype), np.empty((T, Dv, Dk), q.dtype)
    S, D = np.empty((Dv, Dk), q.dtype), np.empty((Dv, Dk), q.dtype)
    errors = np.empty((L * steps, Dv), q.dtype)
    for row in range(first, last):
        length = lengths[row]
        for h in range(q.shape[2]):
            S[:] = 0
            if len(S0):
                S[:] = S0[row, h]
            for t in range(length):
                if t % T == 0:
                    marks[t // T] = S
                if len(gate):
                    scale(S, gate[row, t, h], least)
                for s in range(t * steps, (t + 1) * steps):
                    correct(S, k[row, s, h], v[row, s, h], beta[row, s, h], errors[s])
            D[:] = 0
            if len(grad_final):
                D[:] = grad_final[row, h]
            for t in range(length - 1, -1, -1):
                at = t % T
                if at == T - 1 or t == length - 1:  # the states before and after every position of a chunk
                    S[:] = marks[t // T]
                    for r in range(t - at, t + 1):
                        states[r % T] = S
                        if len(gate):
                            scale(S, gate[row, r, h], least)
                        for s in range(r * steps, (r + 1) * steps):
                            add(S, k[row, s, h], beta[row, s, h], errors[s])
                else:
                    S[:] = states[at + 1]
                if len(grad):
                    read_back(S, D, q[row, t, h], grad[row, t, h], dq[row, t, h])
                else:
                    dq[row, t, h] = 0
                for s in range((t + 1) * steps - 1, t * steps - 1, -1):
                    dbeta[row, s, h] = step_back(
                        S, D, k[row, s, h], beta[row, s, h], errors[s], dk[row, s, h], dv[row, s, h]
                    )
                if len(gate):
                    dgate[row, t, h] = inner(D, states[at])
                    scale(D, gate[row, t, h], least)
            if len(dS0):
                dS0[row, h] = D
        dq[row, length:] = 0
        dk[row, length * steps :] = 0
        dv[row, length * steps :] = 0
        dbeta[row, length * steps :] = 0
        if len(gate):
            dgate[row, length:] = 0
