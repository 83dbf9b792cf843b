"""The rule of `state=auto`: 64 wherever 64 is known to be enough, more for machines of high label rank."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sdssm.automata import Machine
from sdssm.errors import SettingsError
from sdssm.experiments.planning.fingerprints import fingerprint
from sdssm.experiments.specs.catalogue import get_spec
from sdssm.runs import default_folder
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import PAPER_TASKS, get_task
from sdssm.tasks.state_size import MARGIN, STATE_SIZES, choose_state_size
from sdssm.training.planning import check_config

#: The experiments whose results are with 64.
SPECS = ("table1", "default", "beyond", "groups", "short", "c2xc30-d30", "more-models", "claims", "overview")
#: Groups that are at 100.00 up to length 500 with 64, besides those of the specs.
LARGE_GROUPS = ("a6", "s6", "a7", "s7", "z97", "s5:32:0", "a5*z7")


def projective_special_linear(prime: int) -> Machine:
    """Return PSL(2, prime) with its two usual generators, its elements as states."""
    pairs = [np.array(m).reshape(2, 2) for m in product(range(prime), repeat=4)]
    elements = [m for m in pairs if (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]) % prime == 1]
    keys = [min(m.tobytes(), (-m % prime).tobytes()) for m in elements]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    table = np.zeros((len(numbers), 2), int)
    for element, key in zip(elements, keys, strict=True):
        for symbol, generator in enumerate(([[1, 1], [0, 1]], [[0, -1], [1, 0]])):
            image = element @ np.array(generator) % prime
            table[numbers[key], symbol] = numbers[min(image.tobytes(), (-image % prime).tobytes())]
    return Machine(table=table)


def spec_tasks() -> list[str]:
    """Return all tasks of the experiments whose results are with 64."""
    rows = [row for name in SPECS for row in get_spec(name).rows]
    return sorted({task for row in rows if row.model == "sd-ssm" for task in row.tasks})


@pytest.mark.parametrize("name", sorted({*PAPER_TASKS, *spec_tasks(), *LARGE_GROUPS}))
def test_64_where_64_is_enough(name: str) -> None:
    task = get_task(name)
    assert choose_state_size(task).size == 64
    assert resolve_settings("sd-ssm", "scale-free", task).model.mixer.state == 64


def test_64_for_a_simple_group_that_has_no_name() -> None:
    machine = projective_special_linear(7)
    assert machine.n_states == 168 and choose_state_size(get_task(machine)).size == 64


@pytest.mark.parametrize(("name", "size"), [("random:50x4:0", 64), ("random:100x4:0", 128), ("random:300x4:0", 384)])
def test_random_machines_get_more_than_their_states(name: str, size: int) -> None:
    chosen = choose_state_size(get_task(name))
    assert chosen.size == size and str(chosen).startswith(f"state={size} (auto): ")
    assert "\n" not in str(chosen) and len(str(chosen)) < 120


@pytest.mark.parametrize("seed", range(2))
def test_the_size_covers_the_rank(seed: int) -> None:
    generator = np.random.default_rng(seed)
    states = int(generator.integers(100, 250))
    machine = Machine(table=generator.integers(states, size=(states, 3)), outputs=generator.integers(2, size=states))
    size = choose_state_size(get_task(machine)).size
    assert size in STATE_SIZES and size >= MARGIN * machine.minimise().n_states * 0.9


def test_a_machine_beyond_all_sizes_gets_the_largest_and_says_so() -> None:
    chosen = choose_state_size(get_task("random:1000x3:0"))
    assert chosen.size == STATE_SIZES[-1] and "may be too small" in chosen.reason


def test_merged_labels_of_a_group_are_no_group_of_labels() -> None:
    """Any faithful representation distinguishes elements, but not any two sets of elements."""
    merged = Machine(table=get_task("s5").machine.table, outputs=np.random.default_rng(0).integers(2, size=120))
    assert choose_state_size(get_task("s5")).size == 64 and choose_state_size(get_task(merged)).size == 256


def test_a_stated_size_is_kept() -> None:
    task = get_task("random:100x4:0")
    sizes = [
        resolve_settings("sd-ssm", "scale-free", task, values).model.mixer.state
        for values in ({}, {"state": "auto"}, {"state": 64}, {"state": 7})
    ]
    assert sizes == [128, 128, 64, 7]
    assert resolve_settings("sd-ssm", "paper", get_task("a5")).model.mixer.state == 64
    assert resolve_settings("sd-ssm", "scale-free", task.name, {"state": "auto"}).model.mixer.state == 64


def test_other_models_have_no_such_rule() -> None:
    assert resolve_settings("lstm", "default", get_task("random:100x4:0")).model.mixer.state == 64
    with pytest.raises(SettingsError, match="state is 'auto'; it must be a whole number"):
        resolve_settings("lstm", "default", get_task("parity"), {"state": "auto"})


def test_fingerprints_and_folders() -> None:
    def print_of(name: str, values: dict[str, Any]) -> str:
        task = get_task(name)
        return fingerprint(create_config(task, 0, resolve_settings("sd-ssm", "scale-free", task, values), "scale-free"))

    assert print_of("a5", {}) == print_of("a5", {"state": 64}) == print_of("a5", {"state": "auto"})
    assert print_of("random:100x4:0", {}) == print_of("random:100x4:0", {"state": 128})
    assert print_of("random:100x4:0", {}) != print_of("random:100x4:0", {"state": 64})
    folders = [
        default_folder([get_task(name)], "sd-ssm", None, values)
        for name, values in (
            ("a5", {"state": "auto"}), ("a5", {"state": 64}), ("random:100x4:0", {}), ("random:100x4:0", {"state": 64})
        )
    ]  # fmt: skip
    assert folders == [Path("runs") / name for name in ("a5", "a5", "random_100x4_0", "random_100x4_0-state=64")]


def test_a_gpu_takes_every_size_that_is_chosen() -> None:
    task, gpu = get_task("parity"), torch.device("cuda")
    for size in (*STATE_SIZES, 513):
        settings = resolve_settings("sd-ssm", "scale-free", task, {"state": size, "dictionary": 1})
        config = create_config(task, 0, settings, "scale-free")
        if size == 513:
            with pytest.raises(SettingsError, match="transitions of 513 x 513, but the GPU kernels take at most 512"):
                check_config(config, task, gpu)
        else:
            check_config(config, task, gpu)


@pytest.mark.parametrize(("name", "size"), [("prefix:2x4", 64), ("prefix:4x2", 64), ("a5", 128), ("prefix:4x4", 512)])
def test_states_as_targets_need_a_direction_each(name: str, size: int) -> None:
    task = get_task(name)
    chosen = choose_state_size(task, "state")
    assert chosen.size == size and f"{task.minimal.n_states:,} states" in chosen.reason
    assert resolve_settings("sd-ssm", "states", task).model.mixer.state == size


def test_more_states_than_the_largest_size_is_said() -> None:
    assert "too small" in choose_state_size(get_task("s6"), "state").reason
