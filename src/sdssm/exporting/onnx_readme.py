"""The README of an ONNX folder: what the model reads and predicts, and code that runs it with onnxruntime alone."""

from __future__ import annotations

from typing import Any

from sdssm.exporting.formats import DESCRIPTION_FILE, MODEL_FILE, STEP_FILE
from sdssm.models.model_card import list_names
from sdssm.tasks import chance_accuracy

READ_STEPS = f"""
    step, about = onnxruntime.InferenceSession("{STEP_FILE}"), description["files"]["{STEP_FILE}"]
    state = {{
        name: np.array([value] * len(tokens), dtype=about["inputs"][name]["dtype"])
        for name, value in about["initial_state"].items()
    }}
    for token in tokens.T:
        logits, *after = step.run(None, {{"token": token, **state}})
        state = dict(zip(state, after))
    labels = [description["labels"][label] for label in logits.argmax(-1)]"""


def make_readme(description: dict[str, Any]) -> str:
    """Return the text for the description in `model.json`."""
    task = description["task"]
    title = description["name"] + ("" if task is None else f" for the task {task['name']}")
    parts = [f"# {title}", _describe_predictions(description), _read_strings(description)]
    if STEP_FILE in description["files"]:
        states = ", ".join(f"`{name}`" for name in description["files"][STEP_FILE]["initial_state"])
        parts += [
            f"`{STEP_FILE}` reads one symbol of each string: `token` (batch,), int64, and the state ({states}) to "
            f"`logits` (batch, {description['n_classes']}) and the next state, whose names start with `next_`. The "
            f"initial state is in `{DESCRIPTION_FILE}`. The same strings, symbol by symbol:\n{READ_STEPS}",
        ]
    return "\n\n".join(parts) + "\n"


def _describe_predictions(description: dict[str, Any]) -> str:
    """Return the names of symbols and labels, and the accuracy beside chance."""
    evaluation, longest = description["evaluation"], description["longest"]
    chance = f"{chance_accuracy(description['n_classes']):.4g} %"
    if evaluation is None or evaluation.get("mean") is None:
        accuracy = f"The accuracy was not measured; chance is {chance}."
    else:
        lengths = f" on strings of length 1 to {evaluation['max_length']:,}" if "max_length" in evaluation else ""
        constant = evaluation.get("best_constant_mean")
        beside = "" if constant is None else f"that of the best constant answer {constant:.4g} %, "
        accuracy = f"The mean accuracy{lengths} is {evaluation['mean']:.4g} %; {beside}chance is {chance}."
        if evaluation.get("headline_name") == "balanced accuracy" and evaluation.get("headline") is not None:
            level = f"{evaluation['headline_chance']:.4g} %"
            headline = f"The mean balanced accuracy is {evaluation['headline']:.4g} %; a constant answer has {level}."
            accuracy = f"{headline} {accuracy}"
    limit = "" if longest is None else f" Strings may have at most {longest:,} symbols; longer ones are not refused."
    return (
        f"Symbols, in order of their tokens 0, 1, ...: {list_names(description['symbols'])}. Labels, in the same way: "
        f"{list_names(description['labels'])}. {accuracy}\n\nTokens are not checked: one that is not a symbol gives "
        f"an arbitrary result.{limit}"
    )


def _read_strings(description: dict[str, Any]) -> str:
    shape = description["files"][MODEL_FILE]["outputs"]["logits"]["shape"]
    per_prefix = len(shape) == 3
    when, last = ("after every symbol", "logits[:, -1]") if per_prefix else ("of the whole string", "logits")
    return f"""`{MODEL_FILE}` maps `tokens` (batch, length), int64, to `logits` ({", ".join(map(str, shape))}), {when}:

    import json
    import numpy as np
    import onnxruntime
    description = json.load(open("{DESCRIPTION_FILE}"))
    tokens = np.array([[0, 0], [0, {min(1, description["n_symbols"] - 1)}]], dtype=np.int64)  # two strings
    session = onnxruntime.InferenceSession("{MODEL_FILE}")
    (logits,) = session.run(["logits"], {{"tokens": tokens}})
    labels = [description["labels"][label] for label in {last}.argmax(-1)]"""
