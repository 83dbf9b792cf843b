"""The values that Python puts into a page, as `web/src/data.ts` declares them for TypeScript.

`web/src/data.ts` says what each field means; a test compares both files. Accuracies are in percent, and None stands for
"not known" and for numbers that are not finite.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

Numbers = list[float | None]


class PageProblem(TypedDict):
    """A folder or file that could not be read."""

    path: str
    message: str


class MachineData(TypedDict):
    """A Moore machine and its state diagram."""

    start: int
    symbols: list[str]
    states: list[str]
    outputs: list[int]
    table: list[list[int]]
    n_classes: int
    diagram: str | None
    diagram_note: str | None


class TaskData(TypedDict):
    """A task: its machine, its facts, its lengths."""

    id: str
    name: str
    machine: MachineData
    facts: list[tuple[str, str]]
    chance: float
    train_length: int
    test_length: int
    valid: MachineData | None


class CurveData(TypedDict):
    """Accuracy against length over the seeds of a training."""

    lengths: list[int]
    mean: Numbers
    low: Numbers
    high: Numbers


class TrainingData(TypedDict):
    """Runs that differ in their seeds only."""

    id: str
    task: str
    model: str
    label: str
    preset: str | None
    colour: str
    dashes: list[float]
    differing: dict[str, str]
    train_length: int
    runs: list[str]
    accuracy: CurveData | None
    balanced: CurveData | None
    covering: CurveData | None
    best_constant: CurveData | None


class Certified(TypedDict):
    """The lengths that a certificate proves; None: every length."""

    exact: int | None
    float32: int | None
    reason: str
    misclassified: str | None
    misclassified_symbols: list[int] | None


class HorizonSummary(TypedDict):
    """The longest length without errors, as measured."""

    longest: int
    max_length: int
    reached: bool
    predicted: float | None
    lengths: list[int]
    accuracy: Numbers
    distance: Numbers


class ExtractionSummary(TypedDict):
    """What is known about the automaton that was read from the weights."""

    n_states: int
    equals_task: bool | None
    faithful: bool
    difference: str | None
    note: str | None


class RunData(TypedDict):
    """One run, without its heavy parts."""

    id: str
    folder: str | None
    source: str
    task: str
    training: str
    model: str
    preset: str | None
    seed: int | None
    status: str
    step: int
    steps: int
    seconds: float | None
    device: str | None
    accuracy: float | None
    loss: float | None
    headline: float | None
    headline_name: str
    headline_chance: float | None
    headline_lengths: list[int] | None
    mean_within: float | None
    mean_beyond: float | None
    constant_within: float | None
    constant_beyond: float | None
    max_length: int | None
    first_failure: int | None
    certified: Certified | None
    horizon: HorizonSummary | None
    extraction: ExtractionSummary | None
    settings: dict[str, str]
    versions: dict[str, str]
    command: str
    problems: list[str]
    has_detail: bool
    is_playable: bool
    not_playable: str | None


class CellData(TypedDict):
    """A cell of a table: ours and the published numbers."""

    row: str
    column: str
    best: float | None
    average: float | None
    seeds: int
    steps: int | None
    published_best: float | None
    published_average: float | None
    chance: float | None
    runs: list[str]


class TableData(TypedDict):
    """A table of the paper or of an experiment."""

    id: str
    name: str
    title: str
    corner: str
    rows: list[str]
    columns: list[str]
    cells: list[CellData]
    notes: list[str]
    command: str


class ReportData(TypedDict):
    """Everything but the heavy parts of each run."""

    format: int
    title: str
    version: str
    created: str
    command: str
    tasks: list[TaskData]
    trainings: list[TrainingData]
    runs: list[RunData]
    tables: list[TableData]
    problems: list[PageProblem]
    notes: list[str]


class AccuracyValues(TypedDict):
    """The accuracy of one run at each length, with its 95 % confidence interval."""

    lengths: list[int]
    value: Numbers
    low: Numbers
    high: Numbers


class MeasureValues(TypedDict):
    """A further measure of one run at a few lengths."""

    lengths: list[int]
    value: Numbers


class RunCurves(TypedDict):
    """The evaluation of one run."""

    strings: int
    accuracy: AccuracyValues
    balanced: MeasureValues | None
    covering: MeasureValues | None


class EventValues(TypedDict):
    """Loss and accuracy of the training strings."""

    step: list[int]
    loss: Numbers
    accuracy: Numbers


class Packed(TypedDict):
    """A tensor in base64."""

    dtype: str
    shape: list[int]
    data: str
    scale: NotRequired[float]


class EigenvalueList(TypedDict):
    """The eigenvalues of one matrix."""

    re: list[float]
    im: list[float]


class MatrixData(TypedDict):
    """The matrices of an SD-SSM with one layer."""

    symbols: Packed
    dictionary: Packed | None
    selection: list[list[float]]
    eigenvalues: list[EigenvalueList]


class StateCloud(TypedDict):
    """States of a model in two dimensions after random strings of several lengths."""

    lengths: list[int]
    explained: tuple[float, float]
    x: list[list[float]]
    y: list[list[float]]
    state: list[list[int]]
    correct: list[list[bool]]


class PlayerModel(TypedDict):
    """A model that the browser can run; `player_models.py` says what its tensors are."""

    kind: str
    options: dict[str, str | float | bool | None]
    tensors: dict[str, Packed]


class PlayerVariant(TypedDict):
    """A model as it was trained, or replaced by the automaton that was read from its weights."""

    name: str
    model: PlayerModel


class PlayerData(TypedDict):
    """The model of a run for the playground."""

    train_length: int
    certified: Certified | None
    variants: list[PlayerVariant]


class PlaygroundEntry(TypedDict):
    """A model of a playground page, with its task."""

    label: str
    task: TaskData
    player: PlayerData


class PlaygroundData(TypedDict):
    """The data of a page of `sdssm playground`."""

    format: int
    title: str
    version: str
    entries: list[PlaygroundEntry]


class RunDetail(TypedDict):
    """The heavy parts of one run; `missing` says why a part is None."""

    id: str
    evaluation: RunCurves | None
    events: EventValues | None
    matrices: MatrixData | None
    states: StateCloud | None
    extracted: MachineData | None
    player: PlayerData | None
    missing: dict[str, str]
