"""A run folder: everything about one training on disk, so that it survives the end of the process.

config.json                                task, seed, settings, versions
status.json                                status and progress
events.jsonl                               the event log, one JSON object per line
checkpoints/step-000040000.safetensors     the two newest checkpoints
model.safetensors                          the weights alone, once the run has ended
evaluation.json                            the accuracy of the model at every length
evaluation-states.safetensors              its states after a sample of strings, beside those of the automaton
certificate.json                           the length up to which it is proved to be correct
extraction.json                            the automaton that was extracted from it
horizon.json                               the length up to which it was measured to be correct
owner                                      while it trains: the mark of the process that trains it
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sdssm.checksums import ChecksumError, read_tensors_file
from sdssm.errors import CheckpointWarning, RunError, RunWarning, SettingsError
from sdssm.files import (
    PARTIAL_SUFFIX,
    describe_file_error,
    format_path,
    is_abandoned_part,
    remove_file,
    write_atomic,
)
from sdssm.models.settings import CONFIG_FILE
from sdssm.models.settings import WEIGHTS_FILE as MODEL
from sdssm.runs import events
from sdssm.runs.claim import check_owner, claim_folder, holds_folder, is_held, release_folder
from sdssm.runs.config_file import FORMAT, read_config
from sdssm.runs.disk import encode_json, read_json, write_errors
from sdssm.runs.own_files import (
    CHECKPOINTS,
    EVENTS_FILE,
    OWN_FILES,
    RESULTS,
    STATUS_FILE,
    check_no_links,
    is_leftover,
    is_partial_file,
    is_partial_result,
    link_error,
)
from sdssm.runs.schema import RunConfig
from sdssm.runs.status import FINAL_STATUSES, EndStatus, RunStatus, derive_status, event_step
from sdssm.settings import build_settings

__all__ = ["FINAL_STATUSES", "EndStatus", "RunFolder", "RunStatus"]

if TYPE_CHECKING:
    from torch import Tensor

    from sdssm.runs.checkpoint import Checkpoint

#: The number of checkpoints to keep: if the newest is damaged, the one before it is used.
KEPT_CHECKPOINTS = 2


class RunFolder:
    """One run on disk. `create` starts a new one, `open` opens an existing one, `find_runs` finds many."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    # -- creating and opening ----------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path | str, config: RunConfig, *, overwrite: bool = False) -> Self:
        """Create a run in a new or empty folder; with `overwrite` replace an existing run, and nothing else."""
        cls.check_free(path, overwrite=overwrite)
        folder = cls(Path(path), config)
        with write_errors(folder.path):
            folder.path.mkdir(parents=True, exist_ok=True)
        folder.claim()
        folder._remove_all_but_config()
        folder._write(CONFIG_FILE, encode_json({"format": FORMAT, **config.to_json()}))
        folder.write_status(RunStatus(steps=config.train.steps))
        return folder

    @staticmethod
    def check_free(path: Path | str, *, overwrite: bool = False) -> None:
        """Raise an error if `create` would refuse the folder.

        Call it for all folders before creating the first.
        """
        path = Path(path)
        with write_errors(path):
            names = [item.name for item in path.iterdir() if not is_leftover(item)] if path.exists() else []
        if names and CONFIG_FILE not in names:
            raise RunError(f"{format_path(path)} holds files but no run; choose an empty or a new folder")
        if names and not overwrite:
            problem = f"{format_path(path)} already holds a run; continue it with"
            raise RunError(
                f"{problem} resume=True or replace it with overwrite=True",
                shell=f"{problem} --resume or replace it with --overwrite",
            )
        if names:
            check_no_links(path)
            read_config(path)  # refuses to replace the config.json of another program

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open the run in this folder."""
        return cls(Path(path), read_config(Path(path)))

    def claim(self) -> None:
        """Claim the folder for this process until `finish`, and remove what killed writers have left.

        All methods that write files of the training claim it too. A folder with a link in place of one of its files is
        refused.
        """
        with write_errors(self.path):
            if not holds_folder(self.path):
                check_no_links(self.path)
            if claim_folder(self.path):
                for item in [*self.path.iterdir(), *self._checkpoints.glob(f"*{PARTIAL_SUFFIX}")]:
                    if is_partial_file(item) or (is_partial_result(item) and is_abandoned_part(item)):
                        self._remove(item)

    def _remove_all_but_config(self) -> None:
        """Remove a run except for its config, so that it is still a run folder if the process is killed here."""
        with write_errors(self.path):
            for pattern in (*RESULTS, *OWN_FILES):
                for file in [*self.path.glob(pattern), *self._checkpoints.glob(pattern)]:
                    if file.name != CONFIG_FILE:
                        self._remove(file)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> RunStatus:
        """The contents of status.json, read from disk at each call; without it, what the other files say."""
        try:
            if os.path.lexists(self.path / STATUS_FILE):
                data = read_json(self.path / STATUS_FILE)
                return build_settings(RunStatus, data if isinstance(data, dict) else {})
        except (TypeError, RunError, SettingsError):
            text = f"{format_path(self.path / STATUS_FILE)} is damaged; using the other files of the run instead"
            warnings.warn(text, RunWarning, stacklevel=2)
        return self.derive_status()

    def derive_status(self) -> RunStatus:
        """Return the status that follows from checkpoints, events and model, without status.json."""
        logged = events.read_log(self.path / EVENTS_FILE).events
        has_model = (self.path / MODEL).exists()
        return derive_status(self.config.train.steps, self.checkpoints(), logged, has_model=has_model)

    @property
    def status(self) -> str:
        """One of running, finished, stopped, diverged."""
        return self.progress.status

    @property
    def is_interrupted(self) -> bool:
        """Whether its status is running, but no process trains it: the process was killed."""
        with write_errors(self.path):
            return self.status == "running" and is_held(self.path) is False

    @property
    def step(self) -> int:
        """The step of the last checkpoint, from which the run resumes."""
        progress = self.progress
        return max(self.checkpoints(), default=0) if progress.status == "running" else progress.step

    def finish(self, status: EndStatus) -> None:
        """Write how the training has ended, and give up the claim on the folder."""
        progress = self.progress
        # After a failed step, or if it diverged, the last checkpoint is older than the progress.
        step = max(self.checkpoints(), default=progress.step)
        self.write_status(replace(progress, status=status, step=step))
        release_folder(self.path)

    def write_progress(
        self, step: int, *, seconds: float, loss: float | None, accuracy: float | None, device: str | None
    ) -> None:
        """Write how far a running training is, between checkpoints, without waiting for the disk."""
        steps = self.config.train.steps
        status = RunStatus(step=step, steps=steps, seconds=seconds, loss=loss, accuracy=accuracy, device=device)
        self.write_status(status, durable=False)

    def write_status(self, status: RunStatus, *, durable: bool = True) -> None:
        """Write status.json, unless another process has claimed the folder."""
        self._write(STATUS_FILE, encode_json(asdict(status)), durable=durable)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    @property
    def _checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def _checkpoint_file(self, step: int) -> Path:
        return self._checkpoints / f"step-{step:09d}.safetensors"

    def checkpoints(self) -> list[int]:
        """Return the steps of the checkpoints, newest first; damage is detected when they are loaded."""
        if self._checkpoints.is_symlink():
            raise link_error(self._checkpoints)
        matches = (
            re.fullmatch(r"step-(\d{9,18})\.safetensors", item.name) for item in self._checkpoints.glob("step-*")
        )
        steps = {int(match[1]) for match in matches if match}
        return sorted((step for step in steps if os.path.lexists(self._checkpoint_file(step))), reverse=True)

    def save_checkpoint(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        *,
        seconds: float = 0.0,
        loss: float | None = None,
        accuracy: float | None = None,
        device: str | None = None,
    ) -> None:
        """Save a checkpoint, remove all but the newest ones, and update status.json with the other arguments."""
        from sdssm.runs.checkpoint import encode  # needs torch, which listing runs does not

        self.claim()
        with write_errors(self.path):
            self._checkpoints.mkdir(exist_ok=True)
        self._write(f"{CHECKPOINTS}/{self._checkpoint_file(step).name}", encode(step, tensors))
        for old in self.checkpoints()[KEPT_CHECKPOINTS:]:
            self._remove(self._checkpoint_file(old))
        steps = self.config.train.steps
        status = RunStatus(step=step, steps=steps, seconds=seconds, loss=loss, accuracy=accuracy, device=device)
        self.write_status(status)

    def load_checkpoint(self, step: int | None = None) -> Checkpoint:
        """Return the checkpoint of a step, by default the newest that is not damaged.

        A damaged checkpoint is skipped with a warning, unless its step was passed.
        """
        steps = self.checkpoints()
        if not steps:
            raise self._no_checkpoint()
        if step is not None:
            if step not in steps:
                known = " and ".join(map(str, steps))
                raise RunError(f"{format_path(self.path)} has no checkpoint of step {step}; there are {known}")
            return self._load(step)
        for newest in steps:
            try:
                return self._load(newest)
            except RunError as error:
                if self.checkpoints() != steps:  # the run trains: newer checkpoints have replaced it
                    return self.load_checkpoint()
                warnings.warn(f"{error}; using an older one", CheckpointWarning, stacklevel=2)
        raise RunError(f"every checkpoint of {format_path(self.path)} is damaged; start again with --overwrite")

    def _no_checkpoint(self) -> RunError:
        name = format_path(self.path)
        if is_held(self.path):
            return RunError(f"{name} is being trained by another process and has no checkpoint yet; try again soon")
        return RunError(f"{name} has no checkpoint yet; train it first, as with sdssm train --resume {name}")

    def _load(self, step: int) -> Checkpoint:
        from sdssm.runs.checkpoint import decode

        path = self._checkpoint_file(step)
        try:
            checkpoint = decode(read_tensors_file(path) if path.lstat().st_size else b"")
            if checkpoint.step != step:
                raise RunError(f"it is of step {checkpoint.step}")
        except OSError as error:
            raise RunError(f"the checkpoint {format_path(path)} cannot be read: {describe_file_error(error)}") from None
        except (RunError, ChecksumError) as error:
            raise RunError(f"the checkpoint {format_path(path)} is damaged: {error}") from None
        return checkpoint

    # -- events ------------------------------------------------------------------------------------------------------

    def log(self, event: Mapping[str, Any]) -> None:
        """Append an event to events.jsonl, as in `log({"step": 100, "loss": 0.3})`."""
        self.claim()
        with write_errors(self.path):
            events.append(self.path / EVENTS_FILE, event)

    def events(self) -> list[dict[str, Any]]:
        """Return all events that were logged."""
        return events.read(self.path / EVENTS_FILE)

    def rewind(self, step: int) -> None:
        """Go back to a step: remove later events and checkpoints, the model and its results."""
        self.claim()
        with write_errors(self.path):
            kept = [event for event in self.events() if event_step(event) <= step]
            events.write(self.path / EVENTS_FILE, kept)
            for later in self.checkpoints():
                if later > step:
                    self._remove(self._checkpoint_file(later))
            for pattern in (*RESULTS, MODEL):
                for file in self.path.glob(pattern):
                    self._remove(file)
        progress = replace(self.progress, status="running")
        if progress.step > step:  # the process was killed after this checkpoint
            seconds = [event["seconds"] for event in kept if isinstance(event.get("seconds"), float | int)]
            progress = replace(progress, seconds=float(max(seconds, default=0.0)))
        self.write_status(replace(progress, step=step))

    # -- other files -------------------------------------------------------------------------------------------------

    def write_json(self, name: str, value: Any) -> None:
        """Write a result, such as evaluation.json, with null for NaN."""
        self.write_result(name, encode_json(value))

    def write_result(self, name: str, data: bytes) -> None:
        """Write the file of a result, such as evaluation-states.safetensors."""
        if not any(fnmatch(name, pattern) for pattern in RESULTS):
            raise RunError(f"{name!r} is not a file for results; use a name like {' or '.join(RESULTS)}")
        with write_errors(self.path / name):
            write_atomic(self.path / name, data)
            for part in self.path.glob(f"{name}.*{PARTIAL_SUFFIX}"):
                if is_abandoned_part(part):
                    self._remove(part)

    def read_json(self, name: str) -> Any | None:
        """Return the contents of a JSON file in this folder, without its checksum, or None if there is no such file.

        Raises a RunError that names the file if it is damaged.
        """
        path = self.path / name
        return read_json(path) if os.path.lexists(path) else None

    def remove_result(self, name: str) -> None:
        """Remove the file of a result, so that it is computed again."""
        self._remove(self.path / name)

    def remove_damaged_events(self) -> int:
        """Remove the damaged lines of events.jsonl, and return their number."""
        self.claim()
        log = events.read_log(self.path / EVENTS_FILE)
        with write_errors(self.path):
            events.write(self.path / EVENTS_FILE, log.events)
        return len(log.damaged)

    def remove_checkpoint_file(self, name: str) -> None:
        """Remove a checkpoint by the name of its file."""
        self.claim()
        self._remove(self._checkpoints / name)

    def write_model(self, data: bytes) -> None:
        """Write model.safetensors."""
        self._write(MODEL, data)

    def _write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file of the training, unless another process has claimed the folder."""
        check_owner(self.path)
        with write_errors(self.path / name):
            write_atomic(self.path / name, data, durable=durable, is_real_folder=name.startswith(f"{CHECKPOINTS}/"))

    def _remove(self, file: Path) -> None:
        """Remove a file of this folder or of its checkpoints, which must not be a link to another folder."""
        with write_errors(file):
            remove_file(file, is_real_folder=file.parent != self.path)
