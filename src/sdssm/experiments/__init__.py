"""Experiments: tables as data, each made by one command.

spec_named, spec_names   the experiments of the package, or a TOML file of your own
make_plan                the runs of an experiment, in folders that all experiments share
run_plan, evaluate_plan  train and evaluate what is missing
engine_named             the same on this machine, or on a Ray cluster
write_results            aggregate into a results folder
"""

from sdssm.experiments.catalogue import spec_named, spec_names
from sdssm.experiments.engines import Engine, engine_named
from sdssm.experiments.plan import Plan, PlannedRun, make_plan
from sdssm.experiments.results import check_results, write_results
from sdssm.experiments.runner import evaluate_plan, run_plan
from sdssm.experiments.scores import SpecError
from sdssm.experiments.spec import Spec

__all__ = [
    "Engine",
    "Plan",
    "PlannedRun",
    "Spec",
    "SpecError",
    "check_results",
    "engine_named",
    "evaluate_plan",
    "make_plan",
    "run_plan",
    "spec_named",
    "spec_names",
    "write_results",
]
