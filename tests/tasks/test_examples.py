"""Example strings drawn with numpy: valid, uniform, and labelled as the task labels them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from sdssm.errors import TaskError
from sdssm.tasks import get_task
from sdssm.tasks.examples import draw_examples


@pytest.mark.parametrize(("name", "length"), [("a5", 12), ("arithmetic", 7), ("regex:(ab|c)*", 9), ("arithmetic", 501)])
def test_examples_have_the_labels_of_the_task(name: str, length: int) -> None:
    task = get_task(name)
    examples = draw_examples(task, 3, length, seed=1)
    tokens = torch.tensor([example.tokens for example in examples])
    assert tokens.shape == (3, length)
    assert task.labels(tokens).tolist() == [example.labels for example in examples]
    assert all(example.labels[-1] >= 0 for example in examples)
    assert examples == draw_examples(task, 3, length, seed=1) != draw_examples(task, 3, length, seed=2)


def test_examples_are_uniform_among_the_valid_strings() -> None:
    task = get_task("arithmetic")
    strings = torch.cartesian_prod(*[torch.arange(task.n_symbols)] * 3)
    valid = {tuple(string) for string in strings[task.labels(strings)[:, -1] >= 0].tolist()}
    drawn = Counter(tuple(example.tokens) for example in draw_examples(task, 20 * len(valid), 3))
    assert set(drawn) == valid
    assert min(drawn.values()) > 2 and max(drawn.values()) < 50  # 20 on average


def test_a_length_without_valid_strings_is_an_error() -> None:
    with pytest.raises(TaskError, match="arithmetic has no valid string of length 4"):
        draw_examples(get_task("arithmetic"), 1, 4)
