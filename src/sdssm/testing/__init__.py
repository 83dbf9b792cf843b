"""The laws that every model obeys, as checks for models and for test suites.

check_model    check a factory, a module or a named model; an AssertionError names each broken law
law_tests      the same as one test for each law, for pytest
check_laws     the results for one model, trained or not
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.testing.catalogue import LAWS
    from sdssm.testing.law import Law, LawResult
    from sdssm.testing.law_checks import check_laws
    from sdssm.testing.model_checks import LawError, LawTest, check_model, law_tests
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "LAWS": "sdssm.testing.catalogue",
            "Law": "sdssm.testing.law",
            "LawError": "sdssm.testing.model_checks",
            "LawResult": "sdssm.testing.law",
            "LawTest": "sdssm.testing.model_checks",
            "check_laws": "sdssm.testing.law_checks",
            "check_model": "sdssm.testing.model_checks",
            "law_tests": "sdssm.testing.model_checks",
        },
    )

__all__ = ["LAWS", "Law", "LawError", "LawResult", "LawTest", "check_laws", "check_model", "law_tests"]
