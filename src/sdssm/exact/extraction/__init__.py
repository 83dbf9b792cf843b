"""From weights to an automaton: find the machine that a trained model implements."""

from sdssm.exact.defaults import COMPARED_LENGTHS as LENGTHS
from sdssm.exact.extraction.candidates import Fidelity
from sdssm.exact.extraction.extractor import Extraction, extract

__all__ = ["LENGTHS", "Extraction", "Fidelity", "extract"]
