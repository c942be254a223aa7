"""The measured controller: ``python -m benchmarks.speed.controller_process ORDER.json``.

All of it is the product's, except that jobs have no workers: a run is a file, so that only the controller is
measured, and not four hundred Python programs on one machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from controller.p4runtime_shim.target import connect
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Topology, fabrics
from ina.api import Address, listening, speaking
from ina.run.clock import Clock
from ina.run.daemon import Daemon
from ina.run.fallback.process import FallbackServers
from ina.run.launch.executor import Executor
from ina.run.launch.orders import RunOrder, RunStatus
from ina.run.ledger import Ledger
from ina.run.network import ClusterNetwork
from ina.run.policies import Policies
from ina.run.store import Store
from ina.run.switches.programs import bundle
from ina.run.threads import Threads
from ina.run.tokens import Tokens

LANES = 32
SPINES = 2


@dataclass(frozen=True, slots=True)
class Order:
    """Order of a measurement: the state's folder, the cluster's size, and the address of each switch."""

    state: str
    leaves: int
    hosts: int
    addresses: Mapping[str, str]

    @property
    def cluster(self) -> Topology:
        """Servers of eight GPUs below leaf switches, below two spines."""
        return cluster(self.leaves, self.hosts)


def cluster(leaves: int, hosts: int) -> Topology:
    """Return the cluster for the jobs."""
    return fabrics.leaf_spine(SPINES, leaves, hosts, fabrics.Parts(gpus=8, lanes=LANES))


class NoWorkers(Executor):
    """An executor whose runs are files: they outlive the daemon, as real ones do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, order: RunOrder) -> None:
        """Start a run."""
        (self._folder / str(order.number)).touch()

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Do nothing: there are no workers."""

    def stop(self, number: int) -> None:
        """End a run."""
        (self._folder / str(number)).unlink(missing_ok=True)

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a running run, or None."""
        return RunStatus() if self.lives(number) else None

    def lives(self, number: int) -> bool:
        """Return whether it runs."""
        return os.path.exists(f"{self._folder}/{number}")  # noqa: PTH110, as it costs a sixth

    def forget(self, number: int) -> None:
        """Forget a run."""
        self.stop(number)

    def known(self) -> list[int]:
        """Return the runs."""
        return [int(path.name) for path in self._folder.iterdir()]

    def why_ended(self, number: int) -> str:
        """Return why a run has ended."""
        return f"run {number} has no workers"


async def _serve(order: Order) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(Store(Path(order.state)))
        at = {name: stack.enter_context(connect(address)) for name, address in order.addresses.items()}
        network = ClusterNetwork(lambda name, _: at[name], bundle("shared", LANES))
        policies = Policies("fifo", AllocationSettings(memory="deadline-lazy", period_s=60.0))
        daemon = Daemon(
            Ledger(store, order.cluster, policies, Clock.of(store)),
            testbed="bench",
            switches=network,
            executor=NoWorkers(Path(order.state) / "runs"),
            fallbacks=FallbackServers(lambda *_: sys.exit()),
            blocking=Threads(),
            on_loss=print,  # there are no workers, and no fallback servers
        )
        bound = stack.enter_context(listening(Address(), Tokens(store.folder), None))
        async with speaking(daemon, Address(), bound, Tokens(store.folder)) as url:
            begin = time.perf_counter()
            running = asyncio.create_task(daemon.run())
            while daemon.ready and not running.done():
                await asyncio.sleep(0.002)
            print(
                json.dumps({"url": url, "ready_s": time.perf_counter() - begin, "events": store.last}),
                flush=True,
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await running


if __name__ == "__main__":
    asyncio.run(_serve(Order(**json.loads(Path(sys.argv[1]).read_text()))))
