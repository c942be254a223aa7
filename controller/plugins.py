"""User-defined policies: from a Python file, a module, or a package's entry points."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from controller.errors import BadSpec, ControllerError
from controller.vocabulary.errors import kind


def is_external(spec: str) -> bool:
    """Return whether `spec` names an object in a file, as ``mine.py:Policy`` does."""
    return spec.rpartition(":")[0].endswith(".py")


def is_module(spec: str) -> bool:
    """Return whether `spec` names an object in a module, as ``package.module:Policy`` does."""
    module, colon, name = spec.partition(":")
    return bool(colon) and name.isidentifier() and _is_dotted(module)


def is_source(source: str) -> bool:
    """Return whether `source` names a file, ``mine.py``, or a module, ``package.module``."""
    return source.endswith(".py") or _is_dotted(source)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def names(group: str) -> list[str]:
    """Return the names that installed packages offer in `group`, such as ``ina.memory``, sorted."""
    from importlib.metadata import entry_points  # takes a tenth of a command's start; only plug-ins need it

    return sorted(point.name for point in entry_points(group=group))


def load(spec: str, group: str) -> Any:
    """Return the object at ``path.py:Name``, ``package.module:Name`` or an entry point of `group`.

    A file runs once per process, however often it is named. Modules are searched for in ``sys.path``, and
    then in the current folder.

    Raises:
        BadSpec: there is no such file, module, name or entry point, or importing it fails.
    """
    if not (is_external(spec) or is_module(spec)):
        return _entry_point(spec, group)
    path, _, name = spec.rpartition(":")
    found = module(path)
    try:
        return getattr(found, name)
    except AttributeError:
        raise BadSpec(f"{path}: no {name!r} in it{_hint(name, list(vars(found)))}") from None


def function(spec: str, group: str) -> Callable[..., Any]:
    """Return the function that `load` finds, wrapped: an error in it becomes a BadSpec with name and line.

    Raises BadSpec as `load` does, and for an object that cannot be called.
    """
    found = load(spec, group)
    if not callable(found):
        raise BadSpec(f"policy {spec!r} is {kind(found)}; it must be a function")

    @wraps(found)
    def guarded(*given: Any) -> Any:
        with errors_named(f"policy {spec!r}"):
            return found(*given)

    return guarded


def is_user_error(error: BaseException) -> bool:
    """Return whether an error is a fault of user code: any Exception or SystemExit, but no interrupt."""
    return isinstance(error, Exception) or type(error) is SystemExit


@contextmanager
def errors_named(name: str, raised: type[ControllerError] = BadSpec) -> Iterator[None]:
    """Raise errors of user code in the block as `raised`, with this name and the line of the error."""
    try:
        yield
    except ControllerError:
        raise
    except BaseException as error:
        if not is_user_error(error):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        raise raised(f"{name}: {text}") from error


def module(source: str) -> ModuleType:
    """Return the module in a file, ``mine.py``, or the one called ``package.module``.

    Raises BadSpec as `load` does.
    """
    return _module(Path(source).absolute()) if source.endswith(".py") else _imported(source)


def _entry_point(name: str, group: str) -> Any:
    from importlib.metadata import entry_points  # takes a tenth of a command's start; only plug-ins need it

    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except BaseException as error:
            if not is_user_error(error):
                raise
            raise BadSpec(f"{name!r} ({point.value}): {type(error).__name__}: {error}") from error
    raise BadSpec(
        f"{name!r}: no package offers it as {group}; write path.py:Name for an object in a file,"
        " package.module:Name for one in a module"
    )


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except BaseException as error:
        if not is_user_error(error):
            raise
        raise BadSpec(f"module {name}: {type(error).__name__}: {error}") from error


@cache
def _module(path: Path) -> ModuleType:
    name = f"ina_plugin_{path.stem}_{abs(hash(path)):x}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise BadSpec(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses look their module up here
    try:
        found.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not is_user_error(error):
            raise
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise BadSpec(f"{path}: {why}") from error
    return module


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, [each for each in known if not each.startswith("_")], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
