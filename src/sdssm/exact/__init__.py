"""Exactness: from automata to weights, from weights to automata, and what is proved of a model at every length.

compile    a machine as a model that emulates it
extract    the machine that a trained model implements, with the evidence for it
certify    a length up to which every string is proved to be told right
horizon    the longest length at which a model is still right, measured
snap       extract, then compile back
"""

from sdssm.exact.certify import Certificate, certify
from sdssm.exact.compile import compile  # noqa: A004  # inside the package its name is clear
from sdssm.exact.errors import ExactError
from sdssm.exact.extract import Extraction, extract
from sdssm.exact.horizon import Horizon, horizon
from sdssm.exact.snap import Snapped, snap

__all__ = [
    "Certificate",
    "ExactError",
    "Extraction",
    "Horizon",
    "Snapped",
    "certify",
    "compile",
    "extract",
    "horizon",
    "snap",
]
