"""Tells torch of the backend "ina" as torch is imported: no script has to import anything for it.

An entry point of the group ``torch.backends``, which torch calls at the end of its own import (unless
``TORCH_DEVICE_BACKEND_AUTOLOAD`` is 0). So it imports nothing but torch, and raises nothing. What the backend
is made of is imported when a process group is made.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any, Final

BACKEND: Final = "ina"
DEVICES: Final = ("cpu", "cuda")

_log = logging.getLogger("hostlib.torch")


def autoload() -> None:
    """Register the backend; only log what prevents it, so that torch can be imported anyway."""
    try:
        register()
    except Exception as error:
        _log.warning("torch has no backend %r: %s: %s", BACKEND, type(error).__name__, error)


def register() -> None:
    """Register the backend. Without effect if done before, or if torch has no distributed part."""
    dist = importlib.import_module("torch.distributed")
    if dist.is_available() and not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=list(DEVICES))


def _create(options: Any, backend_options: Any) -> Any:
    return importlib.import_module("hostlib.torch.group").create(options, backend_options)
