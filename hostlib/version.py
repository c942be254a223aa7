"""Versions of this library and of its private protocols, which the ends of a connection compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

INA_VERSION: Final = 2
"""Version of the header of packets (`hostlib.wire`); defined here so that a comparison does not load
NumPy."""
PROTOCOL: Final = 4
"""Version of all messages, orders and configurations between the processes of this product, the same at all
ends (docs/explanations/journeys.md, private protocols). What has no version is of version 1."""


def version() -> str:
    """Return the versions of the package and of the header of its packets."""
    from importlib import metadata  # a tenth of a command's start, for those that compare versions

    try:
        package = metadata.version("ina")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        package = "of sources"
    return f"{package} (header {INA_VERSION})"


def other_protocol(message: Mapping[str, Any]) -> str:
    """Return an error text if the sender of this first message has another protocol, else ""."""
    spoken = message.get("protocol", 1)
    if spoken == PROTOCOL:
        return ""
    return f"it speaks protocol {str(spoken)[:20]}, this end {PROTOCOL}: install the same ina at both"
