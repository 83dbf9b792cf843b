"""Stands in for hypothesis where it is not installed: files that use it are collected, its tests are skipped."""

from __future__ import annotations

from typing import Any

import pytest


class Placeholder:
    """Accepts every attribute, call and operator that builds a strategy."""

    def __getattr__(self, name: str) -> Placeholder:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Placeholder:
        return self

    def __or__(self, other: Any) -> Placeholder:
        return self


strategies = Placeholder()


def given(*arguments: Any, **options: Any) -> pytest.MarkDecorator:
    return pytest.mark.skip(reason="needs hypothesis")


def settings(*arguments: Any, **options: Any) -> Any:
    return lambda function: function
