"""Experiments: tables that are defined as data, and reproduced by one command or a few calls.

list_experiments, get_spec  the experiments of the package, or one of your own from a TOML file
make_plan, make_plans       the runs of one experiment or of several, in folders that all experiments share
Selection                   which part of an experiment is trained
merge_plans                 several plans, to be trained as one
reuse_runs                  a plan with missing runs replaced by existing ones from other folders
run_plan, evaluate_plan     train and evaluate what is missing
get_executor                run plans on this machine, or on a Ray cluster
write_results               aggregate the runs into a results folder
make_sweep_spec, Search     an experiment that searches settings, and the search strategy
Sweep, run_sweep            the search
open_study                  a search as a study of Optuna

The code is in five subpackages: specs, planning, execution, results and sweeps. Each imports only those before it.
"""

from sdssm.experiments.execution.evaluations import evaluate_plan
from sdssm.experiments.execution.executors import Executor, LocalExecutor, get_executor
from sdssm.experiments.execution.runner import run_plan
from sdssm.experiments.planning.plan import Plan, PlannedRun, TrainingPlan, make_plan, make_plans, merge_plans
from sdssm.experiments.planning.reuse import reuse_runs
from sdssm.experiments.planning.selection import Selection
from sdssm.experiments.results.folder import check_results, write_results
from sdssm.experiments.specs.catalogue import get_spec, list_experiments
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Spec
from sdssm.experiments.sweeps.optuna_search import open_study
from sdssm.experiments.sweeps.search import Search
from sdssm.experiments.sweeps.sweep import Sweep, run_sweep
from sdssm.experiments.sweeps.sweep_spec import make_sweep_spec

__all__ = [
    "Executor",
    "LocalExecutor",
    "Plan",
    "PlannedRun",
    "Search",
    "Selection",
    "Spec",
    "SpecError",
    "Sweep",
    "TrainingPlan",
    "check_results",
    "evaluate_plan",
    "get_executor",
    "get_spec",
    "list_experiments",
    "make_plan",
    "make_plans",
    "make_sweep_spec",
    "merge_plans",
    "open_study",
    "reuse_runs",
    "run_plan",
    "run_sweep",
    "write_results",
]
