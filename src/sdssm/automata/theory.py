"""Summarise in one sentence what is proved about emulating a machine.

"Proposition 1" is the paper's: with x_0 = enc(q_0), no input matrix, and transition matrices that are diagonal in one
common basis, a single layer's state does not depend on the order of the symbols.
"""

from __future__ import annotations

from sdssm.automata.algebra import Algebra

#: Barrington (1989) and Barrington, Compton, Straubing and Therien (1992).
_NOT_SOLVABLE = (
    "not solvable: emulating it is complete for NC1, so no model in TC0 does so at every length unless TC0 = NC1"
)


def summarise_theory(algebra: Algebra) -> str:
    """Return one sentence on which models can emulate a machine with this algebra.

    A dense layer with as many dimensions as the machine has states always suffices.
    """
    dense = f"one dense layer of state size {len(algebra.table)} emulates it exactly"
    if algebra.is_commutative and algebra.is_group:
        return "a commutative group: unit-modulus diagonal matrices emulate it exactly"
    if algebra.is_commutative:
        return f"commutative but not a group: Proposition 1 does not exclude one diagonal layer, and {dense}"
    excluded = "one diagonal layer without input matrix cannot emulate it (Proposition 1)"
    if algebra.is_solvable is False:
        return f"not commutative: {excluded}; {_NOT_SOLVABLE}; {dense}"
    return f"not commutative: {excluded}; {dense}"
