"""The languages of a folder: names, selection, and the strings on which their models are measured."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from sdssm.automata import Machine, get_machine
from sdssm.errors import FormatError, SettingsError
from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.edit_pairs import (
    DELETE,
    INSERT,
    EditPairs,
    apply_edit,
    count_edits,
    find_edit_pairs,
    forward_states,
    labels_after,
)
from sdssm.experiments.mlregtest.languages import (
    CLASSES,
    choose_tuning,
    list_languages,
    parse_name,
    select_languages,
    studied_names,
    tuning_names,
)
from sdssm.experiments.mlregtest.length_strings import draw_test_strings, stack_strings
from sdssm.experiments.mlregtest.readings import SideBySideReader, measure_models
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.tasks import get_task

MACHINES = ("parity", "tomita3", "tomita5", "cycle", "regex:(ab|c)*", "random:6x3:0")
TINY = Configuration(lengths=(1, 3, 7), strings=32, pairs=8)


def test_tuning_languages_are_listed_by_name_and_of_all_classes() -> None:
    names = [parse_name(name) for name in tuning_names()]
    assert len(names) == 100
    assert {name.kind for name in names} == set(CLASSES) - {"other"}
    assert {name.alphabet for name in names} == {4, 16, 64}


def test_the_choice_of_tuning_languages_is_in_proportion() -> None:
    sizes = {f"{v:02}.{v:02}.{kind}.2.1.{i}": i + 2 for v in (4, 16) for kind in ("SL", "SP") for i in range(10)}
    chosen = choose_tuning(sizes, 8)
    assert len(set(chosen)) == 8 and chosen == choose_tuning(sizes, 8)
    for v, kind in product(("04", "16"), ("SL", "SP")):
        assert sum(name.startswith(f"{v}.") and f".{kind}." in name for name in chosen) == 2


def test_parts_of_a_folder() -> None:
    tuned, seen = min(tuning_names()), min(studied_names())
    names = ["mine", tuned, "other", seen]
    assert select_languages(names, ["tuning"]) == [tuned]
    assert select_languages(names, ["studied"]) == [seen]
    assert select_languages(names, ["all"]) == names
    assert select_languages(names, ["held-out"]) == ["mine", "other"]
    assert select_languages(names, ["tuning", "mine.att"]) == ["mine", tuned]
    with pytest.raises(SettingsError, match="no tuning languages"):
        select_languages(["mine"], ["tuning"])


def test_a_folder_without_automata(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no .att files"):
        list_languages(tmp_path)
    with pytest.raises(FormatError, match="cannot read the folder"):
        list_languages(tmp_path / "missing")


# -- pairs at edit distance 1 ------------------------------------------------------------------------------------------


def all_edits(machine: Machine, string: np.ndarray) -> set[tuple[int, ...]]:
    """Return all non-empty strings at edit distance 1 with another label, by trying every edit."""
    label, edits = machine.output(string.tolist()), set()
    for kind, last in ((0, len(string)), (1, len(string) + 1), (2, len(string))):
        for position, symbol in product(range(last), range(machine.n_symbols)):
            edited = tuple(apply_edit(string, kind, position, symbol).tolist())
            if edited and machine.output(edited) != label:
                edits.add(edited)
    return edits


def as_tuples(pairs: EditPairs) -> dict[tuple[int, ...], tuple[int, ...]]:
    edited = [tuple(row[:length].tolist()) for row, length in zip(pairs.edited, pairs.lengths, strict=True)]
    return dict(zip((tuple(row.tolist()) for row in pairs.tokens), edited, strict=True))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("length", [1, 4])
def test_every_string_with_a_neighbour_of_another_label_gets_one(name: str, length: int) -> None:
    machine = get_machine(name)
    strings = np.array(list(product(range(machine.n_symbols), repeat=length)))
    pairs = find_edit_pairs(machine, strings, len(strings), np.random.default_rng(0))
    found = as_tuples(pairs)
    for string in strings:
        edits = all_edits(machine, string)
        assert (tuple(string.tolist()) in found) == bool(edits)
        assert not edits or found[tuple(string.tolist())] in edits
    assert all(machine.output(before) == label for before, label in zip(found, pairs.labels, strict=True))
    after = zip(found.values(), pairs.edited_labels, strict=True)
    assert all(machine.output(edited) == label for edited, label in after)


def test_all_kinds_of_edits_occur() -> None:
    machine = get_machine("parity")
    strings = np.random.default_rng(0).integers(2, size=(200, 9))
    pairs = find_edit_pairs(machine, strings, 100, np.random.default_rng(1))
    assert len(pairs) == 100
    assert set(pairs.lengths.tolist()) == {8, 9, 10}


# -- strings and readings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_edits_are_counted_as_one_by_one(name: str, length: int) -> None:
    machine = get_machine(name)
    tokens = np.random.default_rng(0).integers(machine.n_symbols, size=(5, length))
    states, after = forward_states(machine, tokens), labels_after(machine, tokens)
    labels = machine.outputs[states[:, -1]].astype(after.dtype)
    counts = count_edits(machine, states, after, labels)
    for kind, row, i in product(range(3), range(5), range(length + 1)):
        is_possible = i < length or kind == INSERT
        symbols = range(1 if kind == DELETE else machine.n_symbols) if is_possible else ()
        edited = [apply_edit(tokens[row], kind, i, symbol) for symbol in symbols]
        expected = sum(len(word) > 0 and machine.output(word.tolist()) != labels[row] for word in edited)
        assert counts[kind, row, i] == expected


def test_test_strings_are_a_function_of_the_language() -> None:
    task = get_task("tomita3")
    first, again = draw_test_strings(task, TINY), draw_test_strings(task, TINY)
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a.tokens, b.tokens) and np.array_equal(a.pairs.edited, b.pairs.edited)
        for block, labels in zip(a.tokens, a.labels, strict=True):
            assert [task.machine.output(row) for row in block.tolist()] == labels.tolist()


def test_models_side_by_side_score_as_each_alone() -> None:
    tasks = [get_task(name) for name in ("parity", "tomita3", "tomita5")]
    settings = ModelSettings(mixer=SelectiveDenseSettings(state=6, dictionary=3))
    models = [Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    strings = [draw_test_strings(task, TINY) for task in tasks]
    readings = measure_models(models, strings)
    for model, task, entries, reading in zip(models, tasks, strings, readings, strict=True):

        def is_right(word: list[int]) -> bool:
            with torch.no_grad():
                predicted = int(model(torch.tensor([word]))[0, -1].argmax())  # noqa: B023  # called at once
            return predicted == task.machine.output(word)  # noqa: B023  # called at once

        assert reading.misclassified is not None and not is_right(list(reading.misclassified))
        short = [row for entry in entries for row in entry.tokens.reshape(-1, entry.length).tolist()]
        assert all(is_right(row) for row in short if len(row) < len(reading.misclassified))
        for entry, score in zip(entries, reading.scores, strict=True):
            alone = [100 * np.mean([is_right(row) for row in block.tolist()]) for block in entry.tokens]
            assert list(score.accuracy.values()) == pytest.approx(alone)
            both = [is_right(list(a)) and is_right(list(b)) for a, b in as_tuples(entry.pairs).items()]
            if len(both) == len(entry.pairs):  # no string occurs twice
                assert score.pairs == pytest.approx(100 * np.mean(both))


def test_a_model_with_values_that_are_not_finite_is_wrong_everywhere() -> None:
    model = Classifier(
        ModelSettings(mixer=SelectiveDenseSettings(state=4)), 2, 2, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        model.readout.weight.fill_(float("nan"))
    tokens, lengths, _ = stack_strings([draw_test_strings(get_task("parity"), TINY)[0]])
    predicted = SideBySideReader([model]).predict(torch.from_numpy(tokens), torch.from_numpy(lengths))
    assert (predicted == -1).all()
