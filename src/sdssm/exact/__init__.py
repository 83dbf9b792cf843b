"""Convert between automata and weights, and prove or measure how long strings a model classifies correctly.

==========  ==================================================================  ===================
function    result                                                              subpackage
==========  ==================================================================  ===================
`compile`   a model that emulates a given machine; nothing is trained           `compilation`
`extract`   the machine that a trained model implements, with the evidence      `extraction`
`certify`   the certified length: all valid strings up to it are proved correct `certification`
`horizon`   the longest length at which a model is still correct, measured      `measurement`
`snap`      an exact model in place of a trained one: `extract`, then `compile` `snapping`
==========  ==================================================================  ===================
"""

from sdssm.exact.certification import Certificate, certify
from sdssm.exact.compilation import compile  # noqa: A004  # qualified by the package name it is unambiguous
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction import Extraction, extract
from sdssm.exact.measurement import Horizon, horizon
from sdssm.exact.snapping import SnappedModel, snap

__all__ = [
    "Certificate",
    "ExactError",
    "Extraction",
    "Horizon",
    "SnappedModel",
    "certify",
    "compile",
    "extract",
    "horizon",
    "snap",
]
