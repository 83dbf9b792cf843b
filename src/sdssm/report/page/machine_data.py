"""Machines as the page shows and runs them."""

from __future__ import annotations

from functools import lru_cache

from sdssm.automata import Machine
from sdssm.automata.drawing import draw
from sdssm.errors import SdssmError
from sdssm.report.page.json_fields import LONGEST_NAME, clip_text
from sdssm.report.page.page_types import MachineData

#: Transitions of the largest machine that is part of a page.
MOST_TRANSITIONS = 20_000


def fits_page(machine: Machine) -> bool:
    """Return whether a machine is small enough to be part of a page, with its table."""
    return bool(machine.table.size <= MOST_TRANSITIONS)


def make_machine_data(machine: Machine, title: str, *, with_diagram: bool = True) -> MachineData:
    """Return a machine with its state diagram.

    A machine that is too large for a page has no states and no table, and `diagram_note` says so.
    """
    fits = fits_page(machine)
    note = None if fits else f"not part of the page: it has {machine.n_states:,} states"
    diagram = None
    if fits and with_diagram:
        try:
            diagram = _draw_diagram(machine, clip_text(title, LONGEST_NAME))
        except SdssmError as error:  # too many states or arrows
            note = f"no diagram: {error}"
    return {
        "start": machine.start,
        "symbols": [clip_text(name, LONGEST_NAME) for name in machine.symbol_names],
        "states": [clip_text(name, LONGEST_NAME) for name in machine.state_names] if fits else [],
        "outputs": machine.outputs.tolist() if fits else [],
        "table": machine.table.tolist() if fits else [],
        "n_classes": machine.n_outputs,
        "diagram": diagram,
        "diagram_note": note,
    }


@lru_cache(maxsize=128)  # the seeds of a training often have the same automaton
def _draw_diagram(machine: Machine, title: str) -> str:
    return draw(machine, title=title)
