"""Hypothesis strategies for random machines and strings."""

from __future__ import annotations

from hypothesis import strategies as st

from sdssm.automata import Machine

#: Names with quotes, commas, backslashes, brackets and spaces, which are special characters in some format.
names = st.text(alphabet='abc012 ",\\[]{}<>&;/*|é→\n\t', min_size=1, max_size=6)


@st.composite
def machines(
    draw: st.DrawFn,
    *,
    most_states: int = 8,
    most_symbols: int = 3,
    symbols: int | None = None,
    outputs: int = 3,
    named: bool = False,
) -> Machine:
    """Draw a machine; `symbols` fixes the number of symbols, `named` draws names of states and symbols too."""
    n_states = draw(st.integers(1, most_states))
    n_symbols = symbols if symbols is not None else draw(st.integers(1, most_symbols))
    row = st.lists(st.integers(0, n_states - 1), min_size=n_symbols, max_size=n_symbols)

    def unique(count: int) -> st.SearchStrategy[list[str]]:
        return st.lists(names, min_size=count, max_size=count, unique=True)

    return Machine(
        table=draw(st.lists(row, min_size=n_states, max_size=n_states)),
        start=draw(st.integers(0, n_states - 1)),
        outputs=draw(st.lists(st.integers(0, outputs - 1), min_size=n_states, max_size=n_states)),
        states=draw(st.none() | unique(n_states)) if named else None,
        symbols=draw(st.none() | unique(n_symbols)) if named else None,
    )


def words(n_symbols: int, most: int = 12) -> st.SearchStrategy[list[int]]:
    """Return a strategy for strings of up to `most` symbols."""
    return st.lists(st.integers(0, n_symbols - 1), max_size=most)
