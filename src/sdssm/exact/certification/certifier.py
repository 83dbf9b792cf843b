"""`certify`: prove a length up to which a model classifies every valid string correctly.

The model is represented by the numbers that its layer computes with: the float32 matrices of the symbols, mixed and
normalised once, the float32 start state and the float32 weights of the readout. For these numbers two statements are
proved. In exact arithmetic the labels are correct up to `horizon`. If the matrices are applied one after the other and
every operation, including those of the readout, is rounded to float32, the labels are correct up to `float_horizon`,
in any order of summation. Every bound is computed in float64 and accounts for its own rounding (`ball_arithmetic`).

The proof has up to three parts. All short strings are checked one by one (`exhaustive`). Longer ones are bounded from
there (`proved_length`, with the inequality of `transformed_system` in the coordinates of `coordinates`). If the numbers
are integers, a finite search may prove every length (`integer_orbit`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.exact.certification.certificate import Certificate, Misclassified
from sdssm.exact.certification.coordinates import check_proof_size, choose_coordinates
from sdssm.exact.certification.counterexamples import find_counterexample
from sdssm.exact.certification.exhaustive import ExhaustiveResult, ExhaustiveSearch, affordable_length
from sdssm.exact.certification.integer_orbit import find_orbit
from sdssm.exact.certification.linear_system import LinearSystem, build_system
from sdssm.exact.certification.proved_length import float_range_length, prove_length
from sdssm.exact.certification.readout_bounds import ReadoutBounds
from sdssm.exact.certification.transformed_system import TransformedSystem
from sdssm.exact.errors import ExactError, TimeIsUpError
from sdssm.exact.sources import MachineSource, ModelSource, load_source, resolve_machine, resolve_task
from sdssm.exact.watch import UNWATCHED, Watch, open_watch
from sdssm.models import Classifier
from sdssm.progress import ProgressOption
from sdssm.settings import check_at_least
from sdssm.tasks import Task

#: A float horizon that the orbit search could not decide.
UNDECIDED = -1
#: Limits for words: how many matrices are multiplied out, how many transitions of the machine by such words there are,
#: and how many multiplications it takes to transform them.
MOST_WORDS, MOST_EDGES, MOST_WORK = 512, 1 << 16, 1 << 31
#: Limit on the symbols of a word.
LONGEST_WORD = 16


def certify(
    model: ModelSource,
    machine: MachineSource | None = None,
    valid: MachineSource | None = None,
    *,
    strings: int = 1 << 17,
    longest: int = 1_000_000,
    search: int = 1_000,
    seed: int = 0,
    max_seconds: float | None = None,
    progress: ProgressOption = False,
) -> Certificate:
    """Prove a length up to which the model predicts the machine's output after every valid string.

    Args:
        model: a single SD-SSM, a run, or the folder of either. A model with an input matrix B, a bias or several layers
            is refused, because its prediction depends on more than the direction of one state.
        machine: what the model should emulate: a name, a task, or a machine. By default the task of the run, or the
            one that the model was saved with.
        valid: the machine of valid strings. By default those of the task; every string if `machine` is a `Machine`.
        strings: limit on the strings that are checked one by one.
        longest: the length at which counting stops, unless every length is proved.
        search: if the horizon is finite, search for a misclassified string up to this length; 0 for no search.
        seed: of the random strings.
        max_seconds: stop about then, and return what is proved so far.
        progress: True shows how far the proof is; a function receives every `ProgressEvent`.

    >>> from sdssm.exact import compile
    >>> print(certify(compile("parity")))
    parity: every valid string is proved to be classified correctly
    arithmetic                 proved up to length
    exact                             every length
    float32, symbol by symbol         every length
    Why: its states are whole numbers, only 2 different ones occur, and each has the correct label.
    """
    check_at_least("strings", strings, 1)
    check_at_least("longest", longest, 1)
    check_at_least("search", search, 0)
    source = load_source(model)
    if isinstance(machine, Machine):  # the machine alone: every string is valid unless `valid` says otherwise
        task, valid_strings = resolve_task(machine), resolve_machine(valid)
    else:
        task = source.find_task(machine, "certify")
        valid_strings = task.valid if valid is None else resolve_machine(valid)
    with open_watch(f"certify {source.name}", progress, max_seconds) as watch:
        return certify_machine(
            source.model,
            replace(task, valid=valid_strings),
            strings=strings,
            longest=longest,
            search=search,
            seed=seed,
            watch=watch,
        )


def certify_machine(
    model: Classifier,
    task: Task,
    *,
    strings: int = 1 << 17,
    longest: int = 1_000_000,
    search: int = 1_000,
    seed: int = 0,
    watch: Watch = UNWATCHED,
) -> Certificate:
    """Certify a model for the machine and the valid strings of a task; the arguments are those of `certify`."""
    watch.start("read the weights")
    system = build_system(model, task.machine, task.valid)
    certificate = _certify_by_orbit(system, watch)
    if certificate is None:
        certificate = _certify_by_bounds(system, strings, longest, np.random.default_rng(seed), watch)
    elif certificate.float_horizon == UNDECIDED:
        try:
            bounded = _certify_by_bounds(system, strings, longest, np.random.default_rng(seed), watch)
            float_horizon = _shorter(certificate.horizon, bounded.float_horizon)
        except ExactError:  # too large for these bounds: what holds in exact arithmetic stays proved
            float_horizon = 0
        certificate = replace(certificate, float_horizon=float_horizon)
    if not system.is_in_float32_range:
        reason = f"{certificate.reason}; some of its numbers may overflow or underflow in float32"
        certificate = replace(certificate, float_horizon=0, reason=reason)
    certificate = replace(certificate, task=task.name)
    counterexample = certificate.counterexample
    if certificate.horizon is not None and counterexample is None and search:
        generator = torch.Generator().manual_seed(seed)
        counterexample, searched = find_counterexample(model, system.machine, search, generator, watch)
        certificate = replace(certificate, counterexample=counterexample, searched=searched)
    if counterexample is None:
        return certificate
    return replace(certificate, misclassified=describe_misclassified(model, system, task.machine, counterexample))


def describe_misclassified(
    model: Classifier, system: LinearSystem, machine: Machine, string: tuple[int, ...]
) -> Misclassified:
    """Return a misclassified string with its labels.

    The prediction is that of the model itself, unless it is correct and only exact arithmetic gives another.
    """
    correct = machine.output(string)
    with torch.inference_mode():
        tokens = torch.tensor([string], device=model.readout.weight.device)
        predicted = int(model.advance(tokens)[0][0, -1].argmax())
    computed_exactly = predicted == correct
    if computed_exactly:
        x = system.x0
        for symbol in string:
            x = system.A[symbol] @ x
            x = x / np.abs(x).max()
        predicted = int((system.rows @ x).argmax())
    return Misclassified(string, machine.decode(string), predicted, correct, computed_exactly)


def _certify_by_orbit(system: LinearSystem, watch: Watch) -> Certificate | None:
    """Certify a model of integers whose directions are finite in number; None if it is not one."""
    orbit = find_orbit(system, rounded=False, watch=watch)
    if orbit is None:
        return None
    states, length = len(system.machine.table), orbit.length
    if not orbit.is_complete:
        margin = orbit.margin if np.isfinite(orbit.margin) else None
        return Certificate(length, 0, length, True, watch.stop_reason, margin=margin, states=states, stopped=True)
    rounded = find_orbit(system, rounded=True, watch=watch)
    float_horizon: int | None = UNDECIDED if rounded is None else rounded.length
    if orbit.counterexample is not None:
        reason = f"a string of length {length + 1} is misclassified"
        float_horizon = _shorter(length, float_horizon)
        return Certificate(length, float_horizon, length, True, reason, orbit.counterexample, states=states)
    if rounded is not None and rounded.is_complete and rounded.counterexample is None:
        float_horizon = None
    different = f"only {orbit.n_pairs:,} different ones occur" if orbit.n_pairs > 1 else "only one occurs"
    reason = f"its states are whole numbers, {different}, and each has the correct label"
    stopped = rounded is not None and not rounded.is_complete
    return Certificate(
        None, float_horizon, 0, True, reason, residual=0.0, margin=orbit.margin, states=states, stopped=stopped
    )


def _certify_by_bounds(
    system: LinearSystem, strings: int, longest: int, generator: np.random.Generator, watch: Watch
) -> Certificate:
    """Certify a model by checking short strings and bounding the states of longer ones."""
    states = len(system.machine.table)
    try:
        check_proof_size(system)
        coordinates = choose_coordinates(system, generator, watch)
        transformed = None if coordinates is None else TransformedSystem.build(system, coordinates, watch)
        if transformed is None:
            reason = "the states of the model do not form one cluster for each state of the machine"
            return Certificate(0, 0, 0, False, reason, states=states)
        word = _word_length(system, transformed.coordinates.dimension)
        watch.start("bound the drift of the states")
        by_symbol = transformed.error_recurrence(1, rounded=False)
        by_word = by_symbol if word == 1 else transformed.error_recurrence(word, rounded=False)
    except TimeIsUpError:
        return Certificate(0, 0, 0, False, watch.stop_reason, states=states, stopped=True)
    checked, n_strings = affordable_length(transformed, strings)
    norms = _extend_norms(transformed.word_matrices(word)[1], checked + 1)
    watch.start("check short strings", total=n_strings, unit="strings")
    results = ExhaustiveSearch(transformed, checked, norms, watch).run()
    readout = ReadoutBounds(transformed)
    exact = prove_length(readout, results[False], [by_symbol, by_word], longest, rounded=False, watch=watch)
    float_horizon = _float_horizon(transformed, readout, results[True], word, longest, watch)
    residual, all_norms = by_symbol.r1.max(), (float(by_symbol.n11.max()), float(by_word.n11.max()))
    return Certificate(
        horizon=exact.length,
        float_horizon=_shorter(exact.length, float_horizon),
        exhaustive=results[False].length,
        exact=False,
        reason=exact.reason,
        counterexample=results[False].counterexample,
        residual=float(residual) if np.isfinite(residual) else None,
        norms=all_norms if np.isfinite(all_norms).all() else None,
        margin=readout.margin,
        dimension=transformed.coordinates.dimension,
        word=word,
        states=states,
        stopped=exact.stopped,
    )


def _float_horizon(
    transformed: TransformedSystem,
    readout: ReadoutBounds,
    exhaustive: ExhaustiveResult,
    word: int,
    longest: int,
    watch: Watch,
) -> int | None:
    """Return the length that is proved with float32 rounding.

    If the time is up before longer strings are bounded, it is the length of the strings that were checked one by one.
    States that are never rescaled may leave the range of float32, so nothing is claimed for them then.
    """
    try:
        watch.check()
        recurrences = [transformed.error_recurrence(m, rounded=True) for m in sorted({1, word})]
    except TimeIsUpError:
        return exhaustive.length if transformed.system.rescale else 0
    rounded = prove_length(readout, exhaustive, recurrences, longest, rounded=True, watch=watch)
    if transformed.system.rescale:
        return rounded.length
    return _shorter(rounded.length, float_range_length(transformed, recurrences[0], rounded.largest_errors))


def _word_length(system: LinearSystem, d: int) -> int:
    """Return the length of the longest words whose matrices fit into the budget.

    d: the dimension of the subspace.
    """
    n_symbols, n_states = len(system.A), len(system.machine.table)
    for m in range(1, LONGEST_WORD):
        words = n_symbols ** (m + 1)
        if words > MOST_WORDS or words * n_states > MOST_EDGES or 8 * words * n_states * d**3 > MOST_WORK:
            return m
    return LONGEST_WORD


def _extend_norms(norms: list[float], count: int) -> list[float]:
    """Bound the norms of longer words by products of the norms of their parts."""
    norms = list(norms)
    while len(norms) < count:
        k = len(norms)
        norms.append(min(norms[j] * norms[k - j] for j in range(1, k // 2 + 1)) * (1 + 1e-12) if k > 1 else np.inf)
    return norms


def _shorter(horizon: int | None, other: int | None) -> int | None:
    """Return the shorter of two horizons, of which None is the longest."""
    return other if horizon is None else horizon if other is None else min(horizon, other)
