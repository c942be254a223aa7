"""The service under every scheduler of ``ina schedule``: real processes, one daemon whose policies change."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from controller.core import Submitted
from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import Submission
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Cluster, Job, fabrics
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.live import LiveJobs, WorkerOptions
from ina.run.policies import Policies
from ina.run.switches.fabric import open_fabric
from tests.system.command import family

T = TypeVar("T")

TIMEOUT_S = 120.0
ON_GPUS = AllocationSettings(placement="scheduler")
Stages = tuple[float, ...]
EVEN: Stages = (0.005,) * 4
GPUS = (2, 1, 2)
"""Of the jobs, of which not all have room at once."""
MANY = "synergy:"
"""Orders and allocators of this family go together in any way: each is tried once."""
SETTINGS = {"sharing:": (("profile_s", 0.0),)}
"""By the beginning of names: what would last for minutes otherwise."""


def schedulers() -> list[str]:
    names = [name for name in registry.known() if not name.startswith(MANY)]
    orders: dict[str, None] = {}
    allocators: dict[str, None] = {}
    for name in registry.known():
        if name.startswith(MANY):
            order, _, allocator = name.removeprefix(MANY).partition("+")
            orders[order] = allocators[allocator] = None
    pairs = zip(itertools.cycle(orders), allocators, strict=False)
    return [*names, *(f"{MANY}{order}+{allocator}" for order, allocator in pairs)]


class Bed:
    """A service in a thread of its own, on two servers of two GPUs."""

    def __init__(self, live: LiveJobs, specs: dict[str, LaunchSpec], loop: asyncio.AbstractEventLoop) -> None:
        self.live = live
        self.specs = specs
        self.loop = loop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(2 * TIMEOUT_S)

    def decide_by(self, policies: Policies) -> None:
        self.wait(self.live.loop.reload(policies))

    def job(
        self,
        name: str,
        scheduler: str,
        gpus: int,
        command: tuple[str, ...] = ("true",),
        stages_s: Stages = EVEN,
    ) -> Submitted:
        """Return a job of a model that the scheduler knows."""
        plain = Submission(name, self.live.loop.ledger.now_s, gpus, 10, sum(stages_s), stages_s)
        (spec,) = registry.complete_jobs([plain], registry.family(scheduler), SimulationConfig(CLUSTER))
        job = Job(name=name, workers=spec.gpus, command=command, model=spec.model, extra=spec.extra)
        self.specs[name] = LaunchSpec(job=Job(name=name, workers=spec.gpus, command=command))
        return Submitted(spec.arrival_s, spec, job)

    def submit(self, *jobs: Submitted) -> None:
        """Submit jobs, all at once."""
        self.wait(self.live.loop.add_jobs(jobs))

    def outcomes(self, names: list[str]) -> dict[str, str]:
        """Wait until these jobs are over, and return how."""

        async def over() -> dict[str, str]:
            core = self.live.core
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    while any(name in core.jobs for name in names):
                        await asyncio.sleep(0.01)
            except TimeoutError:
                lines = [
                    f"{each.at_s:.2f} {each.event} {each.jobs}: {each.text}" for each in core.log.entries
                ]
                holds = self.live.loop.ledger.holds
                pytest.fail("\n".join([f"not over: {core.desired()}", f"holds {holds}", *lines[-60:]]))
            return {
                each.job.spec.name: each.outcome for each in core.finished_jobs if each.job.spec.name in names
            }

        return self.wait(over())


TOPOLOGY = fabrics.star(2, fabrics.Parts(gpus=2, slots=1024))
TOPOLOGY = replace(
    TOPOLOGY, servers=tuple(replace(server, cpus=8.0, memory_gb=64.0) for server in TOPOLOGY.servers)
)
CLUSTER = Cluster.of(TOPOLOGY)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    specs: dict[str, LaunchSpec] = {}
    loop = asyncio.new_event_loop()
    last = Submission("last", 1e9, 1, 1)  # the service does not end before it has arrived
    jobs = [Submitted(1e9, last, Job(name="last", workers=1, command=("true",)))]
    with (
        family(),
        open_fabric(FabricSpec("shared"), [CLUSTER.gpus] * 4) as fabric,
    ):
        how = WorkerOptions(on_output=lambda *_: None, takes_turns=True)
        live = LiveJobs(TOPOLOGY, Policies("fifo", ON_GPUS), fabric, specs, how)
        run = loop.create_task(live.run(jobs))
        thread = threading.Thread(
            target=lambda: loop.run_until_complete(asyncio.gather(run, return_exceptions=True))
        )
        thread.start()
        try:
            made = Bed(live, specs, loop)
            while live.loop.ready:
                assert thread.is_alive()
            yield made
            assert not run.done(), "it is there to the end"
        finally:
            loop.call_soon_threadsafe(run.cancel)
            thread.join(TIMEOUT_S)
            loop.close()


@pytest.mark.parametrize("scheduler", schedulers())
def test_the_service_runs_jobs_under_every_scheduler(bed: Bed, scheduler: str) -> None:
    settings = next((each for begin, each in SETTINGS.items() if scheduler.startswith(begin)), ())
    bed.decide_by(Policies(scheduler, ON_GPUS, settings=settings))
    names = [f"{scheduler}-{number}" for number in range(len(GPUS))]
    for name, gpus in zip(names, GPUS, strict=True):
        bed.submit(bed.job(name, scheduler, gpus))
    assert bed.outcomes(names) == dict.fromkeys(names, "completed")
    assert bed.live.core.policy_failure == ""


def test_a_member_that_is_cancelled_ends_and_the_others_of_its_group_start_again(
    bed: Bed, tmp_path: Path
) -> None:
    """Found by cancelling one: its workers went on to their end, in turns with the others."""
    bed.decide_by(Policies("muri-s", ON_GPUS))
    flag = tmp_path / "flag"
    stages_s = {"stays": (0.04, 0.01, 0.01, 0.01), "goes": (0.01, 0.04, 0.01, 0.01)}
    jobs = []
    for name in stages_s:
        script = f"echo $$ >> {tmp_path / name}; until [ -e {flag} ]; do sleep 0.02; done"
        jobs.append(bed.job(name, "muri-s", 4, ("sh", "-c", script), stages_s[name]))
    bed.submit(*jobs)  # one that came later would have the first start again

    def processes(name: str) -> list[int]:
        path = tmp_path / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def lives(process: int) -> bool:
        return Path(f"/proc/{process}").exists()

    def until(holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < give_up, bed.live.core.desired()
            time.sleep(0.02)

    until(lambda: len(processes("stays")) == len(processes("goes")) == 4)
    assert len(bed.live.core.desired().runs) == 1, "they are a group"
    bed.wait(bed.live.loop.end("goes", "by its owner"))
    until(lambda: len(processes("stays")) == 8)
    assert not any(map(lives, processes("goes")))
    assert [*map(lives, processes("stays"))] == [False] * 4 + [True] * 4
    flag.touch()
    assert bed.outcomes(["stays", "goes"]) == {"stays": "completed", "goes": "cancelled"}
