"""The machine of an argument, for the functions that `get_machine` itself needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # used in annotations only: an import at run time would be circular
    from sdssm.automata.machine import Machine


def as_machine(source: Any) -> Machine:
    """Return the machine of whatever `get_machine` takes.

    >>> as_machine("regex:(ab)*").output("abab")
    1
    """
    from sdssm.automata.library import get_machine  # it imports the modules that call this function

    return get_machine(source)
