"""From an automaton to weights: build a model that emulates a given machine, without training."""

from sdssm.exact.compilation.compiler import compile  # noqa: A004  # qualified by the package name it is unambiguous
from sdssm.exact.compilation.diagonal import phase_error
from sdssm.exact.compilation.emulation import EmulationCheck, check_emulation, default_check_length

__all__ = ["EmulationCheck", "check_emulation", "compile", "default_check_length", "phase_error"]
