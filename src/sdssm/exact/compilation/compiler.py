"""From a machine to a model that emulates it: the weights are written down, nothing is trained."""

from __future__ import annotations

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.exact.compilation.characters import GroupExtension, SymbolGroup
from sdssm.exact.compilation.dense import ENCODINGS, compile_dense
from sdssm.exact.compilation.diagonal import compile_one_layer, compile_two_layers
from sdssm.exact.errors import ExactError
from sdssm.models import Classifier
from sdssm.settings import check_one_of
from sdssm.tasks import Task, get_task

MODELS = ("sd-ssm", "complex-diagonal")
__all__ = ["ENCODINGS", "MODELS", "compile", "resolve_machine"]


def compile(  # noqa: A001  # the word for it; Python's own compiles texts
    machine: Machine | Task | str,
    *,
    encoding: str = "one-hot",
    column_norm: float | None = 1.2,
    generator: torch.Generator | None = None,
    model: str = "sd-ssm",
    layers: int = 1,
    n_classes: int | None = None,
) -> Classifier:
    """A model that tells the output of a machine, of a task's machine or of one by name, after every string.

    sd-ssm: one matrix for each symbol, picked by a saturated softmax; states are encoded as one-hot vectors, and the
    model is exact at every length, in float32 too. Orthogonal and independent encodings are random, from `generator`,
    need column_norm none and drift with rounding, as `sdssm.exact.compilation.emulation` measures.

    complex-diagonal: the characters of a commutative group in one layer; with layers=2 also of groups that have a
    commutative normal subgroup with a commutative quotient, as the dihedral groups do. Its phases are rounded.

    `n_classes` may be more than the machine has outputs.

    >>> exact = compile("a5")
    >>> exact(torch.tensor([[0, 1, 1, 0]])).argmax(-1)[0, -1].item() == get_task("a5").machine.output([0, 1, 1, 0])
    True
    >>> compile("d4", model="complex-diagonal")
    Traceback (most recent call last):
    sdssm.exact.errors.ExactError: not commutative: ...
    """
    machine = resolve_machine(machine)
    check_one_of("model", model, MODELS)
    check_one_of("encoding", encoding, ENCODINGS)
    classes = machine.n_outputs if n_classes is None else n_classes
    if classes < machine.n_outputs:
        raise ExactError(f"n_classes is {classes}, but the machine has {machine.n_outputs} outputs; give at least that")
    if layers not in (1, 2):
        raise ExactError(f"layers is {format_value(layers)}; it must be 1, or 2 for complex-diagonal")
    if model == "sd-ssm":
        if layers != 1:
            raise ExactError(f"layers is {layers}, but one layer of sd-ssm emulates every machine; leave it out")
        return compile_dense(machine, encoding, column_norm, generator, classes)
    if encoding != "one-hot":
        raise ExactError(f"encoding is {encoding!r}, but complex-diagonal encodes states as characters; leave it out")
    return _diagonal(machine, layers, classes)


def resolve_machine(given: Machine | Task | str) -> Machine:
    """The machine itself, a task's, or the one of a name."""
    if isinstance(given, Machine):
        return given
    if not isinstance(given, Task | str):
        raise ExactError(f"the machine is {format_value(given)}; give a Machine, a Task or a name, such as 'a5'")
    return (get_task(given) if isinstance(given, str) else given).machine


def _diagonal(machine: Machine, layers: int, classes: int) -> Classifier:
    if not machine.is_group:
        minimal = machine.minimise()
        symbol = next(v for v in range(minimal.n_symbols) if len(set(minimal.table[:, v])) < minimal.n_states)
        raise ExactError(
            f"not a group: symbol {minimal.symbol_names[symbol]!r} leads different states to one, and transitions of "
            "modulus 1 can all be undone; compile it as sd-ssm"
        )
    if layers == 2:
        return compile_two_layers(machine, classes)
    if not machine.is_commutative:
        one, other = non_commuting_strings(machine)
        strings = [format_value(machine.decode(word)) for word in (one, other)]
        raise ExactError(
            f"not commutative: one diagonal layer with B = 0 ends in one state whatever the order of its inputs "
            f"(Proposition 1), but {strings[0]} has label {machine.output(one)} and {strings[1]} label "
            f"{machine.output(other)}; compile it as sd-ssm{_or_two(machine)}"
        )
    return compile_one_layer(machine, classes)


def _or_two(machine: Machine) -> str:
    """What to do instead of one layer, where two would do."""
    try:
        GroupExtension.of(SymbolGroup.of(machine))
    except ExactError:
        return ""
    return ", or with layers=2"


def non_commuting_strings(machine: Machine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two strings of the same symbols in another order, with different labels; the machine is not commutative.

    >>> non_commuting_strings(get_task("d4").machine)
    ((0, 1), (1, 0))
    """
    machine = machine.minimise()
    found = machine.algebra.non_commuting()
    if found is None:
        raise ExactError("the machine is commutative: the order of symbols never matters")
    state, a, b = found
    before = _path(machine, state)
    ends = [machine.run((a, b), start=state), machine.run((b, a), start=state)]
    after: tuple[int, ...] = ()
    if machine.outputs[ends[0]] == machine.outputs[ends[1]]:
        one, other = (Machine(table=machine.table, start=end, outputs=machine.outputs) for end in ends)
        told = one.distinguish(other)
        assert told is not None, "states of a minimal machine are told apart"
        after = told
    return (*before, a, b, *after), (*before, b, a, *after)


def _path(machine: Machine, state: int) -> tuple[int, ...]:
    """A shortest string from the start to a state."""
    here = Machine(table=machine.table, start=machine.start, outputs=(np.arange(machine.n_states) == state).astype(int))
    if machine.start == state:
        return ()
    never = Machine(table=np.zeros((1, machine.n_symbols), dtype=int))
    found = here.distinguish(never)
    assert found is not None, "every state of a minimal machine is reachable"
    return found
