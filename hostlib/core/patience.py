"""How long a worker waits; of whom it waits for, `hostlib.core.watchdog` decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TIMEOUT_S: Final = 8.0
STRAGGLER_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Times to wait without a new result, seconds."""

    timeout_s: float = TIMEOUT_S
    """If the switch does not answer, or nobody knows that the missing ranks live."""
    straggler_timeout_s: float = STRAGGLER_TIMEOUT_S
    """If the missing ranks are known to live: they compute, or wait for something else."""
