"""The package as a whole: names, imports and their order, dependencies, documentation."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import pkgutil
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import sdssm
from sdssm.errors import MissingExtraError, SdssmError
from sdssm.extras import EXTRAS, import_extra
from sdssm.models.registry import forget, registered_entries
from tests.programs import REQUIRED, run_without

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sdssm"
FILES = sorted(SOURCE.rglob("*.py"))
#: Import order: a module imports only from its own package and from the packages before it.
ORDER = [
    "limits",
    "means",
    "printable",
    "errors",
    "lazy",
    "extras",
    "files",
    "first_start",
    "checksums",
    "formatting",
    "palette",
    "text_tables",
    "display",
    "progress",
    "settings",
    "devices",
    "automata",
    "tasks",
    "ops",
    "layers",
    "models",
    "runs",
    "evaluation",
    "training",
    "exact",
    "testing",
    "checking",
    "exporting",
    "experiments",
    "report",
    "studio",
    "cli",
]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def display_path(path: Path) -> str:
    """The path of a source file as messages show it."""
    return str(path.relative_to(SOURCE))


def top_level_imports(path: Path) -> set[str]:
    """The packages and modules directly below sdssm that a file imports, anywhere in the file."""
    parts = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{display_path(path)}: relative import"
            names = [node.module or ""] if node.module != "sdssm" else [f"sdssm.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        parts |= {name.split(".")[1] for name in names if name.startswith("sdssm.")}
    return parts


def test_imports_follow_the_order_of_packages() -> None:
    offenders = []
    for path in FILES:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue
        assert part in ORDER, f"{part} is missing in ORDER"
        for other in sorted(top_level_imports(path) - {part, "__version__"}):
            if other not in ORDER or ORDER.index(other) > ORDER.index(part):
                offenders.append(f"{display_path(path)} imports sdssm.{other}")
    assert not offenders, "\n".join(offenders)


# -- names -------------------------------------------------------------------------------------------------------------


def public_definitions(path: Path) -> Iterator[str]:
    """Names of the public functions and classes that a file defines at its top level."""
    for node in parse(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_no_public_function_or_class_has_the_name_of_a_module_next_to_it() -> None:
    """Exported by the package, such a name would hide the module."""
    offenders = []
    for path in FILES:
        modules = {file.stem for file in path.parent.glob("*.py")} | {
            folder.parent.name for folder in path.parent.glob("*/__init__.py")
        }
        offenders += [f"{display_path(path)} defines {name}" for name in public_definitions(path) if name in modules]
    assert not offenders, "\n".join(offenders)


def importable_modules() -> Iterator[ModuleType]:
    """Every module of the package, except modules that need an optional dependency that is not installed."""
    for info in pkgutil.walk_packages(sdssm.__path__, "sdssm."):
        if info.name == "sdssm.__main__":
            continue
        try:
            yield importlib.import_module(info.name)
        except ImportError as error:
            assert (error.name or "").split(".")[0] in EXTRAS, f"{info.name}: {error}"


def test_every_module_is_found_under_its_dotted_name() -> None:
    """`import sdssm.training.engine as engine` reads attributes one by one: no function may replace a module there."""
    offenders = []
    for module in importable_modules():
        attribute: object = sdssm
        for name in module.__name__.split(".")[1:]:
            attribute = getattr(attribute, name)
        if attribute is not module:
            offenders.append(f"{module.__name__} is {attribute!r}")
    assert not offenders, "\n".join(offenders)


def test_every_class_name_is_used_once() -> None:
    files = defaultdict(list)
    for path in FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(display_path(path))
    offenders = [f"{name}: {', '.join(paths)}" for name, paths in sorted(files.items()) if len(paths) > 1]
    assert not offenders, "\n".join(offenders)


def test_every_gpu_kernel_name_is_used_once() -> None:
    """A profile shows kernels by these names alone."""
    files = defaultdict(list)
    for path in FILES:
        for node in ast.walk(parse(path)):
            if (
                isinstance(node, ast.FunctionDef)
                and node.name.endswith("_kernel")
                and "triton.jit" in map(decorator_name, node.decorator_list)
            ):
                files[node.name].append(display_path(path))
    assert len(files) > 30
    offenders = [f"{name}: {', '.join(paths)}" for name, paths in sorted(files.items()) if len(paths) > 1]
    assert not offenders, "\n".join(offenders)


def decorator_name(decorator: ast.expr) -> str:
    """Return the name of a decorator without its arguments."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


# -- dependencies ------------------------------------------------------------------------------------------------------


def test_without_extras_the_core_works_and_the_rest_names_the_extra_to_install() -> None:
    code = """
from sdssm.automata import get_machine, to_aalpy, to_automata_lib, to_networkx
from sdssm.cli import main
from sdssm.errors import MissingExtraError
for convert in (to_networkx, to_automata_lib, to_aalpy):
    try:
        convert(get_machine("parity"))
    except MissingExtraError as error:
        print(error)
raise SystemExit(main(["tasks", "show", "a5"]))
"""
    lines = run_without(set(EXTRAS) - REQUIRED, code).splitlines()
    for extra, line in zip(("networkx", "automata-lib", "aalpy"), lines, strict=False):
        assert f"install sdssm[{extra}]" in line
    assert any("not solvable" in line for line in lines[3:])


@pytest.mark.parametrize(("before", "after"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_the_environment_says_otherwise(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", before or "")  # restored afterwards, also if it was not set
    if before is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    importlib.reload(sdssm)  # only this file: its submodules stay loaded
    assert os.environ["OMP_WAIT_POLICY"] == after


def test_thread_policy_is_set_before_anything_imports_torch() -> None:
    source = (SOURCE / "__init__.py").read_text()
    assert source.index("OMP_WAIT_POLICY") < source.index("\nfrom sdssm")


def test_every_extra_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) == set(extras) - {"dev", "examples", "browser", "docs"}
    assert project["dependencies"] == ["torch>=2.6", "numpy>=1.26", "safetensors>=0.4.4", "jinja2>=3.1"]
    with pytest.raises(MissingExtraError, match=re.escape("a test needs ray.nothing; install sdssm[ray]")):
        import_extra("ray.nothing", "a test")
    assert issubclass(MissingExtraError, SdssmError)


# -- versions and documentation ----------------------------------------------------------------------------------------


def test_versions_agree() -> None:
    assert f"## {sdssm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {sdssm.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert (SOURCE / "py.typed").exists()


#: Pages with Python examples.
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if ">>> " in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_page_print_what_the_page_shows(page: Path) -> None:
    before = {entry.name for entry in registered_entries()}
    failures, examples = doctest.testfile(str(page), module_relative=False)
    for entry in registered_entries():
        if entry.name not in before:
            forget(entry.name)  # a class of an example does not work after the example
    assert examples > 0
    assert failures == 0


def test_most_pages_have_examples() -> None:
    assert ROOT / "README.md" in PAGES
    assert len(PAGES) >= 8


def test_quick_tests_cover_every_package() -> None:
    lines = (ROOT / "tests" / "quick.txt").read_text().splitlines()
    assert not [line for line in lines if not (ROOT / line.partition("::")[0]).exists()]
    covered = {line.split("/")[1] for line in lines}
    assert not [name for name in ORDER if (ROOT / "tests" / name).is_dir() and name not in covered]
