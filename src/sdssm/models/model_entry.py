"""A model that can be named, and what is known about it without building it. This module imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sdssm.models.targets import is_mixer


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelEntry:
    """A model that can be named: a sequence mixer inside our classifier, or someone else's whole module.

    `target` is the class of the mixer, or the class or factory `(n_symbols, n_classes) -> module`; None for a model of
    the catalogue, which is imported with torch only when it is built. `import_path` is how another process finds the
    target: None in the catalogue, and for code that cannot be imported, such as a function inside a function.
    `defaults` are the settings that it is trained with by default, by name. `is_asked_for` says whether the user named
    or registered it; otherwise a folder named it, and was trusted.
    """

    name: str
    target: Any = None
    import_path: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    is_asked_for: bool = True

    @property
    def is_in_catalogue(self) -> bool:
        """Whether it is one of our own models."""
        return self.target is None

    @property
    def kind(self) -> Literal["mixer", "module"]:
        """Whether it is a mixer inside our classifier, or a whole module."""
        return "mixer" if self.is_in_catalogue or is_mixer(self.target) else "module"

    @property
    def mixer(self) -> Any:
        """The class of the mixer."""
        from sdssm.layers.catalogue import MIXERS

        return MIXERS[self.name] if self.is_in_catalogue else self.target

    @property
    def description(self) -> str:
        """The first line of the docstring; empty if there is none."""
        text = inspect.getdoc(self.mixer if self.kind == "mixer" else self.target) or ""
        # A class without a docstring inherits that of its base class, which does not describe it.
        inherited = inspect.isclass(self.target) and not self.target.__dict__.get("__doc__")
        return "" if inherited else text.split("\n\n")[0].replace("\n", " ").strip()
