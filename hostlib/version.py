"""The version of this library, which machines compare."""

from __future__ import annotations

from hostlib.wire import INA_VERSION


def version() -> str:
    """Return the version of the package, and of the header of its packets."""
    from importlib import metadata  # a tenth of a command's start, for those that compare versions

    try:
        package = metadata.version("ina")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        package = "of sources"
    return f"{package} (header {INA_VERSION})"
