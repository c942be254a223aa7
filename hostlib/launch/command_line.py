"""Compose the command lines with which the product starts its own commands as processes."""

from __future__ import annotations

import sys
from typing import Final

AGAIN: Final = "again"
"""Line on the standard input of ``ina admit`` that requests one more job."""


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the product with this interpreter.

    ``-P``: Python does not import modules from the current folder.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def ina(command: str, *arguments: str) -> list[str]:
    """Return the command ``ina COMMAND …``."""
    return module("ina", command, *arguments)
