"""Find congestion controls by name: the library's, and a researcher's own.

A name is a key of `CONGESTION`, or names a congestion control from outside the library:

===========================  ==========================================================================
``path.py:Name``             a class of a Python file, or a function that returns an object: it is called
                             without arguments for each rank; the object has `start` and `on_round` as
                             in `Congestion`
``package.module:Name``      such a class or function of an installed module
``name``                     such a class or function that a package offers as an entry point of `GROUP`
``path.so:function``         a function of a shared object, as ``_native/ina_window.h`` declares it: the
                             compiled core calls it, without Python
===========================  ==========================================================================

All ranks of a job load the control by its name. To detect different files, the packets of a job carry a
digest of the file (`Control.digest`): ranks with a different digest raise `RanksDisagree`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from hostlib.core.congestion import CONGESTION, RULE_STATE, BadLimits, Congestion, Limits, Round
from hostlib.errors import ConfigError

GROUP: Final = "ina.congestion"
"""Group of entry points of packages that offer a congestion control."""

__all__ = ["GROUP", "Control", "Limits", "Round", "check_name", "find", "is_outside"]


@dataclass(frozen=True, slots=True)
class Control:
    """A congestion control found by name."""

    name: str
    make: Callable[[], Congestion]
    """Function that returns a rank's congestion control. Raises ConfigError."""
    digest: int = 0
    """Digest of the control's file and of its name in the file; 0 for a control of the library."""


def is_outside(name: str) -> bool:
    """Return whether the library has no congestion control of this name."""
    return name not in CONGESTION


def check_name(name: object) -> None:
    """Raise ConfigError if this is no valid name of a congestion control. Files are not checked."""
    if isinstance(name, str) and (name in CONGESTION or _in_file(name) or name in _offered()):
        return
    raise ConfigError(
        f"congestion is {name!r}, must be one of {(*CONGESTION, *_offered())}; or of your own: path.py:Name,"
        " package.module:Name or path.so:function"
    )


def find(name: str) -> Control:
    """Return the congestion control of this name.

    Raises:
        ConfigError: there is no such congestion control, or its import fails.
    """
    if name in CONGESTION:
        return Control(name, {str(key): make for key, make in CONGESTION.items()}[name])
    check_name(name)
    source, _, what = name.rpartition(":")
    if not source:
        from importlib.metadata import entry_points  # a tenth of a command's start, for plug-ins alone

        (point,) = entry_points(group=GROUP, name=name)
        source, what = point.module, point.attr
    if source.endswith(".so"):
        return _of_c(name, Path(source), what)
    module = _run(name, Path(source).absolute()) if source.endswith(".py") else _import(name, source)
    made = getattr(module, what, None)
    if not callable(made):
        names = ", ".join(each for each in vars(module) if not each.startswith("_"))
        raise ConfigError(f"congestion {name}: there is no {what!r} to call; there are {names}")
    file = getattr(module, "__file__", None)
    return Control(name, lambda: _Own(name, _called(name, made)), _digest(file and Path(file), what))


class _Own:
    """A congestion control in Python from outside the library, with a name and default attributes."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self.wants_rounds = bool(getattr(inner, "wants_rounds", True))
        self.hears_losses = bool(getattr(inner, "hears_losses", False))
        self.hears_waiting = bool(getattr(inner, "hears_waiting", True))
        self._inner = inner

    def start(self, window: int) -> Limits:
        return cast(Limits, self._inner.start(window))

    def on_round(self, outcome: Round) -> Limits:
        return cast(Limits, self._inner.on_round(outcome))


class _Outcome(ctypes.Structure):
    """``struct ina_round`` of ``ina_window.h``."""

    _fields_ = (
        ("results", ctypes.c_int64),
        ("marked", ctypes.c_int64),
        ("collided", ctypes.c_int64),
        ("waiting", ctypes.c_double),
    )


class _Limits(ctypes.Structure):
    """``struct ina_limits``."""

    _fields_ = (("in_flight", ctypes.c_int64), ("claims", ctypes.c_int64))


class _InC:
    """A congestion control in C: the compiled core calls it directly, Python code through this class."""

    wants_rounds = True

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self._function = function
        self._state = (ctypes.c_double * RULE_STATE)()
        self._most = self._in_flight = 1

    @property
    def in_c(self) -> tuple[int, int]:
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        return address, ctypes.addressof(self._state)

    def start(self, window: int) -> Limits:
        self._most = self._in_flight = window
        ctypes.memset(self._state, 0, ctypes.sizeof(self._state))
        return self._call(None)

    def on_round(self, outcome: Round) -> Limits:
        round_struct = _Outcome(outcome.results, outcome.marked, outcome.collided, outcome.waiting)
        return self._call(ctypes.byref(round_struct))

    def _call(self, outcome: object) -> Limits:
        limits = _Limits(self._in_flight, self._most)
        status = self._function(self._state, self._most, outcome, ctypes.byref(limits))
        if status:
            raise BadLimits(f"its C function returned {status}, must be 0 for success")
        self._in_flight = limits.in_flight
        return Limits(limits.in_flight, limits.claims)


def _of_c(name: str, path: Path, function: str) -> Control:
    try:
        found = getattr(ctypes.CDLL(str(path.absolute())), function)
    except OSError as error:
        raise ConfigError(f"congestion {name}: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"congestion {name}: there is no function {function!r} in the file") from error
    found.restype = ctypes.c_int
    found.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    return Control(name, lambda: _InC(name, found), _digest(path, function))


def _called(name: str, made: Callable[[], Any]) -> Any:
    try:
        inner = made()
    except Exception as error:
        raise ConfigError(f"congestion {name}: {type(error).__name__}: {error}") from error
    for method in ("start", "on_round"):
        if not callable(getattr(inner, method, None)):
            raise ConfigError(f"congestion {name}: {type(inner).__name__} has no method {method!r}")
    return inner


def _run(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ina_congestion_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"congestion {name}: {why}") from error
    return module


def _import(name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ConfigError(f"congestion {name}: {type(error).__name__}: {error}") from error


def _in_file(name: str) -> bool:
    source, _, what = name.rpartition(":")
    is_module = all(part.isidentifier() for part in source.split("."))
    return what.isidentifier() and (source.endswith((".py", ".so")) or is_module)


def _offered() -> list[str]:
    from importlib.metadata import entry_points  # a tenth of a command's start, for plug-ins alone

    return sorted(point.name for point in entry_points(group=GROUP))


def _digest(file: Path | None, what: str) -> int:
    """Return a digest of a file and of the name `what` in it; the digest is never 0."""
    content = b"" if file is None else file.read_bytes()
    return zlib.crc32(content + what.encode()) or 1
