"""The progress display of a training: what it must implement, and which one suits the standard output."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Protocol, runtime_checkable

from sdssm.errors import RunWarning, SettingsError, format_value
from sdssm.training.displays import LiveTable, PlainLines


@runtime_checkable
class Progress(Protocol):
    """What a progress display implements: `start` once, then `update` and `message`, then `stop`."""

    def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None:
        """Show that replicas with these names are at step `first` of `steps`.

        A name is the path of a run below the folder of all runs, such as a5/seed-0. `constant` is what the best
        constant answer scores on the training strings of each replica, in percent; empty if it is unknown.
        """

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        """Show loss, accuracy in percent and whether it is alive, for each replica after `step` steps.

        Loss and accuracy are moving averages over the last steps. A replica that diverged is not alive. One that waits
        for room on the device has NaN as loss and accuracy; if some had to wait, `step` is a mean over all replicas.
        """

    def message(self, text: str) -> None:
        """Show one line of text."""

    def stop(self) -> None:
        """Show the final state: the training has ended or was stopped."""


class SilentProgress:
    """A progress display that shows nothing."""

    def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None: ...

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class WarningProgress(SilentProgress):
    """A progress display that shows nothing but messages, which are warnings."""

    def message(self, text: str) -> None:
        warnings.warn(text, RunWarning, stacklevel=2)


class SafeProgress:
    """Wraps a progress display and drops it at its first error: training continues without a display."""

    def __init__(self, inner: Progress) -> None:
        self._inner: Progress = inner

    @contextmanager
    def _catch_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # a closed pipe, a terminal that is gone, a character that it cannot encode
            broken, self._inner = self._inner, SilentProgress()
            with suppress(Exception):
                broken.stop()  # a live table gives standard output back

    def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None:
        with self._catch_errors():
            self._inner.start(names, steps, first, constant)

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        with self._catch_errors():
            self._inner.update(step, loss, accuracy, alive)

    def message(self, text: str) -> None:
        with self._catch_errors():
            self._inner.message(text)

    def stop(self) -> None:
        with self._catch_errors():
            self._inner.stop()


class AnnouncingProgress:
    """Wraps a progress display and shows some lines when the training starts, after all checks."""

    def __init__(self, inner: Progress, lines: Sequence[str]) -> None:
        self._inner, self._lines = inner, lines
        self.update, self.message, self.stop = inner.update, inner.message, inner.stop

    def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None:
        for line in self._lines:
            self._inner.message(line)
        self._inner.start(names, steps, first, constant)


def progress_for(quiet: bool, *, keep: bool = True) -> Progress:
    """Return the display that suits standard output: a live table, plain lines, or nothing if `quiet`."""
    if quiet:
        return SilentProgress()
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return SafeProgress(LiveTable(keep=keep) if is_terminal and find_spec("rich") is not None else PlainLines())


def resolve_progress(progress: Progress | bool | None, *, keep: bool = True) -> Progress:
    """Return the display for an argument `progress`: True for the usual one, False or None for warnings alone."""
    if progress is None or isinstance(progress, bool):
        return progress_for(quiet=False, keep=keep) if progress else WarningProgress()
    if not isinstance(progress, Progress) or isinstance(progress, type):
        raise SettingsError(
            f"progress is {format_value(progress)}; pass True, False or a display with the methods start, update, "
            "message and stop"
        )
    return progress
