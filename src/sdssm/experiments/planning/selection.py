"""Selections: which part of an experiment is trained, and for what share of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

from sdssm.errors import did_you_mean
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Row, Spec
from sdssm.models.registry import registered_entry
from sdssm.tasks.library import spell_task
from sdssm.training.planning import expand_seeds

#: The fields of a selection that leave out cells.
FILTERS = ("models", "rows", "tasks")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The part of an experiment to train: models, row labels, tasks, seeds and a budget of steps.

    None selects everything, or the seeds of the experiment. `budget` multiplies the number of steps.

    >>> Selection(tasks=["A5"]).tasks
    ('a5',)
    """

    models: Sequence[str] | None = None
    rows: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    seeds: int | Sequence[int] | None = None  #: how many, or which
    budget: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1000:
            raise SpecError(
                f"the budget is {self.budget}; it multiplies the steps: give a number above 0, at most 1000"
            )
        if self.seeds is not None:
            expand_seeds(self.seeds)
        if self.models is not None:  # an import path by the name that the model was registered under
            object.__setattr__(self, "models", tuple(map(_model_name, self.models)))
        if self.tasks is not None:  # spelled as in the task library
            object.__setattr__(self, "tasks", tuple(map(spell_task, self.tasks)))

    def check(self, specs: Sequence[Spec]) -> None:
        """Raise `SpecError` if a name occurs in none of the experiments, or if no cell is left."""
        rows = [row for spec in specs for row in spec.rows]
        none = "this experiment has no" if len(specs) == 1 else "none of these experiments has a"
        for kind, names, available in (
            ("model", self.models, [row.model for row in rows]),
            ("row", self.rows, [row.label for row in rows]),
            ("task", self.tasks, [task for row in rows for task in row.tasks]),
        ):
            known = list(dict.fromkeys(available))
            for name in names or ():
                if name not in known:
                    # Labels contain spaces and commas, so each is quoted as it is typed.
                    listed = f"known: {', '.join(map(quote, known))}"
                    raise SpecError(f"{none} {kind} {name!r}; {did_you_mean(name, known, listed)}")
        if not any(self.keeps(spec) for spec in specs):
            experiments, filters = ", ".join(spec.name for spec in specs), " and ".join(self.filters)
            raise SpecError(f"nothing is left of {experiments}: no cell has all of the given {filters}; select others")

    @property
    def filters(self) -> list[str]:
        """The names of the filters that are set: models, rows, tasks."""
        return [name for name in FILTERS if getattr(self, name) is not None]

    def keeps(self, spec: Spec) -> bool:
        """Return whether at least one cell of an experiment is selected."""
        return any(self.keeps_cell(row, task) for row in spec.rows for task in row.tasks)

    def keeps_cell(self, row: Row, task: str) -> bool:
        """Return whether the cell of a row and a task is selected."""
        filters = ((self.models, row.model), (self.rows, row.label), (self.tasks, task))
        return all(names is None or name in names for names, name in filters)

    def seeds_of(self, row: Row) -> Sequence[int]:
        """Return the seeds with which a row is trained."""
        return row.seeds if self.seeds is None else expand_seeds(self.seeds)


def _model_name(text: str) -> str:
    """Return the name of a model that is given by its import path; the experiment has imported it by now."""
    entry = registered_entry(text, text)
    return text if entry is None else entry.name


#: The whole experiment with all of its steps.
ALL = Selection()
