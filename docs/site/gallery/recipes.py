"""The runs of the gallery: which models train on which tasks, and for how many steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sdssm
from sdssm.evaluation.stored import EVALUATION_FILE
from sdssm.exact import certify, extract, horizon, store_result
from sdssm.models.model_folder import CERTIFICATE_FILE
from sdssm.runs import RunFolder
from sdssm.runs.own_files import EXTRACTION_FILE, HORIZON_FILE, STATES_FILE

#: Seconds that a proof or an extraction may take, and the greatest length at which a run is measured.
MAX_SECONDS, MAX_LENGTH = 60.0, 100_000


@dataclass(frozen=True)
class Recipe:
    """A training of the gallery with the default settings of its model, one seed, on a CPU."""

    task: str
    model: str
    steps: int

    def folder(self, runs: Path) -> Path:
        """Return the folder of the run below the folder of all runs."""
        return runs / self.model / self.task / "seed-0"


#: The default model on the paper's nine tasks, with fewer steps than the 40,000 of the default recipe, and models that
#: learn the training lengths of a task in a short training and fail beyond them.
RECIPES = (
    Recipe("parity", "sd-ssm", 6_000),
    Recipe("parity", "complex-diagonal", 2_000),
    Recipe("even_pairs", "sd-ssm", 6_000),
    Recipe("cycle", "sd-ssm", 6_000),
    Recipe("cycle", "complex-diagonal", 2_000),
    Recipe("arithmetic", "sd-ssm", 20_000),
    Recipe("c2xc4", "sd-ssm", 6_000),
    Recipe("c2xc4", "complex-diagonal", 2_000),
    Recipe("d4", "sd-ssm", 6_000),
    Recipe("d4", "regular-lrnn", 1_500),
    Recipe("a5", "sd-ssm", 6_000),
    Recipe("a5", "regular-lrnn", 1_500),
    Recipe("c2xc30", "sd-ssm", 8_000),
    Recipe("d30", "sd-ssm", 8_000),
)


def make_run(recipe: Recipe, runs: Path) -> RunFolder:
    """Train a recipe unless its run is there already, and return the run."""
    folder = recipe.folder(runs)
    if (folder / "config.json").exists():
        run = RunFolder.open(folder)
        if run.status == "finished" and run.config.train.steps == recipe.steps:
            return run
    print(f"train {recipe.model} on {recipe.task}, {recipe.steps:,} steps", flush=True)
    [run] = sdssm.train(
        recipe.task, model=recipe.model, steps=recipe.steps, out=folder.parent, overwrite=True, device="cpu"
    )
    return run


def measure_run(run: RunFolder) -> None:
    """Evaluate a run, extract its automaton, prove and measure a length, each unless its folder has it."""

    def has(name: str) -> bool:
        return (run.path / name).exists()

    print(f"measure {run.path}", flush=True)
    if not (has(EVALUATION_FILE) and has(STATES_FILE)):
        sdssm.evaluate(run, device="cpu", overwrite=True)
    if not has(EXTRACTION_FILE):
        store_result(run, extract(run, max_seconds=MAX_SECONDS))
    if not has(CERTIFICATE_FILE) and run.config.model.name == "sd-ssm":
        store_result(run, certify(run, max_seconds=MAX_SECONDS))
    if not has(HORIZON_FILE):
        store_result(run, horizon(run, max_length=MAX_LENGTH))
