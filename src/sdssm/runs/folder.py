"""A run folder: everything about one training, on disk, so that it survives whatever ends the process.

config.json                                what is trained, with which versions
status.json                                how far it is
events.jsonl                               what happened, a line at a time
checkpoints/step-000040000.safetensors     the newest two states of the training
model.safetensors                          the weights alone, once the run has ended
evaluation.json                            what the model does at every length
owner                                      while it trains: the mark of the process that does
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor

from sdssm.errors import CheckpointWarning, RunError, RunWarning, SdssmError, SettingsError
from sdssm.files import PARTIAL_SUFFIX, describe_file_error, format_path, write_atomic
from sdssm.models.classifier import CONFIG
from sdssm.models.classifier import WEIGHTS as MODEL
from sdssm.runs import events
from sdssm.runs.checkpoint import Checkpoint, decode, encode
from sdssm.runs.claim import OWNER, check_owner, claim, is_held, release
from sdssm.runs.disk import read_text, to_text, writing
from sdssm.runs.schema import RunConfig
from sdssm.settings import build_settings

#: The newest layout of run folders that this version reads; written into config.json.
FORMAT = 1
#: How many checkpoints are kept: should the newest be damaged, there is one before it.
KEPT = 2

STATUS, EVENTS = "status.json", "events.jsonl"
CHECKPOINTS = "checkpoints"
#: What others than the training write about its outcome. It is dropped when the training goes on.
RESULTS = ("evaluation*.json",)
#: What the training itself writes in the folder, the last being TensorBoard's. Nothing else is ever removed.
OWN = (CONFIG, STATUS, EVENTS, MODEL, "step-*.safetensors", "events.out.tfevents.*")

Ended = Literal["finished", "stopped", "diverged"]
#: The statuses of those that will not be trained further; where there are both, the first is worth more.
ENDED = ("finished", "diverged")


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far a run is: as of its last checkpoint while it is running; accuracy in percent."""

    status: Literal["running"] | Ended = "running"
    step: int = 0
    steps: int
    seconds: float = 0.0
    loss: float | None = None
    accuracy: float | None = None
    device: str | None = None  #: on which it was trained last


class RunFolder:
    """One run on disk. `create` starts a new one, `open` takes what is there; `find_runs` looks for many."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    # -- coming to be ------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path | str, config: RunConfig, *, overwrite: bool = False) -> Self:
        """A new run in an empty or new folder. `overwrite` removes the run that is there, and nothing else."""
        cls.check_free(path, overwrite=overwrite)
        folder = cls(Path(path), config)
        with writing(folder.path):
            folder.path.mkdir(parents=True, exist_ok=True)
        folder._claim()
        folder._remove_all_but_config()
        folder._write(CONFIG, to_text({"format": FORMAT, **config.to_json()}))
        folder._write_status(Status(steps=config.train.steps))
        return folder

    @staticmethod
    def check_free(path: Path | str, *, overwrite: bool = False) -> None:
        """Refuse a folder that `create` would refuse. Who makes several asks for all of them first."""
        path = Path(path)
        with writing(path):
            there = [item.name for item in path.iterdir() if not _is_left(item)] if path.exists() else []
        if there and CONFIG not in there:
            raise RunError(f"{format_path(path)} holds files but no run; choose an empty or a new folder")
        if there and not overwrite:
            raise RunError(
                f"{format_path(path)} holds a run already; go on with --resume or start anew with --overwrite"
            )
        if there:
            _read_config(path)  # somebody else's config.json is not ours to replace

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """The run in this folder."""
        return cls(Path(path), _read_config(Path(path)))

    def hold(self) -> None:
        """This process alone trains here from now on, though it writes only later."""
        self._claim()

    def _claim(self) -> None:
        """This process alone trains here, from the first write until `finish`."""
        with writing(self.path):
            if claim(self.path):
                for item in [*self.path.iterdir(), *self._checkpoints.glob(f"*{PARTIAL_SUFFIX}")]:
                    if _is_leftover(item):
                        item.unlink(missing_ok=True)

    def _remove_all_but_config(self) -> None:
        """The config stays until a new one takes its place: a process killed on the way leaves a run folder."""
        with writing(self.path):
            for pattern in (*RESULTS, *OWN):
                for file in [*self.path.glob(pattern), *self._checkpoints.glob(pattern)]:
                    if file.name != CONFIG:
                        file.unlink()

    # -- how far it is -----------------------------------------------------------------------------------------------

    @property
    def progress(self) -> Status:
        """How far the run is, read anew each time."""
        if not (self.path / STATUS).exists():
            return Status(steps=self.config.train.steps)
        try:
            data = self.read_json(STATUS)
            return build_settings(Status, data if isinstance(data, dict) else {})
        except (TypeError, RunError, SettingsError):
            text = f"{format_path(self.path / STATUS)} is damaged; going by the checkpoints"
            warnings.warn(text, RunWarning, stacklevel=2)
            return Status(steps=self.config.train.steps, step=max(self.checkpoints(), default=0))

    @property
    def status(self) -> str:
        """running, finished, stopped or diverged."""
        return self.progress.status

    @property
    def interrupted(self) -> bool:
        """Whether it says that it is running, but no process trains here: it was killed."""
        with writing(self.path):
            return self.status == "running" and is_held(self.path) is False

    @property
    def step(self) -> int:
        """The step of the last checkpoint."""
        return self.progress.step

    def finish(self, status: Ended) -> None:
        """The training has ended; another process may have the folder."""
        self._write_status(replace(self.progress, status=status))
        release(self.path)

    def _write_status(self, status: Status) -> None:
        self._write(STATUS, to_text(asdict(status)))

    # -- checkpoints -------------------------------------------------------------------------------------------------

    @property
    def _checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def _file_of(self, step: int) -> Path:
        return self._checkpoints / f"step-{step:09d}.safetensors"

    def checkpoints(self) -> list[int]:
        """The steps of the checkpoints, newest first; whether they are whole is found when they are loaded."""
        found = (re.fullmatch(r"step-(\d+)\.safetensors", item.name) for item in self._checkpoints.glob("step-*"))
        return sorted((int(match[1]) for match in found if match), reverse=True)

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
        """Keep this state, and of the older ones the newest; the rest says how far the run is to who looks."""
        self._claim()
        with writing(self.path):
            self._checkpoints.mkdir(exist_ok=True)
        self._write(f"{CHECKPOINTS}/{self._file_of(step).name}", encode(step, tensors))
        for old in self.checkpoints()[KEPT:]:
            self._file_of(old).unlink(missing_ok=True)
        steps = self.config.train.steps
        found = Status(step=step, steps=steps, seconds=seconds, loss=loss, accuracy=accuracy, device=device)
        self._write_status(found)

    def load_checkpoint(self, step: int | None = None) -> Checkpoint:
        """The newest checkpoint that is whole, or that of a step, verified; a damaged one is passed over, and said."""
        steps = self.checkpoints()
        if not steps:
            raise RunError(f"{format_path(self.path)} has no checkpoint yet; start anew with --overwrite")
        if step is not None:
            if step not in steps:
                known = " and ".join(str(k) for k in steps)
                raise RunError(f"{format_path(self.path)} has no checkpoint of step {step}; there are {known}")
            return self._load(step)
        for newest in steps:
            try:
                return self._load(newest)
            except RunError as error:
                warnings.warn(f"{error}; using an older one", CheckpointWarning, stacklevel=2)
        raise RunError(f"every checkpoint of {format_path(self.path)} is damaged; start anew with --overwrite")

    def _load(self, step: int) -> Checkpoint:
        path = self._file_of(step)
        try:
            found = decode(path.read_bytes())
            if found.step != step:
                raise RunError(f"it is of step {found.step}")
        except OSError as error:
            raise RunError(f"the checkpoint {format_path(path)} cannot be read: {describe_file_error(error)}") from None
        except RunError as error:
            raise RunError(f"the checkpoint {format_path(path)} is damaged: {error}") from None
        return found

    # -- events ------------------------------------------------------------------------------------------------------

    def log(self, event: Mapping[str, Any]) -> None:
        """Add a line to events.jsonl; give the step where there is one, as in `log({"step": 100, "loss": 0.3})`."""
        self._claim()
        with writing(self.path):
            events.append(self.path / EVENTS, event)

    def events(self) -> list[dict[str, Any]]:
        """Everything that was logged."""
        return events.read(self.path / EVENTS)

    def forget_after(self, step: int) -> None:
        """Go back to a step: later events and checkpoints, and results of what is now trained further, are dropped."""
        self._claim()
        with writing(self.path):
            events.write(self.path / EVENTS, (event for event in self.events() if _step(event) <= step))
            for later in self.checkpoints():
                if later > step:
                    self._file_of(later).unlink()
            for pattern in (*RESULTS, MODEL):
                for file in self.path.glob(pattern):
                    file.unlink()
        self._write_status(replace(self.progress, status="running", step=step))

    # -- other files -------------------------------------------------------------------------------------------------

    def write_json(self, name: str, value: Any) -> None:
        """Write a result, such as evaluation.json; NaN becomes null."""
        if not any(fnmatch(name, pattern) for pattern in RESULTS):
            raise RunError(f"{name!r} is no file for results; they are called {' or '.join(RESULTS)}")
        with writing(self.path / name):
            write_atomic(self.path / name, to_text(value))

    def read_json(self, name: str) -> Any | None:
        """What a JSON file of this folder holds, or None where there is no such file."""
        path = self.path / name
        return read_text(path) if path.exists() else None

    def write_model(self, data: bytes) -> None:
        """Write model.safetensors."""
        self._write(MODEL, data)

    def _write(self, name: str, data: bytes) -> None:
        """What the training writes: not beside another one that took the folder."""
        check_owner(self.path)
        with writing(self.path / name):
            write_atomic(self.path / name, data)


def _step(event: Mapping[str, Any]) -> int:
    """The step of an event; what has none belongs to the beginning."""
    step = event.get("step")
    return step if isinstance(step, int) else 0


def _is_left(path: Path) -> bool:
    """Whether a training that was killed left it, and no run."""
    return path.name == OWNER or _is_leftover(path)


def _is_leftover(path: Path) -> bool:
    """Whether a writer of this folder that was killed left it. Those of results stay: an evaluation may be at work."""
    return any(fnmatch(path.name, f"{name}.*{PARTIAL_SUFFIX}") for name in OWN)


def _read_config(path: Path) -> RunConfig:
    where = format_path(path)
    try:
        found = path.is_dir(), (path / CONFIG).exists()
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {where}: {describe_file_error(error)}") from None
    if found == (True, False):
        raise RunError(f"{where} is not a run folder: it has no {CONFIG}")
    if found[0] is False:
        raise RunError(f"there is no folder {where}; sdssm runs . shows what there is")
    data = read_text(path / CONFIG)
    written = data.pop("format", None) if isinstance(data, dict) else None
    if not isinstance(written, int):
        raise RunError(f"{where} is not a run folder: its {CONFIG} is not that of a run")
    if written > FORMAT:
        raise RunError(
            f"{where} was written by {_writer(data)} in format {written}; this version reads formats up to {FORMAT}: "
            "install a newer sdssm"
        )
    try:
        return RunConfig.from_json(data)
    except SdssmError as error:
        raise RunError(f"{format_path(path / CONFIG)}: {error}") from None


def _writer(data: dict[str, Any]) -> str:
    versions = data.get("versions")
    version = versions.get("sdssm") if isinstance(versions, dict) else None
    return f"sdssm {version}" if isinstance(version, str) and version.isprintable() else "another sdssm"
