"""Machines that are too large, and texts that would grow into such machines, are refused at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from sdssm.automata import Machine, formats, from_att, from_dot, from_json, get_machine, read_machine, regex_machine
from sdssm.errors import AutomatonError, FormatError, SdssmError
from sdssm.limits import MOST_STATES, MOST_TRANSITIONS


def test_large_machines_are_refused_before_they_are_copied() -> None:
    with pytest.raises(AutomatonError, match="200,000 states; the most is 100,000"):
        Machine(table=np.broadcast_to(np.int64(0), (200_000, 256)))
    with pytest.raises(AutomatonError, match="20,000 states x 256 symbols; the most is 4,194,304 transitions"):
        Machine(table=np.broadcast_to(np.int64(0), (20_000, 256)))
    with pytest.raises(AutomatonError, match="the most is"):
        Machine(table=[[0]] * (MOST_STATES + 1))
    with pytest.raises(AutomatonError, match="the most is"):
        Machine(table=[[0] * (MOST_TRANSITIONS + 1)])


def test_machines_within_the_limits_are_built() -> None:
    for shape in ((5_040, 256), (10_000, 256)):
        assert Machine(table=np.broadcast_to(np.int64(0), shape), outputs=[0] * shape[0]).table.shape == shape


def test_products_are_refused_before_they_are_built() -> None:
    ring = get_machine("z1000")
    for build in (ring.product, ring.direct_product):
        with pytest.raises(AutomatonError, match="1,000,000 states"):
            build(ring)


def test_texts_with_many_states_and_many_symbols_are_refused() -> None:
    """Each has a line for each state with a symbol of its own: the table would have a hundred million entries."""
    n = 9_000
    edges = [(f"q{k}", f"s{k}") for k in range(n)]
    texts = {
        from_att: "\n".join(f"{k} {k} s{k} s{k}" for k in range(n)),
        from_dot: "digraph {" + "; ".join(f"{q} -> {q} [label={s}]" for q, s in edges) + "}",
        from_json: json.dumps({"transitions": {q: {s: q} for q, s in edges}}),
    }
    for read, text in texts.items():
        with pytest.raises(SdssmError, match="9,000 states x 9,000 symbols; the most is"):
            read(text, sink=True)


@pytest.mark.parametrize(
    "pattern",
    ["(((a{99}){99}){99}){99}", "(a|b)*a(a|b){40}", "(a?){500}a{500}", "a{999999999}", "(" * 10_000, "(ab" * 10**6],
)
def test_expressions_that_explode_are_refused_soon(pattern: str) -> None:
    start = process_time()
    with pytest.raises(FormatError) as caught:
        regex_machine(pattern)
    assert process_time() - start < 20  # the limits hold after a second or two
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize("pattern", ["a" * 10_000 + "(", "[" + "a" * 10_000, "(.)" * 5_000])
def test_a_long_expression_is_not_echoed(pattern: str) -> None:
    with pytest.raises(FormatError) as caught:
        regex_machine(pattern)
    assert len(str(caught.value)) <= 300


def test_pipes_and_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(FormatError, match="it is not a regular file"):
        read_machine(tmp_path / "pipe.json")
    monkeypatch.setattr(formats, "MOST_BYTES", 10)
    (tmp_path / "large.json").write_text('{"table": [[0]]}')
    with pytest.raises(FormatError, match="it has 16 bytes; the most is 10"):
        read_machine(tmp_path / "large.json")
