"""Threads for blocking calls.

Calls to switches are made one after the other, in one thread. So are calls to fallback servers, in another
thread. Calls to the executor are made in several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

RUNS = 16
"""Maximum number of simultaneous calls to the executor: starts, stops and checks of runs."""


class Threads:
    """Runs blocking calls in threads, so that they do not block the loop."""

    def __init__(self) -> None:
        self._switches = ThreadPoolExecutor(1, thread_name_prefix="switches")
        self._fallbacks = ThreadPoolExecutor(1, thread_name_prefix="fallbacks")
        self._runs = ThreadPoolExecutor(RUNS, thread_name_prefix="runs")

    async def switches(self, call: Callable[[], T]) -> T:
        """Run a call to switches in the thread for switches, after all earlier calls; return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._switches, call)

    async def fallbacks(self, call: Callable[[], T]) -> T:
        """Run a call to fallback servers in the thread for fallback servers, after all earlier calls.

        Return the call's result.
        """
        return await asyncio.get_running_loop().run_in_executor(self._fallbacks, call)

    async def runs(self, call: Callable[[], T]) -> T:
        """Run a call to the executor in one of several threads; return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._runs, call)

    async def disk(self, call: Callable[[], T]) -> T:
        """Run a call that waits for the disk in a thread; return its result. Also works after `close`."""
        return await asyncio.to_thread(call)

    def close(self) -> None:
        """Wait for running calls; cancel calls that have not begun."""
        for pool in (self._switches, self._fallbacks, self._runs):
            pool.shutdown(wait=True, cancel_futures=True)
