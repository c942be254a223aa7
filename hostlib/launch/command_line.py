"""How the product starts its own commands as processes: the one place that composes these command lines."""

from __future__ import annotations

import sys
from typing import Final

AGAIN: Final = "again"
"""What ``ina admit`` is told to admit one more job."""


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the product with this interpreter.

    ``-P``: modules come from where this process found them, not from the current folder.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def ina(command: str, *arguments: str) -> list[str]:
    """Return the command ``ina COMMAND …``."""
    return module("ina", command, *arguments)
