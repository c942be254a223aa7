"""Connections to switches behind P4Runtime servers."""

from __future__ import annotations

from controller.p4runtime_shim.target import P4RuntimeTarget
from controller.p4runtime_shim.tls import Tls
from controller.switches.session import Controller


def connect(address: str, *, device_id: int = 0, tls: Tls | None = None) -> Controller:
    """Connect to a P4Runtime server at ``host:port`` or ``unix:path``. Raises Unreachable."""
    return Controller(P4RuntimeTarget(address, device_id=device_id, tls=tls))
