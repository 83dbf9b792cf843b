"""Experiments: tables that are defined as data, and reproduced by one command or a few calls.

reproduce                   train, evaluate and tabulate an experiment in one call
list_experiments, get_spec  the experiments of the package, or one of your own from a TOML file
make_plan, make_plans       the runs of one experiment or of several, in folders that all experiments share
Selection                   which part of an experiment is trained
merge_plans                 several plans, to be trained as one
reuse_runs                  a plan with missing runs replaced by existing ones from other folders
run_plan, evaluate_plan     train and evaluate what is missing
get_executor                run plans on this machine, or on a Ray cluster
write_results               aggregate the runs into a results folder
selected_results            the results of the selected part alone, as the command prints them
make_sweep_spec, Search     an experiment that searches settings, and the search strategy
Sweep, run_sweep            the search
open_study                  a search as a study of Optuna

The code is in five subpackages: specs, planning, execution, results and sweeps. Each imports only those before it;
reproduction.py is above them.
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.experiments.execution.evaluations import evaluate_plan
    from sdssm.experiments.execution.executors import Executor, LocalExecutor, get_executor
    from sdssm.experiments.execution.runner import run_plan
    from sdssm.experiments.planning.plan import Plan, PlannedRun, TrainingPlan, make_plan, make_plans, merge_plans
    from sdssm.experiments.planning.reuse import reuse_runs
    from sdssm.experiments.planning.selection import Selection
    from sdssm.experiments.reproduction import Reproduction, reproduce
    from sdssm.experiments.results.folder import check_results, selected_results, write_results
    from sdssm.experiments.specs.catalogue import get_spec, list_experiments
    from sdssm.experiments.specs.scores import SpecError
    from sdssm.experiments.specs.spec import Spec
    from sdssm.experiments.sweeps.optuna_search import open_study
    from sdssm.experiments.sweeps.search import Search
    from sdssm.experiments.sweeps.sweep import Sweep, run_sweep
    from sdssm.experiments.sweeps.sweep_spec import make_sweep_spec
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "Executor": "sdssm.experiments.execution.executors",
            "LocalExecutor": "sdssm.experiments.execution.executors",
            "Plan": "sdssm.experiments.planning.plan",
            "PlannedRun": "sdssm.experiments.planning.plan",
            "Reproduction": "sdssm.experiments.reproduction",
            "Search": "sdssm.experiments.sweeps.search",
            "Selection": "sdssm.experiments.planning.selection",
            "Spec": "sdssm.experiments.specs.spec",
            "SpecError": "sdssm.experiments.specs.scores",
            "Sweep": "sdssm.experiments.sweeps.sweep",
            "TrainingPlan": "sdssm.experiments.planning.plan",
            "check_results": "sdssm.experiments.results.folder",
            "evaluate_plan": "sdssm.experiments.execution.evaluations",
            "get_executor": "sdssm.experiments.execution.executors",
            "get_spec": "sdssm.experiments.specs.catalogue",
            "list_experiments": "sdssm.experiments.specs.catalogue",
            "make_plan": "sdssm.experiments.planning.plan",
            "make_plans": "sdssm.experiments.planning.plan",
            "make_sweep_spec": "sdssm.experiments.sweeps.sweep_spec",
            "merge_plans": "sdssm.experiments.planning.plan",
            "open_study": "sdssm.experiments.sweeps.optuna_search",
            "reproduce": "sdssm.experiments.reproduction",
            "reuse_runs": "sdssm.experiments.planning.reuse",
            "run_plan": "sdssm.experiments.execution.runner",
            "run_sweep": "sdssm.experiments.sweeps.sweep",
            "selected_results": "sdssm.experiments.results.folder",
            "write_results": "sdssm.experiments.results.folder",
        },
    )

__all__ = [
    "Executor",
    "LocalExecutor",
    "Plan",
    "PlannedRun",
    "Reproduction",
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
    "reproduce",
    "reuse_runs",
    "run_plan",
    "run_sweep",
    "selected_results",
    "write_results",
]
