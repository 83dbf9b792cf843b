"""The laws that every model obeys, as checks for models and for test suites."""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.testing.catalogue import LAWS
    from sdssm.testing.law import Law, LawResult
    from sdssm.testing.law_checks import check_laws
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "LAWS": "sdssm.testing.catalogue",
            "Law": "sdssm.testing.law",
            "LawResult": "sdssm.testing.law",
            "check_laws": "sdssm.testing.law_checks",
        },
    )

__all__ = ["LAWS", "Law", "LawResult", "check_laws"]
