"""The report card of a model: accuracy by length, where it fails, its automaton, laws and costs.

check       measure the report card of a model
ReportCard  the result: a table, JSON, Markdown
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.checking.checker import check
    from sdssm.checking.report_card import ReportCard
else:
    __getattr__, __dir__ = import_on_use(
        __name__, {"ReportCard": "sdssm.checking.report_card", "check": "sdssm.checking.checker"}
    )

__all__ = ["ReportCard", "check"]
