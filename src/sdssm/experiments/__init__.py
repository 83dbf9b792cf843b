"""Experiments: tables as data, each made by one command.

spec_named, spec_names   the experiments of the package, or a TOML file of your own
make_plan, make_plans    the runs of an experiment, or of several, in folders that all experiments share
Narrowing                which part of them is trained
together                 several plans to be trained as one
reuse                    the same plan with runs that were made elsewhere
run_plan, evaluate_plan  train and evaluate what is missing
engine_named             the same on this machine, or on a Ray cluster
write_results            aggregate into a results folder
sweep_spec, Search       an experiment that searches: values and ranges, and how they are tried
Sweep, run_sweep         the search itself
open_study               one by Optuna, as a study of Optuna's own
"""

from sdssm.experiments.execution.executors import Engine, LocalEngine, engine_named
from sdssm.experiments.execution.runner import evaluate_plan, run_plan
from sdssm.experiments.planning.plan import Plan, PlannedRun, Trainings, make_plan, make_plans, together
from sdssm.experiments.planning.reuse import reuse
from sdssm.experiments.planning.selection import Narrowing
from sdssm.experiments.results.folder import check_results, write_results
from sdssm.experiments.specs.catalogue import spec_named, spec_names
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Spec
from sdssm.experiments.sweeps.optuna_search import open_study
from sdssm.experiments.sweeps.search import Search
from sdssm.experiments.sweeps.sweep import Sweep, run_sweep
from sdssm.experiments.sweeps.sweep_spec import sweep_spec

__all__ = [
    "Engine",
    "LocalEngine",
    "Narrowing",
    "Plan",
    "PlannedRun",
    "Search",
    "Spec",
    "SpecError",
    "Sweep",
    "Trainings",
    "check_results",
    "engine_named",
    "evaluate_plan",
    "make_plan",
    "make_plans",
    "open_study",
    "reuse",
    "run_plan",
    "run_sweep",
    "spec_named",
    "spec_names",
    "sweep_spec",
    "together",
    "write_results",
]
