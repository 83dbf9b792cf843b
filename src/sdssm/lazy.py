"""Names of a package that are imported when they are first used.

`import sdssm` and most commands need no torch, whose import alone takes more than a second. A package states its names
twice: imported below `if TYPE_CHECKING`, for type checkers and editors, and with their modules for `import_on_use`. A
test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any


def import_on_use(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    Args:
        package: the name of the package.
        modules: the module of each name; "module:name" if it is called otherwise there.

    The modules of the package are found as well, as if they had been imported.

    >>> find, _ = import_on_use("sdssm.report", {"Curve": "sdssm.report.curves", "trace": "sdssm.report.curves:Curve"})
    >>> find("Curve").__name__, find("trace") is find("Curve"), find("terminal").__name__
    ('Curve', True, 'sdssm.report.terminal')
    """

    def find(name: str) -> Any:
        if name in modules:
            module, _, original = modules[name].partition(":")
            value = getattr(import_module(module), original or name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, value)  # so that the next use finds it without this function
        return value

    def names() -> list[str]:
        namespace = vars(sys.modules[package])
        own = (name for name in namespace if name not in ("TYPE_CHECKING", "import_on_use"))
        submodules = (module.name for module in iter_modules(namespace["__path__"]) if module.name[0] != "_")
        return sorted({*own, *modules, *submodules})

    return find, names
