"""The names of the files in a run folder, and which of them no link may replace."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from sdssm.errors import RunError
from sdssm.files import PARTIAL_SUFFIX, format_path
from sdssm.models.model_folder import CERTIFICATE_FILE
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.runs.claim import OWNER
from sdssm.runs.disk import write_errors

STATUS_FILE, EVENTS_FILE = "status.json", "events.jsonl"
CHECKPOINTS = "checkpoints"
#: The states that `sdssm evaluate` stores beside evaluation.json.
STATES_FILE = "evaluation-states.safetensors"
#: What `sdssm.exact.store_result` writes besides certificate.json.
EXTRACTION_FILE, HORIZON_FILE = "extraction.json", "horizon.json"
#: Results that are computed from the trained model. They are removed when the training is resumed.
RESULTS = ("evaluation*.json", STATES_FILE, CERTIFICATE_FILE, EXTRACTION_FILE, HORIZON_FILE)
#: Files that the training itself writes, the last one for TensorBoard. No other files are ever removed.
OWN_FILES = (CONFIG_FILE, STATUS_FILE, EVENTS_FILE, WEIGHTS_FILE, "step-*.safetensors", "events.out.tfevents.*")


def check_no_links(path: Path) -> None:
    """Raise an error if a link is in place of a file of the training or of the folder of checkpoints.

    The run folder itself may be reached through a link.
    """
    with write_errors(path):
        items = list(path.iterdir())
        if path / CHECKPOINTS in items and not (path / CHECKPOINTS).is_symlink():
            items += (path / CHECKPOINTS).glob("*")
        for item in items:
            is_own = item.name in (OWNER, CHECKPOINTS) or any(fnmatch(item.name, name) for name in OWN_FILES)
            if is_own and item.is_symlink():
                raise link_error(item)


def link_error(path: Path) -> RunError:
    """Return the error for a link in place of a file or folder of a run."""
    return RunError(
        f"{format_path(path)} is a symbolic link, and the files of a run must be its own; replace it by what it "
        "points to, or remove it"
    )


def is_leftover(path: Path) -> bool:
    """Return whether a killed process can have left this file without a run."""
    return path.name == OWNER or is_partial_file(path) or is_partial_result(path)


def is_partial_file(path: Path) -> bool:
    """Return whether a file is one that the training has written only in part.

    Partly written results do not count: an evaluation in another process may be writing them now.
    """
    return any(fnmatch(path.name, f"{name}.*{PARTIAL_SUFFIX}") for name in OWN_FILES)


def is_partial_result(path: Path) -> bool:
    """Return whether a file is a result that was written only in part."""
    return any(fnmatch(path.name, f"{name}.*{PARTIAL_SUFFIX}") for name in RESULTS)
