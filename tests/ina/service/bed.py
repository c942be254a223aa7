"""A service that answers over HTTP, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from controller.vocabulary import Topology, parse_topology
from ina.service.api import Address, Certificate, speaking
from ina.service.reload import Files
from ina.service.tokens import Tokens
from tests.ina.service.small import SmallService

T = TypeVar("T")
FABRIC = """
[fabric]
shape = "leaf-spine"
spines = 2
leaves = 2
hosts = 2
gpus = 2
slots = 1024
"""
TIMEOUT_S = 120.0
USER = pwd.getpwuid(os.geteuid()).pw_name
"""As whom commands run: nobody has to be become."""


def cluster() -> Topology:
    """Two spines, two leaves, four servers of two GPUs each."""
    return parse_topology(FABRIC, source="cluster.toml")


def job(name: str = "vision", **keys: object) -> dict[str, object]:
    """A job that the cluster has room for."""
    return {
        "name": name,
        "workers": 4,
        "command": "python train.py",
        "iterations": 1000,
        "compute_s": 0.1,
        **keys,
    }


@dataclass
class Bed:
    """The service, where it answers, and its loop."""

    service: SmallService
    url: str
    folder: Path
    loop: asyncio.AbstractEventLoop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run this in the service's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    def do(self, call: Callable[[], T]) -> T:
        """Call this in the service's thread, and have those who watch look."""

        async def calling() -> T:
            found = call()
            await self.service.tell()
            return found

        return self.wait(calling())


@contextmanager
def serving(
    folder: Path,
    address: Address | None = None,
    certificate: Certificate | None = None,
    files: Files | None = None,
    topology: Topology | None = None,
) -> Iterator[Bed]:
    """Have a service answer; its state and logs are in the folder."""
    ready: list[Bed | BaseException] = []
    begun, ending = threading.Event(), asyncio.Event()

    async def serve() -> None:
        service = SmallService(topology or cluster(), folder)
        at = address or Address()
        reload = None if files is None else partial(files.reload, service)
        async with speaking(service, at, Tokens(folder), certificate=certificate, reload=reload) as url:
            ready.append(Bed(service, url, folder, asyncio.get_running_loop()))
            begun.set()
            await ending.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            ready.append(error)  # raised in the thread that waits for it
            begun.set()

    thread = threading.Thread(target=run, name="service")
    thread.start()
    assert begun.wait(TIMEOUT_S)
    bed = ready[0]
    if isinstance(bed, BaseException):
        thread.join()
        raise bed
    try:
        yield bed
    finally:
        bed.loop.call_soon_threadsafe(ending.set)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
