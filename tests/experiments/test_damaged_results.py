"""A damaged results.json is replaced, and kept under another name: it may be the only place of earlier results."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdssm.checksums import FILE_CHECKSUM
from sdssm.errors import RunWarning
from sdssm.experiments.results.folder import _read_previous


def test_damaged_results_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(FILE_CHECKSUM.add(b'{"runs": [1, 2]}'))
    assert _read_previous(path) == {"runs": [1, 2]}
    damaged = path.read_bytes().replace(b"1, 2", b"1, 3")
    path.write_bytes(damaged)
    with pytest.warns(RunWarning, match="results.json is damaged; it is kept as damaged-results.json"):
        assert _read_previous(path) == {}
    assert not path.exists() and (tmp_path / "damaged-results.json").read_bytes() == damaged
