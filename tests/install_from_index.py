"""Install the package from the package index into new environments, and train, evaluate and certify there.

    python -m tests.install_from_index                     # two environments, see below; `make test-install`
    python -m tests.install_from_index --tests tests/layers        # then run these tests with the oldest versions
    python -m tests.install_from_index --python python3.12 torch==2.13.0 numpy==2.3.5 safetensors==0.8.0

Environment 1 is that of a user: `pip install .`, with the versions of constraints.txt. Environment 2 has the wheel with
the oldest versions that pyproject.toml allows, or with the given ones.

In environment 2, torch is installed without the CUDA libraries that its Linux builds ask for, several GB that a CPU
does not need. Empty libraries take their place; they are enough to load torch, because a symbol is looked up when it is
first called. So this needs a C compiler.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from packaging.requirements import Requirement

from tests.clean_environment import ROOT, build_distribution, run_program, use_installed_command

#: Parts of CUDA that torch calls while it is loaded; they are small.
REAL_LIBRARIES = ("nvidia-cuda-runtime", "nvidia-cuda-cupti")
#: Packages that torch asks for and that a CPU does not need.
GPU_PACKAGES = ("nvidia-", "cuda-", "triton")


def oldest_versions() -> list[str]:
    """Return the lower bounds of the dependencies in pyproject.toml, as exact versions.

    >>> [text.partition("==")[0] for text in oldest_versions()]
    ['torch', 'numpy', 'safetensors', 'jinja2']
    """
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [text.replace(">=", "==") for text in dependencies]


def install_as_a_user(python: str, folder: Path) -> Path:
    """Install the checkout with all that it needs, as pipx and uv would, and return the Python of the environment."""
    run_program([python, "-m", "venv", folder], ROOT)
    pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run_program([*pip, "install", "--constraint", ROOT / "constraints.txt", ROOT], ROOT)
    run_program([*pip, "check"], ROOT)
    return folder / "bin" / "python"


def install_versions(python: str, folder: Path, versions: list[str], wheel: Path) -> Path:
    """Install a wheel with these versions of its dependencies, and return the Python of the environment."""
    run_program([python, "-m", "venv", folder], ROOT)
    executable = folder / "bin" / "python"
    pip: list[str | Path] = [executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    run_program([*pip, "--no-deps", *versions], ROOT)
    code = "from importlib.metadata import requires; print(*requires('torch'), sep='\\n')"
    needed = [Requirement(line) for line in run_program([executable, "-c", code], ROOT).splitlines()]
    needed = [need for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    real = [need for need in needed if need.name.startswith(REAL_LIBRARIES)]
    others = [need for need in needed if not need.name.startswith(GPU_PACKAGES)]
    # Without their markers, which were evaluated above.
    run_program([*pip, *(f"{need.name}{need.specifier}" for need in others)], ROOT)
    if real:
        run_program([*pip, "--no-deps", *(f"{need.name}{need.specifier}" for need in real)], ROOT)
    replace_cuda_libraries(executable, next(folder.glob("lib/python*/site-packages")))
    run_program([*pip, "--no-deps", "--no-index", wheel], ROOT)
    return executable


def replace_cuda_libraries(python: Path, packages: Path) -> None:
    """Put an empty library in place of each that torch cannot find, until torch can be imported."""
    libraries = packages / "torch" / "lib"
    (packages / "lazy_symbols.pth").write_text("import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n")
    for path in packages.glob("nvidia/*/lib/*.so*"):
        if not (libraries / path.name).exists():
            (libraries / path.name).symlink_to(path)
    for _ in range(50):
        result = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return
        missing = re.search(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object", result.stderr)
        assert missing is not None, result.stderr
        name = missing[1]
        run_program(["cc", "-shared", "-x", "c", "/dev/null", "-o", libraries / name, f"-Wl,-soname,{name}"], libraries)
    raise AssertionError(f"torch cannot be imported:\n{result.stderr}")


def report_versions(title: str, python: Path, folder: Path) -> None:
    """Print the versions of an environment."""
    names = ("torch", "numpy", "safetensors", "jinja2", "sdssm")
    code = (
        "import sys; from importlib.metadata import version; "
        f"print(sys.version.split()[0], *(f'{{name}} {{version(name)}}' for name in {names}), sep=', ')"
    )
    sys.stdout.write(f"{title}: Python {run_program([python, '-c', code], folder)}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the package from the package index, and use it.")
    parser.add_argument("versions", nargs="*", help="exact versions of the dependencies; default: oldest")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments (default: this one)")
    parser.add_argument("--tests", nargs="+", default=[], help="tests to run with these versions as well")
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder, started = Path(name), perf_counter()
        if not arguments.versions:
            python = install_as_a_user(arguments.python, folder / "user")
            report_versions("pip install .", python, folder)
            use_installed_command(python.with_name("sdssm"), folder)
        wheel = build_distribution("wheel", ROOT, folder / "dist")
        versions = arguments.versions or oldest_versions()
        python = install_versions(arguments.python, folder / "versions", versions, wheel)
        report_versions("given versions" if arguments.versions else "oldest versions", python, folder)
        (folder / "work").mkdir()
        use_installed_command(python.with_name("sdssm"), folder / "work")
        if arguments.tests:
            run_program([python, "-m", "pip", "--quiet", "install", "pytest", "pytest-timeout", "hypothesis"], ROOT)
            subprocess.run([python, "-m", "pytest", "--quiet", *arguments.tests], cwd=ROOT, check=True)
        sys.stdout.write(f"Trained, evaluated and certified in each; {perf_counter() - started:.0f} s\n")


if __name__ == "__main__":
    main()
