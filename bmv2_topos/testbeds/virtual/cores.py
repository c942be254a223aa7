"""The host library's cores, which run on the testbeds' hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hostlib._native import NativeKernel
from hostlib.core.window import Kernel
from hostlib.fallback import FallbackCore, FallbackSettings


@dataclass(frozen=True, slots=True)
class Cores:
    """Makers of the cores. Tests put others in their place: twins of them, or broken ones.

    Either may raise `hostlib.errors.NativeMissing`.
    """

    kernel: Callable[[], Kernel] = NativeKernel
    """Of a worker's window."""
    server: Callable[[FallbackSettings], FallbackCore] = FallbackCore
    """Of a fallback server."""


COMPILED: Final = Cores()
"""Those that run for real."""
