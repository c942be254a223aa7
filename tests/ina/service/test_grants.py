"""Slots and windows of jobs that run follow what is measured of them."""

from __future__ import annotations

import pytest

from controller.policies.by_kind import AllocationSettings
from controller.vocabulary import Job
from tests.ina.service.served import CLUSTER, Served, play

SERVERS = CLUSTER.servers_for("worker")


def job(name: str, servers: tuple[str, str], **more: object) -> Job:
    known = {"iterations": 10_000, "compute_s": 0.05, "layers_bytes": (1_000_000,)}
    return Job(
        name=name,
        workers=2,
        command=("train",),
        servers=servers,
        **{**known, **more},  # type: ignore[arg-type]
    )


async def begin(served: Served, *jobs: Job) -> None:
    served.world.endless |= {each.name for each in jobs}
    served.world.iterations |= dict.fromkeys((each.name for each in jobs), 10_000)
    await served.daemon.submit(jobs)
    for each in jobs:
        await served.state(each.name, "running", renewing=False)


async def end(served: Served, *jobs: Job) -> None:
    for each in jobs:
        await served.daemon.cancel(each.name)
    await served.clean()


def told(served: Served) -> dict[str, int]:
    """Return how many packets the workers of each job may have in flight, as they were told."""
    return {name: packets for run in served.world.runs.values() for name, packets in run.in_flight.items()}


def meant(served: Served) -> dict[str, int]:
    """Return how many they may have, as was decided."""
    return {name: place.in_flight for name, place in served.daemon._ledger.desired().places.items()}


def sizes(served: Served, name: str) -> list[int]:
    return [region.size for region in served.daemon._ledger.desired().places[name].regions.values()]


def test_a_wrong_hold_time_of_the_job_file_is_corrected_by_the_running_job() -> None:
    """Its owner believes that slots are held for 2 ms; its ranks tell that it is a quarter of that."""

    async def story(served: Served) -> None:
        urgent = job("urgent", (SERVERS[0], SERVERS[-1]), deadline_s=1500.0, hold_s=0.002)
        await begin(served, urgent)
        believed = sizes(served, "urgent")
        assert told(served) == {"urgent": min(believed)}
        ((number, run),) = served.world.runs.items()
        run.status.hold_s = {"urgent": 0.0005}
        served.daemon._measures._tell((number, "urgent"), None)  # of packets there are none to count
        await served.until(lambda: sizes(served, "urgent") != believed)
        for size, before in zip(sizes(served, "urgent"), believed, strict=True):
            assert size == pytest.approx(before / 4, rel=0.1, abs=1.0)
        assert any("a slot is held for 0.5 ms" in each.entry.text for each in served.daemon.decisions())
        await served.until(lambda: told(served) == meant(served) == {"urgent": min(sizes(served, "urgent"))})
        await end(served, urgent)

    play(story, allocation=AllocationSettings(memory="deadline", period_s=5.0))


def test_workers_are_told_of_each_grant_by_a_daemon_that_starts_again_too() -> None:
    async def story(served: Served) -> None:
        patient = job("patient", (SERVERS[1], SERVERS[2]))
        urgent = job("urgent", (SERVERS[0], SERVERS[-1]), deadline_s=1500.0, hold_s=0.005)
        await begin(served, patient)
        alone = meant(served)["patient"]
        await served.until(lambda: told(served) == meant(served))
        await begin(served, urgent)
        await served.until(lambda: told(served) == meant(served) and len(told(served)) == 2)
        assert told(served)["patient"] < alone
        decided = meant(served)
        for run in served.world.runs.values():
            run.in_flight = {}  # as if the daemon had died before it told them
        await served.again()
        await served.until(lambda: told(served) == meant(served) == decided)
        await end(served, patient, urgent)

    play(story, allocation=AllocationSettings(memory="deadline", period_s=0.0))
