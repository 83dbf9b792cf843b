"""Choose coordinates in which the symbols of a trained model act nearly as isometries.

The states that strings lead to lie close to a subspace that every symbol nearly maps to itself. With an inner product
averaged over the words of the machine, each symbol is nearly an isometry of that subspace; the remaining part of the
state shrinks. The choice is made in plain float64 and needs no guarantee: `transformed_system` proves what holds in
any coordinates, and a poor choice only makes the proved length shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.linear_system import LinearSystem
from sdssm.exact.certification.trim_machine import DEAD
from sdssm.exact.errors import ExactError
from sdssm.exact.watch import UNWATCHED, Watch

#: Number and length of the random strings that show where the states lie.
STRINGS, LENGTH = 512, 64
#: Directions with a singular value below this fraction of the largest one are not part of the subspace.
LEAST_USED = 1e-3
#: If the projection shortens a direction of the subspace to less than this, an orthogonal one is taken instead.
LEAST_KEPT = 0.1
#: Approximate limit on the number of multiplications for averaging the inner products.
MOST_WORK = 4e9
#: Limits on the entries of a state, and on the bytes of the inner products and of the machine's transitions.
MOST_ENTRIES, MOST_BYTES = 2_048, 16 << 30


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A change of coordinates y = `forward` x; the first `dimension` entries of y are the subspace.

    Each machine state q has a representative `centres` (Q, N) in the new coordinates, a functional `functionals` (Q, d)
    that measures the length of a state, and an inner product `metrics`^T `metrics` (Q, d, d) on the subspace.
    """

    forward: Floats  # (N, N)
    backward: Floats  # (N, N): approximate inverse of `forward`
    dimension: int
    centres: Floats
    functionals: Floats
    metrics: Floats
    factors: Floats  # (V,): approximate factor by which each symbol multiplies the length of a state


def check_proof_size(system: LinearSystem, dimension: int | None = None) -> None:
    """Raise an error if a proof for rounded states of `dimension` entries would take too much memory."""
    entries, (n_states, n_symbols) = system.A.shape[-1], system.machine.table.shape
    advice = "replace it by an exact model with sdssm snap, whose proof needs no such bounds"
    if entries > MOST_ENTRIES:
        raise ExactError(
            f"the states of the model have {entries:,} entries that are not whole numbers; a proof is limited to "
            f"{MOST_ENTRIES:,} of them, so certify a smaller model, or {advice}"
        )
    needed = 0 if dimension is None else 8 * dimension**2 * n_states * (10 + 4 * n_symbols)
    if needed > MOST_BYTES:
        raise ExactError(
            f"a proof for {n_states:,} states and {n_symbols:,} symbols needs about {needed / 2**30:,.0f} GiB of "
            f"memory, and the limit is {MOST_BYTES >> 30} GiB; certify a smaller machine, or {advice}"
        )


def choose_coordinates(
    system: LinearSystem, generator: np.random.Generator, watch: Watch = UNWATCHED
) -> Coordinates | None:
    """Return coordinates for a system, or None if its states do not cluster by the states of the machine."""
    try:
        with np.errstate(all="ignore"):
            chosen = _choose(system, generator, watch)
    except np.linalg.LinAlgError:
        return None
    arrays = (chosen.forward, chosen.backward, chosen.centres, chosen.functionals, chosen.metrics, chosen.factors)
    return chosen if all(np.isfinite(array).all() for array in arrays) else None


def _choose(system: LinearSystem, generator: np.random.Generator, watch: Watch) -> Coordinates:
    watch.start("choose coordinates", total=4)
    source, symbol, target = system.machine.edges
    A = system.A
    centres, states = sample_states(system, generator)
    growth = np.einsum("ei,eij,ej->e", centres[target], A[symbol], centres[source])
    growth /= np.square(centres[target]).sum(1)
    lengths = _balanced_lengths(np.log(np.maximum(growth, 1e-9)), source, symbol, target, len(centres), len(A))
    centres = centres * lengths[:, None]
    growth = np.einsum("ei,eij,ej->e", centres[target], A[symbol], centres[source]) / np.square(centres[target]).sum(1)
    factors = np.array([np.median(growth[symbol == s]) if (symbol == s).any() else 1.0 for s in range(len(A))])
    factors = np.where(factors > 0, factors, 1.0)
    unit = A / factors[:, None, None]
    basis, d = _subspace(states)
    check_proof_size(system, d)
    watch.check()
    projection = _projection(unit, basis)
    watch.update(1)
    complement = np.linalg.svd(basis.T, full_matrices=True)[2][d:]  # (N - d, N): zero on the subspace
    forward = np.concatenate([projection, complement])
    backward = np.linalg.inv(forward)
    inner = forward @ unit @ backward
    rest = np.linalg.cholesky(_contracting_metric(inner[:, d:, d:])).T
    watch.check()
    watch.update(2)
    y = centres @ projection.T
    functionals = _functionals(inner[:, :d, :d], y, source, symbol, target)
    watch.check()
    watch.update(3)
    metrics = _metrics(inner[:, :d, :d], y, functionals, source, symbol, target, watch)
    # Change the basis so that the mean inner product becomes the standard one.
    whitening = np.linalg.cholesky(metrics.mean(0)).T
    forward = np.concatenate([whitening @ projection, rest @ complement])
    backward = np.linalg.inv(forward)
    unwhitening = np.linalg.inv(whitening)
    factored = np.linalg.cholesky(unwhitening.T @ metrics @ unwhitening)
    return Coordinates(
        forward=forward,
        backward=backward,
        dimension=d,
        centres=centres @ forward.T,
        functionals=functionals @ unwhitening,
        metrics=np.swapaxes(factored, 1, 2).copy(),
        factors=factors,
    )


def sample_states(system: LinearSystem, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the mean direction in each machine state (Q, N), and directions late in strings (B, N)."""
    machine, A = system.machine, system.A
    table, n_states = machine.table, len(machine.table)
    x = np.tile(system.x0 / np.linalg.norm(system.x0), (STRINGS, 1))
    q = np.full(STRINGS, machine.start)
    sums, counts = np.zeros((n_states, A.shape[-1])), np.zeros(n_states)
    early = _directions_after_shortest(system)
    late = []
    choices = [np.flatnonzero(row != DEAD) for row in table]
    degree = np.array([len(row) for row in choices])
    padded = np.array([np.resize(row, max(degree.max(), 1)) for row in choices])
    for position in range(LENGTH):
        s = padded[q, (generator.random(STRINGS) * degree[q]).astype(np.int64)]
        after = np.empty_like(x)
        for symbol in np.unique(s):
            after[s == symbol] = x[s == symbol] @ A[symbol].T
        x = after / np.linalg.norm(after, axis=1, keepdims=True)
        q = table[q, s]
        if (degree[q] == 0).any():  # some strings cannot be continued: restart them
            q = np.where(degree[q] == 0, machine.start, q)
            x[q == machine.start] = system.x0 / np.linalg.norm(system.x0)
            continue
        if position >= LENGTH // 2:
            np.add.at(sums, q, x)
            np.add.at(counts, q, 1)
            late.append(x)
    centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], early)
    return centres, np.concatenate(late) if late else early


def _directions_after_shortest(system: LinearSystem) -> Floats:
    """Return the direction of the state after a shortest string to each machine state: (Q, N)."""
    machine = system.machine
    directions: dict[int, Floats] = {machine.start: system.x0 / np.linalg.norm(system.x0)}
    queue = [machine.start]
    for q in queue:
        for symbol, successor in enumerate(machine.table[q]):
            if successor != DEAD and int(successor) not in directions:
                x = system.A[symbol] @ directions[q]
                directions[int(successor)] = x / np.linalg.norm(x)
                queue.append(int(successor))
    return np.stack([directions[q] for q in range(len(machine.table))])


def _balanced_lengths(
    log_growth: Floats, source: Ints, symbol: Ints, target: Ints, n_states: int, n_symbols: int
) -> Floats:
    """Return lengths of the representatives such that each symbol stretches all of them equally: (Q,).

    The lengths solve a least-squares problem in the logarithms.
    """
    equations = np.zeros((len(source), n_states + n_symbols))
    rows = np.arange(len(source))
    equations[rows, source] += 1
    equations[rows, target] -= 1
    equations[rows, n_states + symbol] = -1
    log_lengths = np.linalg.lstsq(equations, -log_growth, rcond=None)[0][:n_states]
    return np.asarray(np.exp(log_lengths))


def _subspace(states: Floats) -> tuple[Floats, int]:
    """Return an orthonormal basis (N, d) up to the widest gap of the states' singular values, and d."""
    n = states.shape[1]
    used, transposed = np.linalg.svd(states, full_matrices=False)[1:]
    vectors, used = transposed.T, used / used[0]
    gaps = np.where(used[:-1] > LEAST_USED, used[:-1] / np.maximum(used[1:], 1e-9), 0)
    d = int(gaps.argmax()) + 1 if n > 1 and gaps.max() > 3 else n
    return vectors[:, :d], d


def _projection(unit: Floats, basis: Floats) -> Floats:
    """Return the functionals (d, N) that long words amplify most and the complement affects least.

    The projection is orthogonal if words amplify the complement more than the subspace, as they do if matrices start
    near the identity: the functionals would be almost zero on the subspace, and the coordinates ill-conditioned.
    """
    n, d = basis.shape
    total = np.eye(n)
    for _ in range(60):
        total = (np.swapaxes(unit, 1, 2) @ total @ unit).sum(0)
        total /= np.trace(total)
    # The second term decides between directions that the words do not act on.
    total = total / np.linalg.norm(total, 2) + 1e-3 * basis @ basis.T
    amplified = np.asarray(np.linalg.eigh(total)[1][:, ::-1][:, :d].T)
    kept = np.linalg.svd(amplified @ basis, compute_uv=False)
    return amplified if kept.min() >= LEAST_KEPT else basis.T.copy()


def _contracting_metric(rest: Floats) -> Floats:
    """Return an inner product (N - d, N - d) in which symbols contract the complement on average.

    It is the identity if the sum that defines it does not converge.
    """
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


def _functionals(A: Floats, y: Floats, source: Ints, symbol: Ints, target: Ints) -> Floats:
    """Return functionals (Q, d) that are 1 on the representatives and nearly invariant under the symbols."""
    functionals = y / np.square(y).sum(1, keepdims=True)
    degree = np.bincount(source, minlength=len(y))
    final = degree == 0
    for _ in range(100):
        pulled_back = np.einsum("eij,ei->ej", A[symbol], functionals[target])
        pulled_back /= (pulled_back * y[source]).sum(1, keepdims=True)
        mean = np.zeros_like(functionals)
        np.add.at(mean, source, pulled_back / degree[source][:, None])
        functionals = np.where(final[:, None], functionals, mean)
        functionals /= (functionals * y).sum(1, keepdims=True)
    return np.asarray(functionals)


def _metrics(
    A: Floats, y: Floats, functionals: Floats, source: Ints, symbol: Ints, target: Ints, watch: Watch
) -> Floats:
    """Return inner products (Q, d, d), summed over continuations if that is finite, else averaged."""
    n_states, d = y.shape
    growth = np.einsum("ei,eij,ej->e", functionals[target], A[symbol], y[source])
    flat = np.eye(d) - y[:, :, None] * functionals[:, None, :]  # projects out the representative of each state
    steps = flat[target] @ A[symbol] @ flat[source] / growth[:, None, None]
    degree = np.bincount(source, minlength=n_states)
    rounds = int(np.clip(MOST_WORK / (4 * len(source) * d**3), 10, 600))

    def sum_over_words(term: Floats, weights: Floats) -> tuple[Floats, bool]:
        """Sum a term over the words of all lengths, and say whether the sum converged."""
        total = np.zeros((n_states, d, d))
        for done in range(rounds):
            watch.update(3 + done / rounds)
            watch.check()
            total += term
            longer = np.zeros_like(term)
            np.add.at(longer, source, np.swapaxes(steps, 1, 2) @ term[target] @ steps * weights[:, None, None])
            term = longer
            size = np.trace(term, axis1=1, axis2=2).max()
            if size < 1e-9:
                return total, True
            if not size < 1e6:
                break
        return total, False

    identity = np.tile(np.eye(d), (n_states, 1, 1))
    total, converged = sum_over_words(identity, np.ones(len(source)))
    if not converged:
        total = sum_over_words(identity, 1 / degree[source])[0]
    total = np.swapaxes(flat, 1, 2) @ total @ flat
    total /= max(np.trace(total.mean(0)) / d, 1e-12)
    total = total + functionals[:, :, None] * functionals[:, None, :]
    return np.asarray((total + np.swapaxes(total, 1, 2)) / 2)
