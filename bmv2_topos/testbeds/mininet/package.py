"""Finds Mininet: on Python's path or in Debian's folder, where a virtual environment does not look."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path

from bmv2_topos.testbeds.netns import MissingRequirement

DEBIAN = Path("/usr/lib/python3/dist-packages/mininet")


def find() -> None:
    """Make ``import mininet`` work. Raises MissingRequirement, which says what to install."""
    if "mininet" in sys.modules:
        return
    spec = _spec()
    if spec is None or spec.loader is None:
        raise MissingRequirement("the runner mininet needs Mininet: apt-get install mininet")
    sys.modules["mininet"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Mininet uses distutils and invalid escapes
            importlib.import_module("mininet.net")
    except ImportError as error:
        raise MissingRequirement(
            f"Mininet does not load with this Python: {error}; pip install setuptools"
        ) from error


def _spec() -> ModuleSpec | None:
    """Return the import spec of the package mininet; None if there is none.

    Debian's folder is not added to Python's path, because its other packages may be incompatible with ours.
    """
    if found := importlib.util.find_spec("mininet"):
        return found
    if not (DEBIAN / "__init__.py").exists():
        return None
    return importlib.util.spec_from_file_location(
        "mininet", DEBIAN / "__init__.py", submodule_search_locations=[str(DEBIAN)]
    )
