"""Register the backend "ina" when torch is imported, so that scripts need no import for it.

This is an entry point of the group ``torch.backends``, which torch calls at the end of its own import (unless
``TORCH_DEVICE_BACKEND_AUTOLOAD`` is 0). So it imports only torch, and raises no error. The backend itself is
imported when a process group is made.

Libraries that accept only certain names (accelerate, transformers' Trainer) can use the backend, too: with
the environment variable ``INA_AS=gloo`` a default group of backend "gloo" becomes a group of backend "ina".
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import warnings
from typing import Any, Final

BACKEND: Final = "ina"
DEVICES: Final = ("cpu", "cuda")

_log = logging.getLogger("hostlib.torch")


def autoload() -> None:
    """Register the backend; only log errors, so that torch can be imported in any case."""
    try:
        register()
    except Exception as error:
        _log.warning("torch has no backend %r: %s: %s", BACKEND, type(error).__name__, error)


def register() -> None:
    """Register the backend. Without effect after the first call, or if torch has no distributed part."""
    dist = importlib.import_module("torch.distributed")
    if dist.is_available() and not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=list(DEVICES))
        if name := os.environ.get("INA_AS", "").strip().lower():
            known = ", ".join(
                each for each in dist.Backend.backend_list if each not in ("undefined", BACKEND)
            )
            if name not in dist.Backend.backend_list:
                _log.warning("INA_AS=%s does not select %r: must be one of %s", name, BACKEND, known)
            _stand_in(dist, name)


def _stand_in(dist: Any, name: str) -> None:
    """Make `init_process_group` create groups of this backend where it would use the backend `name`."""
    original = dist.init_process_group
    usual = dist.Backend.default_device_backend_map
    usual.update({device: BACKEND for device, each in usual.items() if each == name})

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        original(backend and _instead(name, backend), *arguments, **named)

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group


def _instead(name: str, backend: str) -> str:
    """Return torch's name of a backend, with this backend in place of `name`.

    >>> _instead("gloo", "GLOO"), _instead("gloo", "cpu:gloo,cuda:nccl")
    ('ina', 'cpu:ina,cuda:nccl')
    """
    parts = [part.rpartition(":") for part in backend.lower().split(",")]
    return ",".join(f"{device}{colon}{BACKEND if each == name else each}" for device, colon, each in parts)


def _create(options: Any, backend_options: Any) -> Any:
    return importlib.import_module("hostlib.torch.group").create(options, backend_options)


OLDEST: Final = (2, 13)
NEWEST: Final = (2, 14)
"""`OLDEST` and `NEWEST` are the first and the last version of torch with which the backend was tested. Each
version must be tested, because torch's interface for process groups in Python is not stable."""


def check() -> None:
    """Raise ImportError if torch is missing or too old; warn of an untested version."""
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
    wanted = f"hostlib.torch needs torch {oldest} to {newest}"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"{wanted}, and cannot import any ({error}): pip install 'ina[torch]'") from error
    version = str(getattr(torch, "__version__", "unknown"))
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise ImportError(f"{wanted}, this is torch {version}: pip install 'ina[torch]'")
    if (int(found[1]), int(found[2])) > NEWEST:
        warnings.warn(f"{wanted}; torch {version} has not been tried", stacklevel=3)
    if not importlib.import_module("torch.distributed").is_available():
        raise ImportError(f"{wanted} built with torch.distributed, which this torch {version} is not")
