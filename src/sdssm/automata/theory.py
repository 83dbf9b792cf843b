"""What is proved about emulating a machine, in one sentence, and no more than that.

"Proposition 1" is the paper's: with x_0 = enc(q_0), no input matrix, and transition matrices that are diagonal in one
common basis, a single layer's state does not depend on the order of the symbols.
"""

from __future__ import annotations

from sdssm.automata.algebra import Algebra

#: Barrington (1989) and Barrington, Compton, Straubing and Therien (1992).
_NOT_SOLVABLE = (
    "not solvable: emulating it is complete for NC1, so no model in TC0 does so at every length unless TC0 = NC1"
)


def sentence(algebra: Algebra) -> str:
    """The sentence for a machine with this algebra; a dense layer as wide as the machine has states always suffices."""
    dense = f"one dense layer of state size {len(algebra.table)} emulates it exactly"
    if algebra.is_commutative and algebra.is_group:
        return "a commutative group: unit-modulus diagonal matrices emulate it exactly"
    if algebra.is_commutative:
        return f"commutative but not a group: Proposition 1 does not exclude one diagonal layer, and {dense}"
    ruled_out = "one diagonal layer without input matrix cannot emulate it (Proposition 1)"
    if algebra.is_solvable is False:
        return f"not commutative: {ruled_out}; {_NOT_SOLVABLE}; {dense}"
    return f"not commutative: {ruled_out}; {dense}"
