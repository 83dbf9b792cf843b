"""How the command starts: without torch where it is not needed, and Ctrl-C at any moment."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sdssm
from sdssm.cli.parser import COMMANDS
from tests.programs import SDSSM

DATA = Path(__file__).parents[1] / "data" / "written-by-0.1.0"
SOURCE = Path(sdssm.__file__).parent
#: Commands that need no torch: their names, help and lists of what there is, and errors in their options.
WITHOUT_TORCH = [
    ["--version"],
    ["--help"],
    *([command, "--help"] for command in COMMANDS),
    ["trian"],
    ["train", "a5", "--step", "10"],
    ["train", "paritty"],
    ["train", "a5", "--device", "gpu"],
    ["train", "a5", "--model", "mambo"],
    ["train", "a5", "--model", "missing_package.models:Net"],
    ["train", "a5", "--model", "missing_package.models.Net"],
    ["models", "missing_package.models:Net"],
    ["train", "a5", "--set", "stat=3"],
    ["tasks"],
    ["tasks", "a5"],
    ["tasks", "show", "arithmetic", "--json"],
    ["settings"],
    ["settings", "mamba", "--json"],
    ["completion", "bash"],
    ["completion", "fish"],
    ["runs", str(DATA)],
    ["runs", "nowhere"],
    ["report", "nowhere"],
    ["figure", "states", "nowhere", "-o", "states.pdf"],
    ["reproduce", "--list"],
]
RUN_ALL = """
import contextlib, io, json, sys
from sdssm.cli import main
needed = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(command)
        except SystemExit:
            pass
    if "torch" in sys.modules:
        needed.append(command)
        for name in [name for name in sys.modules if name.split(".")[0] in ("torch", "sdssm")]:
            del sys.modules[name]  # so that the next command starts anew
        from sdssm.cli import main
print(json.dumps(needed))
"""


def run_python(code: str, *arguments: str) -> str:
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return result.stdout


def test_commands_that_only_list_or_refuse_import_no_torch() -> None:
    needed = json.loads(run_python(RUN_ALL, json.dumps(WITHOUT_TORCH)))
    assert not needed, "\n".join("torch was imported by: sdssm " + " ".join(command) for command in needed)


def test_the_package_imports_torch_when_a_name_needs_it() -> None:
    code = """
import sys
import sdssm
assert {"train", "ops", "layers", "training"} <= set(dir(sdssm)) and set(sdssm.__all__) <= set(dir(sdssm))
assert "numpy" not in sys.modules and "torch" not in sys.modules
assert sdssm.task("a5").n_classes == 60 and sdssm.list_models() and sdssm.list_experiments()
assert "torch" not in sys.modules
from sdssm import train
assert "torch" in sys.modules and train is sdssm.train is sdssm.training.train
assert sdssm.layers.SelectiveDense.name == "sd-ssm" and sdssm.training.engine.__name__ == "sdssm.training.engine"
assert not hasattr(sdssm, "trian") and not hasattr(sdssm.layers, "_private")
print("done")
"""
    assert run_python(code) == "done\n"


LAZY = [path for path in sorted(SOURCE.rglob("__init__.py")) if "import_on_use(" in path.read_text()]


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_type_checkers_see_the_names_that_a_package_imports_when_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (mapping,) = (node for node in ast.walk(branch) if isinstance(node, ast.Dict))
    lazy = {}
    for name, module in ast.literal_eval(mapping).items():
        place, _, original = module.partition(":")
        lazy[name] = (place, original or name)
    package = ".".join(("sdssm", *path.parent.relative_to(SOURCE).parts))
    modules = {name for name, (module, _) in imported.items() if module == package}  # found without being listed
    assert lazy == {name: place for name, place in imported.items() if name not in modules}
    loaded = importlib.import_module(package)
    for name in {*lazy, *modules, *loaded.__all__}:
        assert getattr(loaded, name) is not None


#: What an entry point runs: the script `sdssm` that pip writes, and `python -m sdssm`.
ENTRY_POINTS = [SDSSM, [sys.executable, "-c", "import sys; from sdssm.cli import main; sys.exit(main())"]]


@pytest.mark.parametrize("program", ENTRY_POINTS, ids=["module", "script"])
@pytest.mark.parametrize("module", ["argparse", "torch"])
def test_ctrl_c_during_imports_exits_without_a_traceback(program: list[str], module: str, tmp_path: Path) -> None:
    """A module that presses Ctrl-C takes the place of one that the command imports."""
    # The handler is set because a shell starts programs in the background without one.
    interrupt = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    interrupt += "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"
    (tmp_path / f"{module}.py").write_text(interrupt)
    paths = os.pathsep.join([str(tmp_path), str(SOURCE.parent), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [*program, "models", "rnn"], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")
