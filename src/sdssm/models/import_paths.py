"""Import paths: "package.module:Name" and "folder/file.py:Name" for a class or function of someone else."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from sdssm.errors import ModelError, did_you_mean
from sdssm.models.neighbours import check_neighbours
from sdssm.models.source_names import names_in

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: The module or file that is being imported; None if there is none.
_importing: ContextVar[str | None] = ContextVar("_importing", default=None)


def is_import_path(text: str) -> bool:
    """Return whether a text has the form of an import path.

    >>> is_import_path("package.module:Name"), is_import_path("folder/my-model.py:Name"), is_import_path("lstm")
    (True, True, False)
    """
    module, colon, name = text.rpartition(":")
    is_module = module.endswith(".py") or _MODULE.fullmatch(module) is not None
    return bool(colon) and is_module and _MODULE.fullmatch(name) is not None


def is_file_path(path: str | None) -> bool:
    """Return whether an import path names a Python file and not an installed module.

    >>> is_file_path("folder/file.py:Name"), is_file_path("package.module:Name"), is_file_path(None)
    (True, False, False)
    """
    return path is not None and path.rpartition(":")[0].endswith(".py")


def without_folder(path: str | None) -> str | None:
    """Return an import path without the folder of a file, which concerns only this machine.

    >>> without_folder("/home/me/models/file.py:Name"), without_folder("package.module:Name")
    ('file.py:Name', 'package.module:Name')
    """
    if path is None or not is_file_path(path):
        return path
    source, name = split_import_path(path)
    return f"{Path(source).name}:{name}"


def split_import_path(path: str) -> tuple[str, str]:
    """Return the module or file of an import path, and the name of the class or function in it."""
    source, _, name = path.rpartition(":")
    return source, name


def resolve_import_path(path: str | None) -> str | None:
    """Return an import path with the absolute path of its file; that of a module is returned as it is."""
    if path is None or not is_file_path(path):
        return path
    source, name = split_import_path(path)
    return f"{Path(source).resolve()}:{name}"


def import_object(path: str, *, in_current_folder: bool = True) -> tuple[Any, str]:
    """Import what an import path names; return it and the path by which any other process finds it.

    A module is searched as `python -m` would: in the current folder first, then among the installed packages. Without
    `in_current_folder` it is searched among the installed packages only.

    >>> import_object("collections:OrderedDict")
    (<class 'collections.OrderedDict'>, 'collections:OrderedDict')
    >>> import_object("collections:OrderedDist")
    Traceback (most recent call last):
    sdssm.errors.ModelError: collections has no 'OrderedDist'; did you mean 'OrderedDict'? ...
    """
    if not is_import_path(path):
        raise ModelError(f"{path!r} is not an import path; write package.module:Name or folder/file.py:Name")
    source, name = split_import_path(path)
    importing = _importing.set(source)
    try:
        if source.endswith(".py"):
            file = Path(source).resolve()
            module, source = _import_file(file), str(file)
        else:
            module = _import_module(source, in_current_folder=in_current_folder)
    finally:
        _importing.reset(importing)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise ModelError(f"{source} has no {part!r}; {did_you_mean(part, names_in(target))}")
        target = getattr(target, part)
    return target, f"{source}:{name}"


def check_not_importing(what: str) -> None:
    """Raise an error if the code of a model is being imported: a script must not train again when it is."""
    if _importing.get() is not None:
        raise ModelError(f'it starts {what} while it is imported; put that under `if __name__ == "__main__":`')


def _import_module(name: str, *, in_current_folder: bool) -> ModuleType:
    folder = str(Path.cwd())
    is_new = in_current_folder and folder not in sys.path
    if is_new:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a script may end the process
        raise _import_error(name, error) from error
    finally:
        if is_new:
            sys.path.remove(folder)


def _import_file(file: Path) -> ModuleType:
    known = next((m for m in list(sys.modules.values()) if getattr(m, "__sdssm_file__", None) == str(file)), None)
    if known is not None:
        return known
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == file:
        return main
    if not file.is_file():
        raise ModelError(f"{file} does not exist; write the path of a Python file before the colon")
    check_neighbours(file)
    # A name of its own: a file called `json.py` must not replace the module that others import.
    name = f"sdssm_model_{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}"
    while name in sys.modules:
        name += "_"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__sdssm_file__ = str(file)  # type: ignore[attr-defined]  # our mark
    sys.modules[name] = module
    folder = str(file.parent)  # a file may import its neighbours, as a script does
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may end the process
        del sys.modules[name]
        raise _import_error(str(file), error) from error
    finally:
        sys.path.remove(folder)
    return module


def _import_error(source: str, error: BaseException) -> ModelError:
    reason = (str(error).splitlines() or [""])[0]
    if isinstance(error, ModuleNotFoundError) and error.name and source.split(".")[0] == error.name:
        problem = (
            f"there is no module {error.name!r}; install it, run the command in the folder that contains it, or write "
            "the path of its file, as in"
        )
        path = f"path/to/{error.name}.py:Name"
        return ModelError(f"{problem} {path}", shell=f"{problem} --model {path}")
    return ModelError(f"{source} cannot be imported: {type(error).__name__}: {reason}; fix it and try again")
