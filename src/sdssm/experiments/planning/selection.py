"""Which part of an experiment is trained, and for how many of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdssm.errors import did_you_mean
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Row, Spec
from sdssm.tasks import get_task as named_task
from sdssm.training.planning import checked_seeds

#: What leaves out cells.
FILTERS = ("models", "rows", "tasks")


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """The cells of an experiment that are trained, by models, labels of rows and tasks; with which seeds; and for how
    many times its steps. None stands for all, or for the experiment's own.

    >>> Narrowing(tasks=["A5"]).tasks
    ('a5',)
    """

    models: Sequence[str] | None = None
    rows: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    seeds: int | Sequence[int] | None = None  #: how many, or which
    budget: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1000:
            raise SpecError(f"the budget is {self.budget}; it scales the steps and must be above 0 and at most 1000")
        if self.seeds is not None:
            checked_seeds(self.seeds)
        if self.tasks is not None:  # as the library spells them
            object.__setattr__(self, "tasks", tuple(named_task(name).name for name in self.tasks))

    def check(self, specs: Sequence[Spec]) -> None:
        """Every name is that of something in one of these experiments, and of one of them something is left."""
        rows = [row for spec in specs for row in spec.rows]
        none = "this experiment has no" if len(specs) == 1 else "none of these experiments has a"
        for what, asked, there in (
            ("model", self.models, [row.model for row in rows]),
            ("row", self.rows, [row.label for row in rows]),
            ("task", self.tasks, [task for row in rows for task in row.tasks]),
        ):
            known = list(dict.fromkeys(there))
            for name in asked or ():
                if name not in known:
                    raise SpecError(f"{none} {what} {name!r}; {did_you_mean(name, known)}")
        if not any(self.leaves(spec) for spec in specs):
            names, asked = ", ".join(spec.name for spec in specs), " and ".join(self.given)
            raise SpecError(f"nothing is left of {names}: no cell has the {asked} asked for; ask for others")

    @property
    def given(self) -> list[str]:
        """What leaves out cells of it."""
        return [name for name in FILTERS if getattr(self, name) is not None]

    def leaves(self, spec: Spec) -> bool:
        """Whether an experiment has a cell that is trained."""
        return any(self.wants(row, task) for row in spec.rows for task in row.tasks)

    def wants(self, row: Row, task: str) -> bool:
        """Whether a cell is trained."""
        asked = ((self.models, row.model), (self.rows, row.label), (self.tasks, task))
        return all(names is None or name in names for names, name in asked)

    def seeds_of(self, row: Row) -> Sequence[int]:
        return row.seeds if self.seeds is None else checked_seeds(self.seeds)


#: All of an experiment, as it stands.
ALL = Narrowing()
