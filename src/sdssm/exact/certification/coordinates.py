"""Coordinates in which a trained model nearly turns its states about: chosen well, and trusted for nothing.

The states that strings lead to lie close to a subspace which every symbol nearly maps to itself. An inner product on it
that is averaged over the machine's words makes each symbol nearly an isometry there; what is left over shrinks. The
choice is made in plain float64. `bounds` proves what holds in these coordinates, whichever they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.exact.certification.ball_arithmetic import Floats
from sdssm.exact.certification.linear_system import DEAD, Ints, LinearSystem

#: Strings walked to find where states lie, and how far.
STRINGS, PLACES = 512, 64
#: Directions less used than this, relative to the most used one, belong to the rest.
LEAST_USED = 1e-3
#: About how many multiplications averaging may take.
MOST_WORK = 4e9


@dataclass(frozen=True, eq=False)
class Coordinates:
    """y = `into` x: the first `dimension` entries are the subspace, the others the rest.

    Each machine's state q has a representative `centres` (Q, N) in the new coordinates, a functional `scales` (Q, d)
    that says how long a state is, and an inner product `metrics`^T `metrics` (Q, d, d) on the subspace.
    """

    into: Floats  # (N, N)
    back: Floats  # (N, N): nearly its inverse
    dimension: int
    centres: Floats
    scales: Floats
    metrics: Floats
    factors: Floats  # (V,): what each symbol multiplies the scale by, about


def choose_coordinates(system: LinearSystem, generator: np.random.Generator) -> Coordinates | None:
    """The coordinates, or None where the states of the model do not lie as those of the machine should."""
    try:
        with np.errstate(all="ignore"):
            found = _geometry(system, generator)
    except np.linalg.LinAlgError:
        return None
    arrays = (found.into, found.back, found.centres, found.scales, found.metrics, found.factors)
    return found if all(np.isfinite(array).all() for array in arrays) else None


def _geometry(system: LinearSystem, generator: np.random.Generator) -> Coordinates:
    here, symbol, there = system.asked.edges
    A = system.A
    centres, states = walked(system, generator)
    grown = np.einsum("ei,eij,ej->e", centres[there], A[symbol], centres[here])
    grown /= np.square(centres[there]).sum(1)
    centres = centres * _gauge(np.log(np.maximum(grown, 1e-9)), here, symbol, there, len(centres), len(A))[:, None]
    grown = np.einsum("ei,eij,ej->e", centres[there], A[symbol], centres[here]) / np.square(centres[there]).sum(1)
    factors = np.array([np.median(grown[symbol == s]) if (symbol == s).any() else 1.0 for s in range(len(A))])
    factors = np.where(factors > 0, factors, 1.0)
    unit = A / factors[:, None, None]
    right, d = _subspace(states)
    left = _left(unit, right)
    across = np.linalg.svd(right.T, full_matrices=True)[2][d:]  # (N - d, N): zero on the subspace
    into = np.concatenate([left, across])
    back = np.linalg.inv(into)
    inner = into @ unit @ back
    rest = np.linalg.cholesky(_shrinking(inner[:, d:, d:])).T
    y = centres @ left.T
    scales = _scales(inner[:, :d, :d], y, here, symbol, there)
    metrics = _metrics(inner[:, :d, :d], y, scales, here, symbol, there)
    # The mean inner product becomes the plain one.
    whole = np.linalg.cholesky(metrics.mean(0)).T
    into = np.concatenate([whole @ left, rest @ across])
    back = np.linalg.inv(into)
    undo = np.linalg.inv(whole)
    own = np.linalg.cholesky(undo.T @ metrics @ undo)
    return Coordinates(into, back, d, centres @ into.T, scales @ undo, np.swapaxes(own, 1, 2).copy(), factors)


def walked(system: LinearSystem, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """The mean direction in which strings leave each of the machine's states (Q, N), and directions late in them."""
    asked, A = system.asked, system.A
    table, n_states = asked.table, len(asked.table)
    x = np.tile(system.x0 / np.linalg.norm(system.x0), (STRINGS, 1))
    q = np.full(STRINGS, asked.start)
    sums, counts = np.zeros((n_states, A.shape[-1])), np.zeros(n_states)
    early = _shortest(system)
    late = []
    choices = [np.flatnonzero(row != DEAD) for row in table]
    degree = np.array([len(row) for row in choices])
    padded = np.array([np.resize(row, max(degree.max(), 1)) for row in choices])
    for place in range(PLACES):
        s = padded[q, (generator.random(STRINGS) * degree[q]).astype(np.int64)]
        after = np.empty_like(x)
        for symbol in np.unique(s):
            after[s == symbol] = x[s == symbol] @ A[symbol].T
        x = after / np.linalg.norm(after, axis=1, keepdims=True)
        q = table[q, s]
        if (degree[q] == 0).any():  # the valid strings are finite
            q = np.where(degree[q] == 0, asked.start, q)
            x[q == asked.start] = system.x0 / np.linalg.norm(system.x0)
            continue
        if place >= PLACES // 2:
            np.add.at(sums, q, x)
            np.add.at(counts, q, 1)
            late.append(x)
    centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], early)
    return centres, np.concatenate(late) if late else early


def _shortest(system: LinearSystem) -> Floats:
    """The direction after a shortest string to each of the machine's states: (Q, N)."""
    found: dict[int, Floats] = {system.asked.start: system.x0 / np.linalg.norm(system.x0)}
    queue = [system.asked.start]
    for q in queue:
        for symbol, ahead in enumerate(system.asked.table[q]):
            if ahead != DEAD and int(ahead) not in found:
                x = system.A[symbol] @ found[q]
                found[int(ahead)] = x / np.linalg.norm(x)
                queue.append(int(ahead))
    return np.stack([found[q] for q in range(len(system.asked.table))])


def _gauge(logs: Floats, here: Ints, symbol: Ints, there: Ints, n_states: int, n_symbols: int) -> Floats:
    """Lengths for the representatives with which each symbol stretches all of them alike, by least squares: (Q,)."""
    system = np.zeros((len(here), n_states + n_symbols))
    rows = np.arange(len(here))
    system[rows, here] += 1
    system[rows, there] -= 1
    system[rows, n_states + symbol] = -1
    logs_of = np.linalg.lstsq(system, -logs, rcond=None)[0][:n_states]
    return np.asarray(np.exp(logs_of))


def _subspace(states: Floats) -> tuple[Floats, int]:
    """An orthonormal basis (N, d) of what the states use: up to the widest gap between singular values."""
    n = states.shape[1]
    used, turned = np.linalg.svd(states, full_matrices=False)[1:]
    vectors, used = turned.T, used / used[0]
    gaps = np.where(used[:-1] > LEAST_USED, used[:-1] / np.maximum(used[1:], 1e-9), 0)
    d = int(gaps.argmax()) + 1 if n > 1 and gaps.max() > 3 else n
    return vectors[:, :d], d


def _left(unit: Floats, right: Floats) -> Floats:
    """Functionals (d, N) on which long words act most: the rest then matters least to the subspace (N, d)."""
    n, d = right.shape
    total = np.eye(n)
    for _ in range(60):
        total = (np.swapaxes(unit, 1, 2) @ total @ unit).sum(0)
        total /= np.trace(total)
    total = total / np.linalg.norm(total, 2) + 1e-3 * right @ right.T  # where they act on less than all of it
    return np.asarray(np.linalg.eigh(total)[1][:, ::-1][:, :d].T)


def _shrinking(rest: Floats) -> Floats:
    """An inner product (N - d, N - d) in which a symbol shrinks the rest on average; the plain one where none does."""
    n = rest.shape[-1]
    term, total = np.eye(n), np.zeros((n, n))
    for _ in range(500):
        total += term
        term = np.swapaxes(rest, 1, 2) @ term @ rest
        term = term.mean(0)
        size = np.trace(term)
        if size < 1e-6 * n:
            return np.asarray(total / max(np.trace(total) / n, 1e-9)) if n else total
        if not size < 1e4 * n:
            break
    return np.eye(n)


def _scales(A: Floats, y: Floats, here: Ints, symbol: Ints, there: Ints) -> Floats:
    """Functionals (Q, d), 1 on the representatives, that each symbol carries into one another as well as may be."""
    scales = y / np.square(y).sum(1, keepdims=True)
    degree = np.bincount(here, minlength=len(y))
    ends = degree == 0
    for _ in range(100):
        carried = np.einsum("eij,ei->ej", A[symbol], scales[there])
        carried /= (carried * y[here]).sum(1, keepdims=True)
        new = np.zeros_like(scales)
        np.add.at(new, here, carried / degree[here][:, None])
        scales = np.where(ends[:, None], scales, new)
        scales /= (scales * y).sum(1, keepdims=True)
    return np.asarray(scales)


def _metrics(A: Floats, y: Floats, scales: Floats, here: Ints, symbol: Ints, there: Ints) -> Floats:
    """Inner products (Q, d, d), averaged over the words that may follow; summed over them where that is finite."""
    n_states, d = y.shape
    grown = np.einsum("ei,eij,ej->e", scales[there], A[symbol], y[here])
    flat = np.eye(d) - y[:, :, None] * scales[:, None, :]  # along each representative nothing is measured
    steps = flat[there] @ A[symbol] @ flat[here] / grown[:, None, None]
    degree = np.bincount(here, minlength=n_states)
    rounds = int(np.clip(MOST_WORK / (4 * len(here) * d**3), 10, 600))

    def summed(term: Floats, weights: Floats) -> tuple[Floats, bool]:
        """The sum of what words of each length make of a term, and whether it came to an end."""
        total = np.zeros((n_states, d, d))
        for _ in range(rounds):
            total += term
            new = np.zeros_like(term)
            np.add.at(new, here, np.swapaxes(steps, 1, 2) @ term[there] @ steps * weights[:, None, None])
            term = new
            size = np.trace(term, axis1=1, axis2=2).max()
            if size < 1e-9:
                return total, True
            if not size < 1e6:
                break
        return total, False

    plain = np.tile(np.eye(d), (n_states, 1, 1))
    total, finite = summed(plain, np.ones(len(here)))
    if not finite:
        total = summed(plain, 1 / degree[here])[0]
    total = np.swapaxes(flat, 1, 2) @ total @ flat
    total /= max(np.trace(total.mean(0)) / d, 1e-12)
    total = total + scales[:, :, None] * scales[:, None, :]
    return np.asarray((total + np.swapaxes(total, 1, 2)) / 2)
