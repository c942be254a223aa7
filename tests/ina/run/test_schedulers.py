"""The service under every scheduler of ``ina schedule``, in virtual time: one daemon, other policies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.core import Submitted
from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import Submission
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Cluster, Job, fabrics
from ina.run.policies import Policies
from tests.ina.run.served import Served, serving

ON_GPUS = AllocationSettings(placement="scheduler", memory="shared")
STAGES_S = (0.0125,) * 4
GPUS = (2, 1, 2)
"""Of the jobs, of which not all have room at once."""
MANY = "synergy:"
"""Orders and allocators of this family go together in any way: each is tried once."""
SETTINGS = {"sharing:": (("profile_s", 0.0),)}
"""By the beginning of names: what would last for minutes otherwise."""
STAR = fabrics.star(2, fabrics.Parts(gpus=2, slots=1024))
STAR = replace(STAR, servers=tuple(replace(each, cpus=8.0, memory_gb=64.0) for each in STAR.servers))


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


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with serving(cluster=STAR) as made:
        yield made


def submitted(service: Served, name: str, scheduler: str, gpus: int) -> Submitted:
    """Return the submission of a job of a model that the scheduler knows."""
    plain = Submission(name, service.daemon.ledger.now_s, gpus, 10, sum(STAGES_S), STAGES_S)
    config = SimulationConfig(Cluster.of(STAR))
    (spec,) = registry.complete_jobs([plain], registry.family(scheduler), config)
    service.world.iterations[name] = spec.iterations
    job = Job(name=name, workers=spec.gpus, command=("train",), model=spec.model, extra=spec.extra)
    return Submitted(spec.arrival_s, spec, job)


@pytest.mark.parametrize("scheduler", schedulers())
def test_the_service_runs_jobs_under_every_scheduler(service: Served, scheduler: str) -> None:
    settings = next((each for begin, each in SETTINGS.items() if scheduler.startswith(begin)), ())
    names = [f"{scheduler}-{number}" for number in range(len(GPUS))]

    async def life() -> None:
        await service.daemon.reload(Policies(scheduler, ON_GPUS, settings=settings))
        for name, gpus in zip(names, GPUS, strict=True):
            await service.daemon.add_jobs([submitted(service, name, scheduler, gpus)])
        assert await service.over(*names) == ["completed"] * len(names)
        assert service.daemon.ledger.core.policy_failure == ""

    service.loop.run_until_complete(life())


@pytest.mark.parametrize("served", [{"scheduler": "muri-s"}], indirect=True)
async def test_a_member_that_is_cancelled_ends_and_the_others_of_its_group_start_again(
    served: Served,
) -> None:
    """Found by cancelling one: its workers went on to their end, in turns with the others."""
    stages_s = {"stays": (0.04, 0.01, 0.01, 0.01), "goes": (0.01, 0.04, 0.01, 0.01)}
    served.world.iterations |= dict.fromkeys(stages_s, 400)
    keys = {"workers": 4, "command": ("train",), "iterations": 400}
    await served.daemon.submit([Job(name=name, stages_s=each, **keys) for name, each in stages_s.items()])
    await served.until(lambda: served.daemon.reports.record("goes").state == "running")
    (run,) = served.world.runs.values()
    assert {job.name for job in run.order.jobs} == {*stages_s}, "they are a group"
    await served.daemon.cancel("goes")
    assert await served.over("stays", "goes") == ["completed", "cancelled"]
    assert served.daemon.reports.record("stays").starts == 2
    assert served.world.completed == {"stays": 1}
    await served.clean()
