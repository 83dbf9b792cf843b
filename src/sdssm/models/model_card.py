"""The model card: what a model is, how well it predicts, and how to load it, in Markdown with a YAML header."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sdssm.layers.settings import is_catalogue_model
from sdssm.models.evidence import Evidence
from sdssm.models.import_paths import is_file_path, without_folder
from sdssm.models.registry import SNAPPED_PATH
from sdssm.settings import settings_to_dict
from sdssm.tasks import Task, chance_accuracy

if TYPE_CHECKING:
    from sdssm.models.token_model import TokenModel

#: Symbols or labels that are listed by name.
MOST_NAMES = 20


def make_card(
    model: TokenModel,
    evidence: Evidence,
    *,
    license: str | None = None,  # noqa: A002  # as the header calls it
    repository: str | None = None,
) -> str:
    """Return the model card of a model.

    >>> import sdssm
    >>> card = make_card(sdssm.compile("parity"), Evidence(), repository="me/parity")
    >>> print(*card.splitlines()[:9], sep=chr(10))
    ---
    library_name: sdssm
    tags:
    - sdssm
    - finite-automata
    - "sd-ssm"
    # license: choose one; it is not set yet
    ---
    # sd-ssm on parity
    """
    task = model.task
    sections = [
        _header(model, license),
        f"# {model.name}" + ("" if task is None else f" on {task.name}"),
        _introduction(model),
        *([] if task is None else ["## Task", _describe_task(task)]),
        "## Accuracy",
        _describe_accuracy(evidence.evaluation, chance_accuracy(model.n_classes)),
        "## Certified length",
        _describe_certificate(evidence.certificate),
        "## How to load it",
        _describe_loading(model, repository),
        "## Settings",
        _code("json", json.dumps(_public_settings(model), indent=1)),
    ]
    # The first heading follows the header directly, as the Hub shows it.
    return f"{sections[0]}\n" + "\n\n".join(sections[1:]) + "\n"


def _header(model: TokenModel, license_name: str | None) -> str:
    """Return the YAML header; a JSON string is a YAML string."""
    chosen = (
        "# license: choose one; it is not set yet" if license_name is None else f"license: {json.dumps(license_name)}"
    )
    tags = ["sdssm", "finite-automata", json.dumps(model.name)]
    return "\n".join(["---", "library_name: sdssm", "tags:", *(f"- {tag}" for tag in tags), chosen, "---"])


def _introduction(model: TokenModel) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    fixed = sum(buffer.numel() for buffer in model.buffers())
    size = f"{parameters:,} parameters" if parameters else f"{fixed:,} fixed numbers"
    when = "after every symbol" if model.can_read_prefixes_at_once else "for the whole string"
    longest = "" if model.longest is None else f" It reads at most {model.longest:,} symbols."
    if getattr(model.settings, "centres", None) is not None:
        longest += " It was trained on the states of the automaton as targets, not on its labels."
    return (
        f"A model with {size} that reads strings of {model.n_symbols:,} symbols and predicts one of "
        f"{model.n_classes:,} labels {when}.{longest}"
    )


def _describe_task(task: Task) -> str:
    machine = task.machine
    valid = "" if task.valid is None else " Not every string is valid; task.json has the machine of valid strings."
    return (
        f"`{task.name}`: predict the output of a machine of {machine.n_states:,} states (task.json). Symbols, in order "
        f"of their tokens 0, 1, ...: {list_names(machine.symbol_names)}. Labels, in the same way: "
        f"{list_names(label_names(task))}.{valid}"
    )


def label_names(task: Task) -> tuple[str, ...]:
    """Return the name of each label: that of the only state with this output, else its number.

    >>> import sdssm
    >>> label_names(sdssm.task("parity"))
    ('even', 'odd')
    """
    names = [str(label) for label in range(task.n_classes)]
    outputs = task.machine.outputs.tolist()
    for state, output in zip(task.machine.states or (), outputs, strict=False):
        if outputs.count(output) == 1:
            names[output] = state
    return tuple(names)


def list_names(names: Sequence[str]) -> str:
    """Return names of symbols or labels in Markdown; of many, the first ones.

    >>> list_names(["even", "odd"])
    '`even`, `odd`'
    """
    return ", ".join(f"`{name}`" for name in names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


def _describe_accuracy(evaluation: Mapping[str, Any] | None, chance: float) -> str:
    if evaluation is None:
        return f"It was not evaluated. Chance is {chance:.4g} %."
    train, longest = evaluation.get("train_length"), evaluation.get("max_length")
    rows = [
        *_describe_sampled(evaluation),
        ("mean", f"1 to {longest}", evaluation.get("mean")),
        ("up to the training length", f"1 to {train}", evaluation.get("mean_within")),
        ("beyond the training length", f"{_next(train)} to {longest}", evaluation.get("mean_beyond")),
        ("best constant answer", f"1 to {longest}", evaluation.get("best_constant_mean")),
        ("chance", "", evaluation.get("headline_chance") or evaluation.get("chance", chance)),
    ]
    table = ["| | lengths | accuracy |", "|---|---|---|"]
    table += [f"| {name} | {lengths} | {value:.4g} % |" for name, lengths, value in rows if value is not None]
    below = evaluation.get("first_below_99")
    strings, device = evaluation.get("strings"), evaluation.get("device")
    notes = [
        "" if strings is None else f"Measured on {strings:,} random strings" + (f" on {device}." if device else "."),
        f"The accuracy first falls below 99 % at length {below:,}." if isinstance(below, int) else "",
    ]
    return "\n".join(table) + "\n\n" + " ".join(note for note in notes if note)


def _describe_sampled(evaluation: Mapping[str, Any]) -> list[tuple[str, str, float | None]]:
    """Return the rows of the balanced and the covering accuracy; none for evaluations of older versions."""
    names = {
        "balanced": "balanced: all labels equally frequent",
        "covering": "covering: all transitions equally frequent",
    }
    measured = {text: evaluation.get(name) for name, text in names.items()}
    return [
        (text, ", ".join(map(str, sampled["lengths"])), sampled["mean"])
        for text, sampled in measured.items()
        if isinstance(sampled, Mapping)
    ]


def _next(length: Any) -> Any:
    return length + 1 if isinstance(length, int) else "?"


def _describe_certificate(certificate: Mapping[str, Any] | None) -> str:
    if certificate is None:
        return "Nothing is proved about it; `sdssm certify` proves a length for some models."
    if certificate.get("horizon", 0) == 0:
        return f"Nothing is proved: {certificate.get('reason', 'no length was certified')}."
    exact, rounded = (_format_length(certificate.get(key, 0)) for key in ("horizon", "float_horizon"))
    task = certificate.get("task")
    what = "" if task is None else f" of {task}"
    return (
        f"Every valid string{what} is provably classified correctly {exact} in exact arithmetic, and {rounded} with "
        "the rounding of float32, read symbol by symbol."
    )


def _format_length(length: int | None) -> str:
    return "at every length" if length is None else f"up to length {length:,}"


def _describe_loading(model: TokenModel, repository: str | None) -> str:
    source = json.dumps("path/of/this/folder" if repository is None else repository)
    path = model.settings.import_path
    is_foreign = path is not None and path != SNAPPED_PATH
    lines = [
        "import sdssm, torch",
        f"model = sdssm.TokenModel.from_pretrained({source}{', trust=True' if is_foreign else ''})",
        "label = model(torch.tensor([[0, 0]]))[0, -1].argmax()",
    ]
    code = _code("python", "\n".join(lines))
    if is_catalogue_model(model.name, path) or path == SNAPPED_PATH:
        return code
    foreign = "Its code is not part of sdssm and not part of this folder"
    if path is None or is_file_path(path):
        return f"{code}\n\n{foreign}: define the model first, and register it with `sdssm.register` as `{model.name}`."
    return f"{code}\n\n{foreign}: `trust=True` imports `{path}`."


def _public_settings(model: TokenModel) -> dict[str, Any]:
    settings = settings_to_dict(model.settings)
    return {**settings, "import_path": without_folder(settings.get("import_path"))}


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
