"""A law: something that is true of every model, with a name, and a function that checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdssm.testing.law_case import LawCase


class LawBroken(Exception):  # noqa: N818  # it is caught by `check_laws`, and no caller sees it
    """A model breaks the law; the message says what was observed."""


class DoesNotApply(Exception):  # noqa: N818  # it is caught by `check_laws`, and no caller sees it
    """A law says nothing about a model; the message is the reason."""


@dataclass(frozen=True)
class Law:
    """Something that is true of every model.

    `check` returns what was measured, raises `LawBroken` if the model breaks the law, or `DoesNotApply`. A law that
    `needs_factory` compares several models, so it is checked by `check_model` only.
    """

    name: str  #: one or two words, for lists and the names of tests
    title: str  #: the law as a sentence
    check: Callable[[LawCase], str]
    needs_factory: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LawResult:
    """Whether a model obeys a law: `passed` is True or False, or None if the law does not apply.

    `detail` is what was observed, or the reason why the law does not apply.
    """

    name: str
    title: str
    passed: bool | None
    detail: str
