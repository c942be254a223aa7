"""A service of one command: submits jobs as they arrive, and ends when all of them are over."""

from __future__ import annotations

import asyncio
import contextlib
import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from controller.core import Core, Entry, Submitted
from controller.policies.scheduling import BadDecision, Stuck
from controller.vocabulary import Topology
from ina.runtime.errors import ProcessFailed
from ina.runtime.fabric import SwitchFabric
from ina.runtime.jobs import OnOutput
from ina.runtime.spec import LaunchSpec
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.in_process import FabricPlane, FabricRuns, OwnFallback
from ina.service.ledger import Ledger
from ina.service.policies import Policies
from ina.service.retention import Retention
from ina.service.store import Store
from ina.service.threads import Threads

FOR_EVER = Retention(jobs=1 << 62, age_s=math.inf)
"""The command reports all jobs."""
LOOK_S = 0.1
"""Interval at which the service is asked how it is, and told how far jobs are."""


class LiveJobs:
    """Jobs that a service in this process runs on a fabric; made by `serving`."""

    def __init__(self, ledger: Ledger, daemon: Daemon, fabric: SwitchFabric, runs: FabricRuns) -> None:
        self.daemon = daemon
        """The service."""
        self._ledger = ledger
        self._fabric = fabric
        self._runs = runs
        self._told = 0

    @property
    def core(self) -> Core:
        """What decides."""
        return self._ledger.core

    async def run(
        self, jobs: Sequence[Submitted], *, on_entry: Callable[[Entry], None] = lambda entry: None
    ) -> None:
        """Submit each job at its time, and return when all have ended; `on_entry` gets the core's log.

        Raises ProcessFailed if the switches are gone, Stuck if jobs would wait for ever, and BadDecision if
        the policy cannot decide; nothing runs then. A job that fails is noted (`Core.over`), and the others
        go on.
        """
        loop = asyncio.get_running_loop()
        self._runs.on_end = partial(loop.call_soon_threadsafe, self.daemon.look_soon)
        serving = asyncio.create_task(self.daemon.run())
        submitting = asyncio.create_task(self._submit(jobs, on_entry))
        try:
            done, _ = await asyncio.wait({serving, submitting}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._runs.on_end = lambda: None
            for task in (submitting, serving):
                task.cancel()
            await asyncio.gather(submitting, serving, return_exceptions=True)
            self._runs.close()

    async def _submit(self, jobs: Sequence[Submitted], on_entry: Callable[[Entry], None]) -> None:
        daemon = self.daemon
        coming = deque(sorted(jobs, key=lambda each: each.at_s))
        while daemon.ready:
            await asyncio.sleep(LOOK_S / 10)
        while coming or self.core.jobs:
            now_s = daemon.now_s
            arrived = []
            while coming and coming[0].at_s <= now_s:
                arrived.append(coming.popleft()._replace(at_s=now_s))
            await daemon.take_in(arrived)
            self._tell(on_entry)
            self._check(waits=not coming)
            until_s = coming[0].at_s - now_s if coming else LOOK_S
            await asyncio.sleep(min(LOOK_S, max(0.0, until_s)))
        self._tell(on_entry)

    def _check(self, *, waits: bool) -> None:
        self._runs.check()
        if why := self._fabric.ended():
            raise ProcessFailed(why)
        if waits and self.core.stuck:
            if self.core.undecided:
                raise BadDecision(self.core.undecided)
            raise Stuck(f"no job runs, and {', '.join(self.core.jobs)} would wait forever")

    def _tell(self, on_entry: Callable[[Entry], None]) -> None:
        assert self.core.log is not None
        entries = self.core.log.entries
        for entry in entries[self._told :]:
            on_entry(entry)
        self._told = len(entries)


@contextlib.contextmanager
def serving(
    cluster: Topology,
    policies: Policies,
    fabric: SwitchFabric,
    jobs: Mapping[str, LaunchSpec],
    *,
    on_output: OnOutput,
    describe: Callable[[BaseException], str] = str,
) -> Iterator[LiveJobs]:
    """Make a service of jobs on a fabric; nobody can reach it, and its state goes with it.

    Args:
        cluster: Servers and, unless the policies have no allocation, switches and links, to decide on.
        policies: Who decides.
        fabric: The switch that stands for those of the cluster.
        jobs: What the workers of each job run.
        on_output: Called with what they write.
        describe: Puts into words why a job failed.

    Raises BadSpec for policies that nobody has.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ina-live-") as folder,
        Store(Path(folder)) as store,
        contextlib.ExitStack() as stack,
    ):
        ledger = Ledger(store, cluster, policies, Clock.of(store), retention=FOR_EVER)
        runs = FabricRuns(fabric, jobs, on_output=on_output, describe=describe)
        plane = stack.enter_context(contextlib.closing(FabricPlane(fabric, jobs)))
        daemon = Daemon(
            ledger,
            testbed="",
            switches=plane,
            executor=runs,
            fallbacks=OwnFallback(),
            blocking=Threads(),
            progress_s=0.0,
        )
        yield LiveJobs(ledger, daemon, fabric, runs)
