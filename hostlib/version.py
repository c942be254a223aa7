"""The version of this library, which machines compare."""

from __future__ import annotations

from importlib import metadata

from hostlib.wire import INA_VERSION


def version() -> str:
    """Return the version of the package, and of the header of its packets."""
    try:
        package = metadata.version("ina")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        package = "of sources"
    return f"{package} (header {INA_VERSION})"
