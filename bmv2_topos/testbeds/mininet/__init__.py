"""Testbeds in Mininet, and the embedded switch for anybody's own Mininet.

Mininet comes from Debian's package (``apt-get install mininet``); its switches are `EmbeddedSwitch`. It runs
in a namespace of its own, so that nothing it does is seen by another Mininet on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bmv2_topos.testbeds.mininet.package import find
from bmv2_topos.testbeds.mininet.runner import up

if TYPE_CHECKING:
    from bmv2_topos.testbeds.mininet.switch import EmbeddedSwitch

__all__ = ["EmbeddedSwitch", "find", "up"]


def __getattr__(name: str) -> object:
    """Load Mininet when it is first used."""
    if name == "EmbeddedSwitch":
        from bmv2_topos.testbeds.mininet.switch import EmbeddedSwitch

        return EmbeddedSwitch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
