"""Version of this library; ranks on different machines compare their versions."""

from __future__ import annotations

from typing import Final

INA_VERSION: Final = 2
"""Version of the header of packets (`hostlib.wire`); defined here so that a comparison does not load
NumPy."""


def version() -> str:
    """Return the versions of the package and of the header of its packets."""
    from importlib import metadata  # a tenth of a command's start, for those that compare versions

    try:
        package = metadata.version("ina")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        package = "of sources"
    return f"{package} (header {INA_VERSION})"
