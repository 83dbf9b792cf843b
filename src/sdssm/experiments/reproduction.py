"""Reproduce an experiment in one call: train what is missing, evaluate, and store the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.devices import device_name
from sdssm.display import Displayed, ResultTable
from sdssm.experiments.default_folders import OUT, RESULTS, reused_folders
from sdssm.experiments.execution.executors import Executor, LocalExecutor
from sdssm.experiments.planning.plan import make_plan
from sdssm.experiments.planning.reuse import reuse_runs
from sdssm.experiments.planning.selection import Selection
from sdssm.experiments.results.claims import check_claims, compare_claims
from sdssm.experiments.results.folder import check_results, save_results, selected_results, write_results
from sdssm.experiments.results.timing import measure_runtime
from sdssm.experiments.specs.catalogue import get_spec, published_numbers
from sdssm.experiments.specs.scores import Score, SpecError
from sdssm.experiments.specs.spec import Spec
from sdssm.formatting import UNKNOWN, count_of, format_chance, format_percent
from sdssm.progress import ProgressOption
from sdssm.training.progress import resolve_progress


@dataclass(frozen=True, repr=False)
class Reproduction(Displayed):
    """The results of an experiment: a table with one row for each cell, and the folder that holds all of them.

    `results` is a dictionary as in results.json, of the part that was asked for. `to_pandas()` has one row for each
    cell and score.
    """

    spec: Spec
    folder: Path
    results: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<Reproduction: {self.spec.name}, {count_of(len(self.results['cells']), 'cell')}, in {self.folder}>"

    def to_table(self) -> ResultTable:
        """Return the table that is printed; cells that were not measured are left out."""
        kind = self.results["kind"]
        rows = [_ROWS[kind](cell) for cell in self.results["cells"]]
        shown = [row for row in rows if row is not None]
        headers = list(shown[0]) if shown else []
        texts = ("row", "column", "score", "claim", "what")
        return ResultTable(
            headers,
            [list(row.values()) for row in shown],
            title=self.spec.title,
            notes=[] if shown else ["nothing was measured"],
            right=[header for header in headers if header not in texts],
        )

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each cell and score, as in results.json."""
        return [dict(cell) for cell in self.results["cells"]]


def reproduce(
    experiment: str | Path | Spec,
    *,
    models: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    budget: float = 1.0,
    device: str = "auto",
    workers: int = 1,
    executor: Executor | None = None,
    out: Path | str = OUT,
    results: Path | str = RESULTS,
    reuse: Sequence[Path | str] | None = None,
    progress: ProgressOption = False,
) -> Reproduction:
    """Train and evaluate what an experiment lacks, and store its results, as `sdssm reproduce` does.

    Finished runs are not trained again; after an interruption, the same call continues. The tables are written by
    `sdssm.report.tables.write_tables(reproduction.folder)`.

    Args:
        experiment: a name of `list_experiments`, the path of a TOML file, or a `Spec`.
        models: train only these, as in `Selection`.
        rows: train only these rows of the table.
        tasks: train only these tasks.
        seeds: how many, or which.
        budget: multiplies the steps.
        device: where to train and evaluate.
        workers: the number of evaluation processes.
        executor: another place to train and evaluate, such as `get_executor("ray")`, instead of `device`.
        out: the parent of the run folders.
        results: the parent of the results folder.
        reuse: folders from which finished runs are taken; None: `runs`, if it exists.
        progress: True shows the progress of training on standard output, as `sdssm.train` does, and that of
            evaluations and timings on standard error; a function receives the events of evaluations and timings.
            Otherwise messages of the training are warnings.
    """
    spec = experiment if isinstance(experiment, Spec) else get_spec(experiment)
    folder = Path(results) / spec.name
    selection = Selection(models=models, rows=rows, tasks=tasks, seeds=seeds, budget=budget)
    check_results(spec, folder)
    command = f"sdssm.reproduce({spec.name!r}, {_describe(selection)})".replace(", )", ")")
    if spec.kind != "accuracy":
        if selection != Selection():
            raise SpecError(f"{spec.name} trains nothing, and {_describe(selection)} is about training; leave it out")
        values = measure_untrained(spec, folder, device, command=command, progress=progress)
        return Reproduction(spec, folder, values)
    published_numbers(spec)
    plan = reuse_runs(make_plan(spec, Path(out), selection), reused_folders(reuse))
    with LocalExecutor(device, workers=workers) if executor is None else executor as engine:
        engine.run_plan(plan, resolve_progress(progress is True, keep=False))
        engine.evaluate_plan(plan, progress=progress)
        write_results(plan, folder, command=command, device=engine.device_name)
    return Reproduction(spec, folder, selected_results(plan))


def measure_untrained(
    spec: Spec, folder: Path, device: str, *, command: str, progress: ProgressOption = False
) -> dict[str, Any]:
    """Store and return the results of an experiment that trains nothing, as in results.json.

    It measures times, or compares claims with the results beside the folder.
    """
    if spec.kind == "claims":
        check_claims(spec)
        values = compare_claims(spec, folder.parent)
    else:
        values = measure_runtime(spec, device, progress)
    save_results(spec, folder, values, command=command, device=device_name(device))
    return values


def _describe(selection: Selection) -> str:
    """Return the arguments of a selection that are not the default."""
    values = {name: getattr(selection, name) for name in ("models", "rows", "tasks", "seeds")}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    words = [f"{name}={value!r}" for name, value in values.items() if value is not None]
    return ", ".join([*words, *([f"budget={selection.budget:g}"] if selection.budget != 1 else [])])


# -- rows of the printed table -----------------------------------------------------------------------------------------


def _accuracy_row(cell: Mapping[str, Any]) -> dict[str, str] | None:
    if cell["max"] is None:
        return None
    form = format_percent if Score(cell["score"]).threshold is None else _format_length
    constant = cell.get("best_constant")
    return {
        "row": cell["row"],
        "column": cell["column"],
        "score": cell["score"],
        "max %": form(cell["max"]),
        "average %": form(cell["average"]),
        "published max %": UNKNOWN if cell["published_max"] is None else f"{cell['published_max']:g}",
        "chance %": format_chance(cell["chance"]),
        "best constant %": UNKNOWN if constant is None else format_percent(constant),
        "seeds": str(cell["seeds"]),
        "steps": f"{cell['steps']:,}",
    }


def _format_length(length: float) -> str:
    return f"length {length:,.0f}"


def _timing_row(cell: Mapping[str, Any]) -> dict[str, str]:
    published = UNKNOWN if cell["published"] is None else f"{cell['published']:g}"
    return {
        "row": cell["row"],
        "column": cell["column"],
        "value": f"{cell['value']:.3g} {cell['unit']}".strip(),
        "published": published,
    }


def _claim_row(cell: Mapping[str, Any]) -> dict[str, str]:
    ends = [cell[name] for name in ("least", "greatest") if cell[name] is not None]
    form: Callable[[float], str] = str if cell["figure"] == "first_below_99" else format_percent
    return {
        "claim": cell["id"],
        "what": f"{cell['model']}, {cell['task']}: {cell['quantity']}",
        "published": f"{cell['value']} {cell['unit']}".strip(),
        "ours": " to ".join(dict.fromkeys(map(form, ends))) or ("never" if cell["never"] else UNKNOWN),
        "chance %": format_chance(cell["chance_least"], cell["chance_greatest"]),
    }


_ROWS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, str] | None]] = {
    "accuracy": _accuracy_row,
    "timing": _timing_row,
    "claims": _claim_row,
}
