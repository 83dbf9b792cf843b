"""What the parameters of a model are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

#: Where the mixer of an SD-SSM alone stands inside the module; its parameters are named without this.
SINGLE = "layers.0.mixer."
#: Its parts, which are those of the model.
PARTS = ("dictionary", "selection", "input_matrix", "initial_state", "skip", "column_norm", "temperature")


class PaperNames(nn.Module):
    """A module of `layers`. An SD-SSM alone is the model itself: its parameters are called what the paper calls them,
    and its parts are those of the model."""

    bare: bool  #: whether it is one

    def __getattr__(self, name: str) -> Any:
        """The parts of a single layer, by the names they go by: model.dictionary; None for one that it lacks."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in PARTS or not self.__dict__.get("bare"):
                raise
            return getattr(self.get_submodule(SINGLE.rstrip(".")), name)

    def _public(self, name: str) -> str:
        return name.replace(SINGLE, "", 1) if self.bare else name

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by name; those of a single layer without the name of its place."""
        for name, parameter in super().named_parameters(prefix, recurse, remove_duplicate):
            yield self._public(name), parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers by name, in the same way."""
        for name, buffer in super().named_buffers(prefix, recurse, remove_duplicate):
            yield self._public(name), buffer

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and buffers by name, as in `named_parameters`."""
        found = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        # A destination belongs to a module around this one, which names its parts itself.
        return found if destination is not None else {self._public(name): value for name, value in found.items()}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """The reverse of `state_dict`."""
        inner = {self._public(name): name for name in super().state_dict()}
        return super().load_state_dict({inner.get(k, k): v for k, v in state_dict.items()}, strict, assign)
