"""Python and TypeScript agree on the data of a page: `page_types.py` and `web/src/data.ts` have the same fields."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, is_typeddict

import pytest

from sdssm.report.page import page_types
from sdssm.report.page.assembling import assemble_page
from sdssm.report.page.collecting import collect_page
from tests.report.page.sample_runs import read_blocks, write_run

ROOT = Path(__file__).parents[3]
DECLARATIONS = (ROOT / "web" / "src" / "data.ts").read_text()
#: Python names of interfaces whose TypeScript name another class of the package has.
RENAMED = {"Problem": "PageProblem", "Curve": "CurveData"}


def interface_fields() -> dict[str, dict[str, str]]:
    """Return the fields of each interface of data.ts with their types, without comments."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", DECLARATIONS, flags=re.DOTALL)
    interfaces = {}
    for name, body in re.findall(r"^export interface (\w+) \{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE):
        fields = re.findall(r"^  (\w+)(\??): (.*?);\s*$", body, re.MULTILINE)
        interfaces[name] = {field: kind + (" | undefined" if optional else "") for field, optional, kind in fields}
    return interfaces


INTERFACES = interface_fields()


def test_every_interface_is_declared_in_python() -> None:
    declared = {name for name, value in vars(page_types).items() if is_typeddict(value)}
    expected = {RENAMED.get(name, name) for name in INTERFACES}
    assert expected <= declared
    assert len(INTERFACES) > 15


@pytest.mark.parametrize("name", sorted(INTERFACES))
def test_fields_are_the_same(name: str) -> None:
    declared: dict[str, Any] = getattr(page_types, RENAMED.get(name, name)).__annotations__
    assert list(declared) == list(INTERFACES[name])
    for field, annotation in declared.items():
        is_optional = INTERFACES[name][field].endswith("| null")
        assert annotation.__forward_arg__.endswith("| None") == is_optional, field


COMPILER = ROOT / "web" / "node_modules" / ".bin" / "tsc"


@pytest.mark.skipif(not COMPILER.exists(), reason="needs the packages of web/: cd web && npm ci")
def test_the_data_of_a_page_has_the_types_that_typescript_declares(tmp_path: Path) -> None:
    """The compiler checks every value of a page: names, types, and which may be null."""
    write_run(tmp_path / "runs" / "run")
    shutil.copytree(ROOT / "results" / "overview", tmp_path / "results")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text("{")
    contents = collect_page([tmp_path / "runs", tmp_path / "results"])
    blocks = read_blocks(assemble_page(contents, 4.8))
    report, details = blocks.pop("sdssm-report"), list(blocks.values())
    details = details[:3]  # of the run, and two of results
    for training in report["trainings"]:  # the first lengths are enough, and take the compiler no time
        for name in ("accuracy", "balanced", "covering", "best_constant"):
            if training[name] is not None:
                training[name] = {key: values[:20] for key, values in training[name].items()}
    assert report["problems"] and report["tables"] and len(report["tasks"]) == 2
    source = tmp_path / "page.ts"
    source.write_text(
        f'import type {{ ReportData, RunDetail }} from "{ROOT}/web/src/data";\n'
        f"export const report: ReportData = {json.dumps(report)};\n"
        f"export const details: RunDetail[] = {json.dumps(details)};\n"
    )
    command = [str(COMPILER), "--noEmit", "--strict", "--ignoreConfig", "--target", "es2022", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[:3_000]
