"""`compile`: build a model that emulates a given machine; the weights are computed, not trained."""

from __future__ import annotations

import torch

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.exact.compilation.characters import GroupExtension, SymbolGroup
from sdssm.exact.compilation.dense import ENCODINGS, compile_dense
from sdssm.exact.compilation.diagonal import compile_one_layer, compile_two_layers
from sdssm.exact.defaults import COLUMN_NORM, ENCODING, LAYERS, MODEL
from sdssm.exact.errors import ExactError
from sdssm.exact.sources import MachineSource
from sdssm.exact.watch import Watch, open_watch
from sdssm.models import Classifier
from sdssm.progress import ProgressOption
from sdssm.settings import check_one_of
from sdssm.tasks import get_task
from sdssm.tasks.string_ends import access_string
from sdssm.tasks.validity import LabelledTable

MODELS = ("sd-ssm", "complex-diagonal")


def compile(  # noqa: A001  # qualified by the package name it is unambiguous
    machine: MachineSource,
    *,
    encoding: str = ENCODING,
    column_norm: float | None = COLUMN_NORM,
    generator: torch.Generator | None = None,
    model: str = MODEL,
    layers: int = LAYERS,
    n_classes: int | None = None,
    minimise: bool = False,
    progress: ProgressOption = False,
) -> Classifier:
    """Return a model that predicts the output of a machine after every string.

    Args:
        machine: a name, a path, a task, a machine, or whatever else `sdssm.machine` takes.
        encoding: "one-hot", "orthogonal" or "independent" encodings of the machine's states, for sd-ssm.
        column_norm: p of the l_p norm by which sd-ssm divides the columns of its matrices, or None.
        generator: source of the random encodings.
        model: "sd-ssm" or "complex-diagonal".
        layers: 1, or 2 for complex-diagonal.
        n_classes: number of classes, at least the number of outputs; None for exactly these.
        minimise: whether to compile the smallest machine with the same outputs instead.
        progress: True shows how far it is; a function receives every `ProgressEvent`.

    The model keeps the task, with the names of the symbols, as `model.task`.

    sd-ssm has one matrix for each symbol, selected by a saturated softmax. With one-hot encodings it is exact at every
    length, in float32 too. Orthogonal and independent encodings are random, need column_norm None and drift with
    rounding; `check_emulation` measures the drift.

    complex-diagonal holds the characters of a commutative group in one layer. With layers=2 it also emulates groups
    that have a commutative normal subgroup with a commutative quotient, such as the dihedral groups. Its phases are
    rounded.

    >>> from sdssm.tasks import get_task
    >>> exact = compile("a5")
    >>> exact(torch.tensor([[0, 1, 1, 0]])).argmax(-1)[0, -1].item() == get_task("a5").machine.output([0, 1, 1, 0])
    True
    >>> compile("d4", model="complex-diagonal")
    Traceback (most recent call last):
    sdssm.exact.errors.ExactError: not commutative: ...
    """
    task = get_task(machine)
    with open_watch(f"compile {task.name}", progress, None) as watch:
        compiled = compile_machine(
            task.machine.minimise() if minimise else task.machine,
            encoding=encoding,
            column_norm=column_norm,
            generator=generator,
            model=model,
            layers=layers,
            n_classes=task.n_classes if n_classes is None else n_classes,
            watch=watch,
        )
    compiled.task = task
    return compiled


def compile_machine(
    machine: Machine,
    *,
    encoding: str,
    column_norm: float | None,
    generator: torch.Generator | None,
    model: str,
    layers: int,
    n_classes: int,
    watch: Watch,
) -> Classifier:
    """Compile a machine; the arguments are those of `compile`."""
    check_one_of("model", model, MODELS)
    check_one_of("encoding", encoding, ENCODINGS)
    if n_classes < machine.n_outputs:
        raise ExactError(
            f"n_classes is {n_classes}, but the machine has {machine.n_outputs} outputs; pass at least that"
        )
    if layers not in (1, 2):
        raise ExactError(f"layers is {format_value(layers)}; it must be 1, or 2 for complex-diagonal")
    if model == "sd-ssm":
        if layers != 1:
            raise ExactError(f"layers is {layers}, but one layer of sd-ssm emulates every machine; leave it out")
        return compile_dense(machine, encoding, column_norm, generator, n_classes, watch)
    if encoding != "one-hot":
        raise ExactError(f"encoding is {encoding!r}, but complex-diagonal encodes states as characters; leave it out")
    return _compile_diagonal(machine, layers, n_classes, watch)


def _compile_diagonal(machine: Machine, layers: int, classes: int, watch: Watch) -> Classifier:
    watch.start("generate the group")
    if not machine.is_group:
        minimal = machine.minimise()
        symbol = next(v for v in range(minimal.n_symbols) if len(set(minimal.table[:, v])) < minimal.n_states)
        raise ExactError(
            f"not a group: symbol {minimal.symbol_names[symbol]!r} maps different states to the same state, but "
            "transitions of modulus 1 are invertible; compile it as sd-ssm"
        )
    if layers == 2:
        return compile_two_layers(machine, classes, watch)
    if not machine.is_commutative:
        strings = non_commuting_strings(machine)
        first, second = (f"{format_value(machine.decode(word))} has label {machine.output(word)}" for word in strings)
        problem = (
            "not commutative: the state of one diagonal layer with B = 0 does not depend on the order of its inputs "
            f"(Proposition 1), but {first} and {second}; compile it as sd-ssm"
        )
        is_split = _has_two_layers(machine)
        raise ExactError(
            f"{problem}, or with layers=2" if is_split else problem,
            shell=f"{problem}, or with --layers 2" if is_split else problem,
        )
    return compile_one_layer(machine, classes, watch)


def _has_two_layers(machine: Machine) -> bool:
    """Whether two diagonal layers can emulate the machine."""
    try:
        GroupExtension.split(SymbolGroup.generate(machine))
    except ExactError:
        return False
    return True


def non_commuting_strings(machine: Machine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two strings of the same symbols in a different order that have different labels.

    >>> from sdssm.tasks import get_task
    >>> non_commuting_strings(get_task("d4").machine)
    ((0, 1), (1, 0))
    """
    machine = machine.minimise()
    witness = machine.algebra.non_commuting()
    if witness is None:
        raise ExactError("the machine is commutative: the order of symbols never matters")
    state, a, b = witness
    prefix = access_string(LabelledTable.of_machine(machine), state)
    ends = [machine.run((a, b), start=state), machine.run((b, a), start=state)]
    suffix: tuple[int, ...] = ()
    if machine.outputs[ends[0]] == machine.outputs[ends[1]]:
        first, second = (Machine(table=machine.table, start=end, outputs=machine.outputs) for end in ends)
        distinguishing = first.distinguish(second)
        assert distinguishing is not None, "states of a minimal machine are distinguishable"
        suffix = distinguishing
    return (*prefix, a, b, *suffix), (*prefix, b, a, *suffix)
