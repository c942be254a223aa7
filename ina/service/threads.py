"""Threads for blocking calls.

Calls to switches are made in one thread, in turn, and so are calls to fallback servers; all others are made
in several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

RUNS = 16
"""Concurrent starts, stops and checks of runs."""


class Threads:
    """Makes calls that block without holding up the loop."""

    def __init__(self) -> None:
        self._switches = ThreadPoolExecutor(1, thread_name_prefix="switches")
        self._fallbacks = ThreadPoolExecutor(1, thread_name_prefix="fallbacks")
        self._runs = ThreadPoolExecutor(RUNS, thread_name_prefix="runs")

    async def switches(self, call: Callable[[], T]) -> T:
        """Call a switch: one call after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._switches, call)

    async def fallbacks(self, call: Callable[[], T]) -> T:
        """Call a fallback server: one call after the other, but beside calls to switches."""
        return await asyncio.get_running_loop().run_in_executor(self._fallbacks, call)

    async def runs(self, call: Callable[[], T]) -> T:
        """Call the executor."""
        return await asyncio.get_running_loop().run_in_executor(self._runs, call)

    async def disk(self, call: Callable[[], T]) -> T:
        """Make a call that waits for the disk, also while the service ends."""
        return await asyncio.to_thread(call)

    def close(self) -> None:
        """Wait for running calls; drop the others."""
        self._switches.shutdown(wait=True, cancel_futures=True)
        self._fallbacks.shutdown(wait=True, cancel_futures=True)
        self._runs.shutdown(wait=True, cancel_futures=True)
