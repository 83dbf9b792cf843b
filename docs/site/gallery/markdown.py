"""The Markdown page of the gallery, made from the facts about its runs; no number is written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from docs.site.gallery.facts import RunFacts
from sdssm.formatting import format_chance, format_percent

PERFECT = 100.0

HEAD = """---
hide: [navigation]
---

# Gallery

The paper's nine tasks: the automaton, what a model learned of it, and how far that reaches. Every run here was trained
in minutes on a {device}, with one seed; [the results](../../results/README.md) have many seeds and the full recipe.
Numbers and pictures are generated from the run folders by `make gallery`, which trains what is missing.

**[Open the interactive report](report.html)**: the same runs with values on hover, matrices, states, extracted automata
and a playground in which you type a string and watch the model follow the automaton or lose it.

Accuracy is in percent, on {strings:,} random strings of each length. *Within* is the mean over the training lengths,
*beyond* the mean over all greater lengths up to the last one tested. *99 % to* is the last length before the first with
less than 99 %. The certified length is a proof: no string up to it is misclassified, in exact arithmetic / in float32.
The last column compares the automaton that is read back from the model with that of the task; *not followed* means that
the model departs from its automaton on long strings.

"""


def render_page(runs: Sequence[RunFacts]) -> str:
    """Return the page about runs, which are grouped by task in their order."""
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    devices = " or ".join(dict.fromkeys(run["device"] for run in runs))
    strings = min(run["strings"] for run in runs)
    parts = [HEAD.format(device=devices, strings=strings), _table(runs), "\n", _shortfalls(runs)]
    parts += [_section([run for run in runs if run["task"] == task]) for task in tasks]
    return "".join(parts)


def _table(runs: Sequence[RunFacts]) -> str:
    header = "| task | chance | model | steps | within | beyond | 99 % to | certified | automaton read back |"
    lines = [header, "|" + " --- |" * (header.count("|") - 1)]
    for run in runs:
        cells = [
            f"[`{run['task']}`](#{run['task']})",
            format_chance(run["chance"]),
            run["model"],
            f"{run['steps']:,}",
            format_percent(run["within"]),
            format_percent(run["beyond"]),
            _reach(run),
            _certified(run),
            _extracted(run),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _shortfalls(runs: Sequence[RunFacts]) -> str:
    """Return a sentence on the runs of the default model that are not at 100 %."""
    short = [run for run in runs if run["model"] == "sd-ssm" and min(run["within"], run["beyond"]) < PERFECT]
    if not short:
        return "sd-ssm makes no error on any test string of the nine tasks.\n\n"
    named = ", ".join(f"`{run['task']}` ({format_percent(run['beyond'])} beyond)" for run in short)
    return f"sd-ssm is not at 100 % after these short trainings on: {named}.\n\n"


def _section(runs: Sequence[RunFacts]) -> str:
    first = runs[0]
    task = first["task"]
    facts = f"{first['states']} states, {first['symbols']} symbols, {first['classes']} classes"
    lines = [
        f"## {task}\n",
        f"{facts}; commutative: {first['commutative']}; solvable: {first['solvable']}. Chance is "
        f"{format_chance(first['chance'])} %. Trained on strings of up to {first['train_length']} symbols.\n",
        *(f"- {_sentence(run)}" for run in runs),
        "",
        *(f"{text}:\n\n![{text}]({name})\n" for name, text in list_pictures(runs).items()),
    ]
    return "\n".join(lines) + "\n"


def list_pictures(runs: Sequence[RunFacts]) -> dict[str, str]:
    """Return the files of the pictures of a task, given its runs, and what each shows."""
    task = runs[0]["task"]
    return {
        f"{task}-diagram.svg": f"State diagram of {task}",
        f"{task}-accuracy.svg": f"Accuracy on {task} against the length of strings",
        **{
            f"{task}-states-{run['model']}.svg": f"States of {run['model']} on {task} in two dimensions, by length"
            for run in runs
        },
        f"{task}-eigenvalues.svg": f"Eigenvalues of the matrix of each symbol of {task}, of {runs[0]['model']}",
    }


def _sentence(run: RunFacts) -> str:
    text = (
        f"**{run['model']}**, {run['steps']:,} steps on a {run['device']}, seed {run['seed']}: "
        f"{format_percent(run['within'])} % at lengths up to {run['train_length']}, "
        f"{format_percent(run['beyond'])} % from {run['train_length'] + 1} to {run['max_length']}."
    )
    if run["certified"]:
        text += f" Certified length: {_certified(run)}."
    if run["extracted_states"] is not None:
        verdict = "equals the task's" if run["equals_task"] else "is not the task's"
        follows = "" if run["faithful"] else ", but the model departs from it on long strings"
        text += f" The automaton read back from its states has {run['extracted_states']} states and {verdict}{follows}."
    if run["horizon"] is not None:
        limit = ", where the measurement ends" if run["horizon_is_limit"] else ""
        text += f" At least 99.9 % of random strings are classified correctly up to length {run['horizon']:,}{limit}."
    return text


def _reach(run: RunFacts) -> str:
    return f"{run['max_length']:,}+" if run["first_failure"] is None else f"{run['first_failure'] - 1:,}"


def _certified(run: RunFacts) -> str:
    if not run["certified"]:
        return "-"
    lengths = (run["certified_exact"], run["certified_float32"])
    if lengths == (None, None):
        return "every length"
    return " / ".join("every length" if length is None else f"{length:,}" for length in lengths)


def _extracted(run: RunFacts) -> str:
    if run["extracted_states"] is None:
        return "-"
    verdict = "equal" if run["equals_task"] else "not equal"
    return f"{verdict}{'' if run['faithful'] else ', not followed'}"
