"""`certify`: prove a length up to which a model classifies every valid string correctly.

The model is represented by the numbers that its layer computes with: the float32 matrices of the symbols, mixed and
normalised once, the float32 start state and the float32 weights of the readout. For these numbers two statements are
proved. In exact arithmetic the labels are correct up to `horizon`. If the matrices are applied one after the other and
every operation, including those of the readout, is rounded to float32, the labels are correct up to `float_horizon`,
in any order of summation. Every bound is computed in float64 and accounts for its own rounding (`ball_arithmetic`).

The proof has up to three parts. All short strings are checked one by one (`exhaustive`). Longer ones are bounded from
there (`bounded_states`, with the inequality of `transformed_system` in the coordinates of `coordinates`). If the
numbers are integers, a finite search may prove every length (`integer_orbit`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.exact.certification.bounded_states import certify_by_bounds
from sdssm.exact.certification.certificate import Certificate, Misclassified
from sdssm.exact.certification.counterexamples import find_counterexample
from sdssm.exact.certification.integer_orbit import find_orbit
from sdssm.exact.certification.linear_system import LinearSystem, build_system
from sdssm.exact.certification.prototype_proof import certify_snapped
from sdssm.exact.certification.trim_machine import TrimMachine
from sdssm.exact.defaults import LONGEST_PROOF, LONGEST_SEARCH, SHORT_STRINGS
from sdssm.exact.errors import ExactError, TimeIsUpError
from sdssm.exact.sources import MachineSource, ModelSource, load_source, resolve_machine
from sdssm.exact.watch import Watch, open_watch
from sdssm.models import Classifier, TokenModel
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.models.wrapped_module import WrappedModule
from sdssm.progress import ProgressOption
from sdssm.settings import check_at_least
from sdssm.tasks import Task, get_task

#: Why nothing is proved in float32.
OUT_OF_RANGE = "some numbers of the model may overflow or underflow"
TOO_LARGE = "the model is too large for bounds on its rounding errors"


def certify(
    model: ModelSource,
    machine: MachineSource | None = None,
    valid: MachineSource | None = None,
    *,
    strings: int = SHORT_STRINGS,
    longest: int = LONGEST_PROOF,
    search: int = LONGEST_SEARCH,
    seed: int = 0,
    trust: bool = False,
    max_seconds: float | None = None,
    progress: ProgressOption = False,
) -> Certificate:
    """Prove a length up to which the model predicts the machine's output after every valid string.

    Args:
        model: a single SD-SSM, a run, or the folder of either. A model with an input matrix B, a bias or several layers
            is refused, because its prediction depends on more than the direction of one state. A model with prototypes
            (`snap` with `every`) is proved for every length or not at all.
        machine: what the model should emulate: a name, a task, or a machine. By default the task of the run, or the
            one that the model was saved with.
        valid: the machine of valid strings. By default those of the task; every string if `machine` is a `Machine`.
        strings: limit on the strings that are checked one by one.
        longest: the length at which counting stops, unless every length is proved.
        search: if the horizon is finite, search for a misclassified string up to this length; 0 for no search.
        seed: of the random strings.
        trust: import the code of a model that is not part of this package, as its folder names it.
        max_seconds: stop about then, and return what is proved so far.
        progress: True shows how far the proof is; a function receives every `ProgressEvent`.

    >>> from sdssm.exact import compile
    >>> print(certify(compile("parity")))
    parity: every valid string is proved to be classified correctly
    arithmetic                 proved up to length
    exact                             every length
    float32, symbol by symbol         every length
    Why: its states are whole numbers, and all 2 pairs of its state and the machine's have the correct label.
    """
    check_at_least("strings", strings, 1)
    check_at_least("longest", longest, 1)
    check_at_least("search", search, 0)
    source = load_source(model, machine, function="certify", trust=trust)
    module = getattr(source.model, "module", None)
    has_prototypes = isinstance(module, SnappedRecurrence)
    classifier = None if has_prototypes else source.classifier
    if isinstance(machine, Machine):  # the machine alone: every string is valid unless `valid` says otherwise
        task, valid_strings = get_task(machine), resolve_machine(valid)
    else:
        task = source.find_task(machine, "certify")
        valid_strings = task.valid if valid is None else resolve_machine(valid)
    task = replace(task, valid=valid_strings)
    with open_watch(f"certify {source.name}", progress, max_seconds) as watch:
        if classifier is None:
            certificate = _certify_prototypes(source.model, task, search, seed, watch)
        else:
            certificate = certify_machine(
                classifier, task, strings=strings, longest=longest, search=search, seed=seed, watch=watch
            )
    return replace(certificate, digest=task.digest)


def certify_machine(
    model: Classifier,
    task: Task,
    *,
    strings: int,
    longest: int,
    search: int,
    seed: int,
    watch: Watch,
) -> Certificate:
    """Certify a model for the machine and the valid strings of a task; the arguments are those of `certify`."""
    watch.start("read the weights")
    system = build_system(model, task.machine, task.valid)
    certificate = _certify_by_orbit(system, watch)
    if certificate is None:
        certificate = certify_by_bounds(system, strings, longest, np.random.default_rng(seed), watch)
    elif not certificate.stopped:
        certificate = _bound_float_horizon(certificate, system, strings, longest, np.random.default_rng(seed), watch)
    if not system.is_in_float32_range:
        certificate = replace(certificate, float_horizon=0, float_reason=OUT_OF_RANGE)
    if certificate.float_horizon == certificate.horizon:  # more could not be proved
        stopped = certificate.stopped and not certificate.only_float_stopped
        certificate = replace(certificate, stopped=stopped, float_reason=None, only_float_stopped=False)
    certificate = replace(certificate, task=task.name)
    string, predicted = certificate.counterexample, None
    if certificate.horizon is not None and string is None and search:
        generator = torch.Generator().manual_seed(seed)
        counterexample, searched = find_counterexample(model, system.machine, search, generator, watch)
        if counterexample is not None:
            string, predicted = counterexample
        certificate = replace(certificate, counterexample=string, searched=searched)
    if string is None:
        return certificate
    misclassified = describe_misclassified(model, system, task.machine, string, predicted)
    return replace(certificate, misclassified=misclassified)


def _certify_prototypes(model: TokenModel, task: Task, search: int, seed: int, watch: Watch) -> Certificate:
    """Certify a recurrence with prototypes (`snap` with `every`) for every length, or search a misclassified string."""
    assert isinstance(model, WrappedModule) and isinstance(model.module, SnappedRecurrence)
    try:
        certificate = certify_snapped(model.module, task.machine, task.name, watch)
    except TimeIsUpError:
        return Certificate(0, 0, 0, False, watch.stop_reason, task=task.name, stopped=True)
    if certificate.horizon is None or not search:
        return certificate
    trimmed = TrimMachine.build(task.machine, task.valid)
    counterexample, searched = find_counterexample(model, trimmed, search, torch.Generator().manual_seed(seed), watch)
    certificate = replace(certificate, searched=searched)
    if counterexample is None:
        return certificate
    string, predicted = counterexample
    correct = task.machine.output(string)
    misclassified = Misclassified(string, task.machine.decode(string), predicted, correct, False)
    return replace(certificate, counterexample=string, misclassified=misclassified)


def describe_misclassified(
    model: Classifier, system: LinearSystem, machine: Machine, string: tuple[int, ...], predicted: int | None = None
) -> Misclassified:
    """Return a misclassified string with its labels.

    The prediction is `predicted` if the model was seen to predict that: read in other pieces, it is rounded otherwise
    and may be correct. Without it the model reads the string, and if its prediction is correct, that of exact
    arithmetic counts.
    """
    correct = machine.output(string)
    if predicted is None:
        with torch.inference_mode():
            tokens = torch.tensor([string], device=model.readout.weight.device)
            predicted = int(model.advance(tokens)[0][0, -1].argmax())
    computed_exactly = predicted == correct
    if computed_exactly:
        x = system.x0
        for symbol in string:
            x = system.A[symbol] @ x
            x = x / np.abs(x).max()
        predicted = int(system.row_labels[(system.rows @ x).argmax()])
    return Misclassified(string, machine.decode(string), predicted, correct, computed_exactly)


def _certify_by_orbit(system: LinearSystem, watch: Watch) -> Certificate | None:
    """Certify a model of integers whose directions are finite in number; None if it is not one.

    The certificate claims the same for float32, which `_bound_float_horizon` then decides, unless the time is up.
    """
    orbit = find_orbit(system, rounded=False, watch=watch)
    if orbit is None:
        return None
    states, length = len(system.machine.table), orbit.length
    if not orbit.is_complete:
        margin, reason = orbit.margin if np.isfinite(orbit.margin) else None, watch.stop_reason
        return Certificate(
            length, 0, length, True, reason, margin=margin, states=states, stopped=True, float_reason=reason
        )
    if orbit.counterexample is not None:
        reason = _name_misclassified(length)
        return Certificate(length, length, length, True, reason, counterexample=orbit.counterexample, states=states)
    return Certificate(
        horizon=None,
        float_horizon=None,
        exhaustive=0,
        exact=True,
        reason=f"its states are whole numbers, and all {orbit.n_pairs:,} pairs of its state and the machine's have the "
        "correct label",
        residual=0.0,
        margin=orbit.margin,
        states=states,
    )


def _bound_float_horizon(
    certificate: Certificate,
    system: LinearSystem,
    strings: int,
    longest: int,
    generator: np.random.Generator,
    watch: Watch,
) -> Certificate:
    """Limit what is proved of a model of integers in exact arithmetic to what holds in float32."""
    orbit = find_orbit(system, rounded=True, watch=watch)
    length: int | None = None
    reason: str | None = None
    stopped = False
    if orbit is None:  # float32 rounds some states
        try:
            bounded = certify_by_bounds(system, strings, longest, generator, watch)
        except ExactError:  # what holds in exact arithmetic stays proved
            return replace(certificate, float_horizon=0, float_reason=TOO_LARGE)
        length, reason, stopped = bounded.float_horizon, bounded.float_reason, bounded.stopped
    elif not orbit.is_complete:
        length, reason, stopped = orbit.length, watch.stop_reason, True
    elif orbit.counterexample is not None:
        length, reason = orbit.length, _name_misclassified(orbit.length)
    return replace(
        certificate,
        float_horizon=_shorter(certificate.horizon, length),
        float_reason=reason,
        stopped=stopped,
        only_float_stopped=stopped,
    )


def _name_misclassified(horizon: int) -> str:
    """Return why a proof ends at a length, if a string of the next one is misclassified."""
    return f"a string of length {horizon + 1:,} is misclassified"


def _shorter(horizon: int | None, other: int | None) -> int | None:
    """Return the shorter of two horizons, of which None is the longest."""
    return other if horizon is None else horizon if other is None else min(horizon, other)
