"""Allreduce and reduce through the switch, the way training code is written.

::

    import ina

    ina.init()
    mean = ina.allreduce(gradient, op="average")
    ina.shutdown()

This is the public interface of the host library (`hostlib`). The packages below compose switch, controller,
host library and testbeds: `ina.cli` (the command), `ina.service` (runs jobs), `ina.bench`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostlib import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Return a name of the host library, imported at first use: a switch process needs none."""
    if not name.startswith("__") or name == "__all__":
        import hostlib

        if name == "__all__" or name in hostlib.__all__:
            found: object = getattr(hostlib, name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
