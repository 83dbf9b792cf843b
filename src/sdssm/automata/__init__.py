"""Finite automata: the machines that models learn to emulate.

Machine              an immutable, validated Moore machine
get_machine(source)  the machine of a name, a regular expression, a file, a table, or an automaton of another library
Algebra              whether a machine is commutative, a group, solvable, aperiodic
draw(machine)        a state diagram as SVG; write_diagram writes a file
to_json, from_json, to_dot, from_dot, to_att, from_att, read_machine, write_machine
to_networkx, from_networkx, to_automata_lib, from_automata_lib, to_aalpy, from_aalpy, from_pythomata
"""

from sdssm.automata.algebra import Algebra
from sdssm.automata.att import from_att, to_att
from sdssm.automata.bridges import (
    from_aalpy,
    from_automata_lib,
    from_networkx,
    from_pythomata,
    to_aalpy,
    to_automata_lib,
    to_networkx,
)
from sdssm.automata.dot import from_dot, to_dot
from sdssm.automata.drawing import draw
from sdssm.automata.formats import from_json, read_machine, to_json, write_diagram, write_machine
from sdssm.automata.library import get_machine
from sdssm.automata.machine import Machine
from sdssm.automata.regex import regex_machine

__all__ = [
    "Algebra",
    "Machine",
    "draw",
    "from_aalpy",
    "from_att",
    "from_automata_lib",
    "from_dot",
    "from_json",
    "from_networkx",
    "from_pythomata",
    "get_machine",
    "read_machine",
    "regex_machine",
    "to_aalpy",
    "to_att",
    "to_automata_lib",
    "to_dot",
    "to_json",
    "to_networkx",
    "write_diagram",
    "write_machine",
]
