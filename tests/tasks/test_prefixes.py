"""Labels of several prefixes of each training string."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm.errors import TaskError
from sdssm.tasks import get_task
from sdssm.tasks.prefixes import prefix_ends
from sdssm.tasks.stream import StringBatch, StringStream


@pytest.mark.parametrize("count", [1, 2, 5, 9, 40])
def test_prefixes_are_spread_over_the_string_and_end_with_it(count: int) -> None:
    lengths = torch.arange(1, 10)
    ends = prefix_ends(lengths, count)
    assert ends.shape == (9, count) and torch.equal(ends[:, -1], lengths)
    assert int(ends.min()) >= 1 and bool((ends.diff(dim=-1) >= 0).all())
    for length, row in zip(lengths.tolist(), ends.tolist(), strict=True):
        assert len(set(row)) == min(length, count)  # every prefix, or `count` different ones


def draw(name: str, prefixes: int, **options: Any) -> tuple[StringBatch, torch.Tensor]:
    """Return strings of two or more tasks, whose names are joined by "+", and their lengths."""
    tasks = [get_task(part) for part in name.split("+")]
    seeds = range(len(tasks))
    stream = StringStream(tasks, seeds=seeds, batch=6, max_length=9, device="cpu", prefixes=prefixes, **options)
    lengths = torch.from_numpy(stream.draw_lengths(first=3, count=4, most=[9] * len(tasks)))
    return stream.draw(torch.tensor(3), lengths, 9), lengths


@pytest.mark.parametrize("name", ["a5+a5", "s3:all", "regex[ab]:(ab)*+regex[ab]:a*b", "random:10x2:0"])
@pytest.mark.parametrize("sampling", ["uniform", "balanced", "covering"])
def test_labels_are_the_outputs_after_the_prefixes(name: str, sampling: str) -> None:
    strings, lengths = draw(name, 4, sampling=sampling)
    assert strings.ends is not None and strings.prefix_labels is not None
    assert torch.equal(strings.prefix_labels[..., -1], strings.labels)
    tasks = [get_task(part) for part in name.split("+")]
    for step in range(4):
        for replica, task in enumerate(tasks):
            for tokens, labels in zip(strings.tokens[step, replica], strings.prefix_labels[step, replica], strict=True):
                expected = [task.machine.output(tokens[:end].tolist()) for end in strings.ends[step, replica].tolist()]
                assert labels.tolist() == expected
    plain = StringStream(tasks, seeds=range(len(tasks)), batch=6, max_length=9, device="cpu", sampling=sampling)
    assert torch.equal(plain.draw(torch.tensor(3), lengths, 9).tokens, strings.tokens)  # the same strings


def test_labels_follow_random_start_states() -> None:
    strings, _ = draw("a5", 3, random_start=True)
    assert strings.starts is not None and strings.prefix_labels is not None
    assert torch.equal(strings.prefix_labels[..., -1], strings.labels)


def test_tasks_whose_prefixes_may_be_invalid_are_refused() -> None:
    with pytest.raises(TaskError, match="prefixes is 2, but prefixes of arithmetic may be invalid; use prefixes=1"):
        draw("arithmetic", 2)
