"""Execute the notebooks of the documentation: `make notebooks` checks that they run, `--write` stores their outputs.

    python -m docs.site.notebooks [--write] [FILE ...]

The stored outputs are what the site shows. They are small and do not depend on the machine: texts without timings,
and pictures as SVG. Each notebook runs in an empty folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "tutorials" / "notebooks"
#: Seconds that one cell may take.
TIMEOUT = 120


def main() -> int:
    """Execute the notebooks and return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="*", help="notebooks (default: all of the docs)")
    parser.add_argument("--write", action="store_true", help="store the outputs in the files")
    options = parser.parse_args()
    return max(execute(path, write=options.write) for path in options.files or sorted(FOLDER.glob("*.ipynb")))


def execute(path: Path, *, write: bool) -> int:
    """Execute a notebook, print how long it took, and return 1 if a cell raised an error."""
    notebook, start = nbformat.read(path, as_version=4), time.monotonic()
    with TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": folder}})
        try:
            client.execute()
        except CellExecutionError as error:
            print(f"{path.name}: a cell failed\n{error}", file=sys.stderr)
            return 1
    print(f"{path.name}: {time.monotonic() - start:.0f} s")
    if write:
        nbformat.write(without_machine(notebook), path)
    return 0


def without_machine(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Remove what differs between machines: versions, times of execution, names of kernels, standard error."""
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    sys.exit(main())
