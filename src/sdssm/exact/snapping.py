"""`snap`: replace a trained model by an exact model of the machine that it implements."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.automata import Machine
from sdssm.automata.formats import write_text
from sdssm.checksums import encode_json_with_checksum
from sdssm.display import Displayed, ResultTable
from sdssm.errors import OutputError
from sdssm.exact.certification import Certificate
from sdssm.exact.certification.certifier import certify_machine
from sdssm.exact.certification.prototype_proof import describe_proof
from sdssm.exact.compilation.compiler import compile_machine
from sdssm.exact.defaults import (
    COLUMN_NORM,
    COMPARED_LENGTHS,
    COMPARED_STRINGS,
    ENCODING,
    LAYERS,
    LONGEST_PROOF,
    LONGEST_SEARCH,
    MAX_STATES,
    METHOD,
    MODEL,
    SHORT_STRINGS,
)
from sdssm.exact.errors import ExactError, TimeIsUpError, WrongMachineWarning
from sdssm.exact.extraction import Extraction
from sdssm.exact.extraction.extractor import DEFAULT_LONGEST, METHODS, ExtractionOptions, extract_machine
from sdssm.exact.extraction.model_reader import Word
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.prototypes import build_snapped, choose_prototypes
from sdssm.exact.sources import MachineSource, ModelSource, describe_mistake, load_source, resolve_machine
from sdssm.exact.watch import Watch, open_watch
from sdssm.files import format_path
from sdssm.models import Classifier, TokenModel
from sdssm.models.model_folder import EVIDENCE_FILE, check_model_folder_free, is_model_folder
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.progress import ProgressOption
from sdssm.settings import check_at_least, check_one_of
from sdssm.tasks import Task


@dataclass(frozen=True, kw_only=True, repr=False)
class SnappedModel(Displayed):
    """An exact model, the extraction of its machine, and the proof that the model emulates the machine."""

    model: TokenModel  #: a `Classifier` without `every`, else the recurrence with prototypes
    extraction: Extraction
    certificate: Certificate  #: of the snapped model and the extracted machine; it says nothing about the trained model

    @property
    def difference(self) -> Word | None:
        """A shortest valid string that the extracted machine labels differently from the task; None if there is none.

        If the task is not known, this is None too; `extraction.expected` is None then.
        """
        return None if self.extraction.expected is None else self.extraction.difference

    def __repr__(self) -> str:
        return f"SnappedModel({self.extraction!r}, horizon={self.certificate.horizon})"

    def to_json(self) -> dict[str, Any]:
        """Return the extraction and the certificate as plain values, without the weights."""
        return {"extraction": self.extraction.to_json(), "certificate": self.certificate.to_json()}

    def to_records(self) -> list[dict[str, Any]]:
        """Return the records of the extraction."""
        return self.extraction.to_records()

    def to_table(self) -> ResultTable:
        """Return the table of the extraction, with what is proved about the snapped model."""
        table, certified = self.extraction.to_table(with_difference=False), self.certificate.horizon
        lengths = "for every length" if certified is None else f"up to length {certified:,}"
        module, model = getattr(self.model, "module", None), "exact model"
        if isinstance(module, SnappedRecurrence):
            moved = "after every symbol" if module.every == 1 else f"every {module.every:,} symbols"
            model = f"trained model, with its state moved to the nearest prototype {moved},"
        notes = [*table.notes, f"The {model} is proved to emulate the extracted machine {lengths}."]
        difference = self.extraction.describe_difference()
        title = table.title if difference is None else f"WARNING: {difference}\n{table.title}"
        return ResultTable(table.headers, table.rows, title=title, notes=notes, right=table.right)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save the model, for `sdssm.load`, with the extraction and the certificate next to it."""
        check_snap_folder_free(Path(folder), overwrite=overwrite)
        self.model.save(folder, overwrite=overwrite)
        write_text(Path(folder) / EVIDENCE_FILE, encode_json_with_checksum(self.to_json()).decode())


def check_snap_folder_free(folder: Path, *, overwrite: bool = False, option: str = "overwrite=True") -> None:
    """Raise an error if saving a snapped model would overwrite a run, a file of another program or a model."""
    check_model_folder_free(folder, overwrite=overwrite, option=option)
    if (folder / EVIDENCE_FILE).exists() and not is_model_folder(folder):
        raise OutputError(f"{format_path(folder)} holds another {EVIDENCE_FILE}; choose an empty or a new folder")


def snap(
    model: ModelSource,
    task: MachineSource | None = None,
    *,
    valid: MachineSource | None = None,
    method: str = METHOD,
    max_states: int = MAX_STATES,
    seed: int = 0,
    every: int | None = None,
    trust: bool = False,
    max_seconds: float | None = None,
    progress: ProgressOption = False,
) -> SnappedModel:
    """Extract the machine that a model implements, and compile it to an exact model.

    The options are those of `extract`. If the time limit stops the extraction or the proof, an error says so: there is
    no whole machine to compile, or no certificate for the exact model.

    With `every` the trained matrices are kept: after every `every` symbols the state is moved to the nearest of the
    prototypes, the states of the model that the extraction found. The certificate proves that this is exact at every
    length; if it cannot be proved, an error says for which string. It needs a single SD-SSM that reads all strings.

    The exact model has the same symbols and classes, and needs no query. Whether the machine is the right one depends
    on the extraction: a badly trained model is snapped exactly to a wrong machine. If the task is known, the machine is
    compared with it, and a `WrongMachineWarning` says on which string they first differ. The exact model keeps the
    task, so that `evaluate` and `certify` compare it with what it should do.

    >>> from sdssm.exact import compile
    >>> snapped = snap(compile("d4"))
    >>> snapped.extraction.machine, snapped.model.n_classes, snapped.certificate.horizon is None, snapped.difference
    (Machine(8 states, 2 symbols, 8 outputs), 8, True, None)
    """
    check_one_of("method", method, METHODS)
    check_at_least("max_states", max_states, 1)
    if every is not None:
        check_at_least("every", every, 1)
        check_one_of("method", method, METHODS[:1])  # only it finds states of the model
    source = load_source(model, task, function="snap", trust=trust)
    known = source.task if task is None else source.find_task(task, "snap")
    if every is not None:
        _check_prototypes_possible(source.model, resolve_machine(valid), known)
    if method == METHODS[0] and not source.model.is_recurrent and known is not None:
        mistake = describe_mistake(source.model, known)
        if mistake is not None:
            raise ExactError(f"{source.model.name} carries no state, and there is nothing to snap: {mistake}")
    lengths: tuple[int, ...] = COMPARED_LENGTHS
    if not source.model.can_read_prefixes_at_once:  # each prefix of a string is a call of the model
        lengths = tuple(length for length in lengths if length <= DEFAULT_LONGEST)
    options = ExtractionOptions(method, lengths, COMPARED_STRINGS, None, max_states, seed)
    with open_watch(f"snap {source.name}", progress, max_seconds) as watch:
        extraction = extract_machine(source, resolve_machine(valid), task, options, watch)
        if extraction.stopped:
            raise _time_is_up(f"{extraction.note}; snap needs a complete extraction")
        extracted = Task(name="the extracted machine", machine=extraction.machine, valid=extraction.valid)
        if every is None:
            exact, certificate = _compile_exact(extraction, extracted, watch)
            if isinstance(model, Classifier):
                exact = exact.to(model.readout.weight)
        else:
            exact, certificate = _keep_with_prototypes(source.model, extraction, every, watch)
        exact.task = extracted if known is None else known
        if certificate.stopped:
            raise _time_is_up(f"{watch.stop_reason}: the exact model is not certified by then")
    if (difference := extraction.describe_difference()) is not None:
        warnings.warn(f"{difference}; the exact model reproduces that", WrongMachineWarning, stacklevel=2)
    return SnappedModel(model=exact, extraction=extraction, certificate=certificate)


def _compile_exact(extraction: Extraction, extracted: Task, watch: Watch) -> tuple[TokenModel, Certificate]:
    """Compile the extracted machine, and certify the result."""
    exact = compile_machine(
        extraction.machine,
        encoding=ENCODING,
        column_norm=COLUMN_NORM,
        generator=None,
        model=MODEL,
        layers=LAYERS,
        n_classes=extraction.n_classes,
        watch=watch,
    )
    certificate = certify_machine(
        exact,
        extracted,
        strings=SHORT_STRINGS,
        longest=LONGEST_PROOF,
        search=LONGEST_SEARCH,
        seed=0,
        watch=watch,
    )
    return exact, certificate


def _check_prototypes_possible(model: TokenModel, valid: Machine | None, task: Task | None) -> None:
    """Raise an error, before any extraction, if prototypes cannot be proved for a model and its valid strings."""
    problem = None
    if TokenMatrices.find(model) is None:
        problem = f"prototypes need the matrices of a single SD-SSM, and {model.name} is none with these settings"
    valid = task.valid if valid is None and task is not None else valid
    if valid is not None and valid.minimise().n_states > 1:
        name = "the task" if task is None else task.name
        problem = f"prototypes are proved for all strings, and not every string of {name} is valid"
    if problem is not None:
        raise ExactError(f"{problem}; leave every out", shell=f"{problem}; leave --every out")


def _keep_with_prototypes(
    model: TokenModel, extraction: Extraction, every: int, watch: Watch
) -> tuple[TokenModel, Certificate]:
    """Keep the matrices of a model, move its state to prototypes, and prove that this is exact."""
    assert extraction.graph is not None, "the model is a linear recurrence that reads all strings"
    matrices, machine = TokenMatrices.read(model), extraction.machine
    try:
        prototypes = choose_prototypes(matrices, extraction.graph, machine, every, watch)
    except TimeIsUpError:
        raise _time_is_up(f"{watch.stop_reason}: the prototypes are not proved by then") from None
    certificate = describe_proof(len(prototypes.points), every, machine.n_states, "the extracted machine")
    return build_snapped(matrices, prototypes, every).to(model.device), certificate


def _time_is_up(problem: str) -> ExactError:
    return ExactError(
        f"{problem}, so allow more time with max_seconds", shell=f"{problem}, so allow more time with --max-seconds"
    )
