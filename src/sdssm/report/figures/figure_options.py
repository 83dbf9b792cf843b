"""The options of a figure."""

from __future__ import annotations

from dataclasses import dataclass

from sdssm.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """What a figure shows beyond its runs.

    Attributes:
        columns: 1 (3.3 in wide) or 2 (7 in).
        view: of `accuracy`, as in `make_figure` of `sdssm.report`.
        dictionary: whether `matrices` and `eigenvalues` show the dictionary instead of the matrices of symbols.
        strings: points of `states` at each length, at most.
    """

    columns: int = 2
    view: str = "auto"
    dictionary: bool = False
    strings: int = 128

    def __post_init__(self) -> None:
        if self.strings < 1:
            raise SettingsError(f"strings must be at least 1, got {self.strings}", shell="--strings must be at least 1")
