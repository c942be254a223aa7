"""What a job goes through, on each store, in virtual time; `tests/system/test_verbs.py` has each launch.

The store in memory is with the switches of one command (`FabricNetwork`), that on disk with a controller's.
Each happens to a job that runs, to which nothing else happens, or the controller is killed right after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from controller.vocabulary import Job
from ina.run.launch.spec import LaunchSpec
from tests.ina.run.served import CLUSTER, LEFT, RIGHT, Served, serving
from tests.ina.run.virtual import fill_disk

WIDE = (LEFT, RIGHT)
ITERATIONS = 400
STORES = ("SQLite", "memory")
each_store = pytest.mark.parametrize(
    "served", [{"store": each} for each in STORES], ids=STORES, indirect=True
)


@dataclass(frozen=True)
class Verb:
    """What happens to a job.

    Attributes:
        happens: Has it happen.
        ends: How the job ends then.
        starts: How often its workers start.
        said: A part of a decision about it; "": none.
    """

    happens: Callable[[Served], Coroutine[Any, Any, object]]
    ends: str = "completed"
    starts: int = 1
    said: str = ""


def spine(served: Served) -> str:
    """Return the switch of the job's tree between its racks."""
    racks = {CLUSTER.rack_of[each] for each in WIDE}
    (found,) = {*served.daemon.reports.record("own").place.tree.switches} - racks
    return found


async def leaves(served: Served, before: str) -> None:
    """Let time go on until the job runs on another tree."""
    await served.until(
        lambda: served.daemon.reports.record("own").starts == 2 and len(served.world.runs) == 1
    )
    await served.until(lambda: served.daemon.reports.record("own").state == "running")
    assert spine(served) != before


def cable(a: str, b: str) -> tuple[str, str]:
    """Return the ends of a link in the cluster's order."""
    (found,) = ((each.a, each.b) for each in CLUSTER.links if {each.a, each.b} == {a, b})
    return found


async def is_alone(served: Served) -> None:
    pass


async def is_cancelled(served: Served) -> None:
    await served.daemon.cancel("own")


async def is_drained(served: Served) -> None:
    await served.daemon.drain(LEFT)
    await served.until(lambda: served.daemon.reports.record("own").state == "queued")
    await served.daemon.drain(LEFT, back=True)


async def loses_a_spine(served: Served) -> None:
    before = spine(served)
    await served.daemon.drain(before)
    await leaves(served, before)
    await served.daemon.drain(before, back=True)


async def loses_a_link(served: Served) -> None:
    before = spine(served)
    served.world.cut.add(cable(before, CLUSTER.rack_of[LEFT]))
    await leaves(served, before)


async def is_cut_off(served: Served) -> None:
    served.world.cut.add(cable(LEFT, CLUSTER.rack_of[LEFT]))
    await served.until(lambda: not served.world.runs)
    assert served.daemon.reports.record("own").state == "queued"
    served.world.cut.clear()


async def loses_its_runner(served: Served) -> None:
    (run,) = served.world.runs
    served.world.kill(run)


async def loses_its_runner_again_and_again(served: Served) -> None:
    while not served.daemon.reports.record("own").over:
        for run in [*served.world.runs]:
            served.world.kill(run)
        await asyncio.sleep(0.1)


async def loses_its_fallback_server(served: Served) -> None:
    served.world.served.clear()


async def loses_a_hung_switch(served: Served) -> None:
    before = spine(served)
    served.world.switches[before].gone = True
    await leaves(served, before)
    served.world.switches[before].gone = False


async def has_a_switch_that_forgets(served: Served) -> None:
    for switch in served.world.switches.values():
        switch.wipe()


async def ends_as_its_server_is_drained(served: Served) -> None:
    (run,) = served.world.runs.values()
    served.world.saved["own"] = ITERATIONS  # it has done all, and nobody has looked yet
    served.world._advance(run)
    assert run.status.over
    await served.daemon.drain(LEFT)


async def ends_on_a_full_disk(served: Served) -> None:
    fill_disk(served.daemon.ledger)
    await served.until(lambda: all(run.status.over for run in served.world.runs.values()))
    await asyncio.sleep(10.0)
    assert not served.daemon.reports.record("own").over
    served.fill_disk(room=True)


VERBS = {
    "is alone": Verb(is_alone),
    "is cancelled": Verb(is_cancelled, "cancelled"),
    "is drained": Verb(is_drained, starts=2, said=f"server {LEFT} is down: drained"),
    "loses a spine": Verb(loses_a_spine, starts=2, said="job 'own' gets another tree"),
    "loses a link": Verb(loses_a_link, starts=2, said="job 'own' gets another tree"),
    "is cut off": Verb(is_cut_off, starts=2),
    "loses its runner": Verb(loses_its_runner, starts=2, said="the process that ran its workers ended"),
    "loses its runner again and again": Verb(loses_its_runner_again_and_again, "failed", 4, "4 times"),
    "loses its fallback server": Verb(loses_its_fallback_server),
    "loses a hung switch": Verb(loses_a_hung_switch, starts=2),
    "has a switch that forgets": Verb(has_a_switch_that_forgets),
    # its second start was decided, and never happened
    "ends as its server is drained": Verb(ends_as_its_server_is_drained, starts=2),
    "ends on a full disk": Verb(ends_on_a_full_disk),
}
OF_CONTROLLERS = (
    "ends on a full disk",
    "loses a spine",
    "loses a link",
    "is cut off",
    "loses its fallback server",
    "loses a hung switch",
)
"""What happens to no job of one command: its switches have one tree, and their links are not watched."""
CASES = [
    pytest.param(store, verb, killed, id=f"{store}-{name}{'-killed' if killed else ''}")
    for store in STORES
    for killed in (False, True)[: 2 if store == "SQLite" else 1]  # a store in memory ends with its process
    for name, verb in VERBS.items()
    if store == "SQLite" or name not in OF_CONTROLLERS
]


@pytest.mark.parametrize(("store", "verb", "killed"), CASES)
def test_a_job_is_done_once_and_nothing_of_it_stays(store: str, verb: Verb, killed: bool) -> None:
    async def life(served: Served) -> None:
        await served.submit("own", ITERATIONS, WIDE)
        await verb.happens(served)
        if killed:
            await served.again()
        assert await served.over("own") == [verb.ends]
        record = served.daemon.reports.record("own")
        assert record.starts == verb.starts, served.texts("own")
        assert verb.said in " ".join((record.reason, *served.texts("own")))
        assert served.world.completed == ({"own": 1} if verb.ends == "completed" else {})
        served.world.mend()
        for name in [*served.daemon.ledger.drained]:
            await served.daemon.drain(name, back=True)
        await served.clean()

    with serving(store=store) as served:
        served.loop.run_until_complete(life(served))


@each_store
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
async def test_a_job_may_be_cancelled_while_it_is_started(served: Served, after_s: float) -> None:
    """Whether its switches, its fallback server or its workers are being started then."""
    submitted = served.loop.create_task(served.submit("own", ITERATIONS, WIDE, "cancelled"))
    await asyncio.sleep(after_s)
    assert (await served.daemon.cancel("own")).state == "cancelled"
    await submitted
    await served.clean()


@each_store
async def test_two_jobs_run_at_once_where_there_is_room_and_one_after_the_other_where_there_is_none(
    served: Served,
) -> None:
    await served.submit("one", ITERATIONS, WIDE)
    await served.submit("two", ITERATIONS, CLUSTER.servers_for("worker")[1:3])
    assert len(served.world.runs) == 2
    await served.submit("next", 20, WIDE, "queued")
    assert await served.over("one", "two", "next") == ["completed"] * 3
    assert served.world.completed == {"one": 1, "two": 1, "next": 1}
    await served.clean()


@pytest.mark.parametrize("served", [{"store": "memory"}], indirect=True)
async def test_a_group_of_ranks_may_have_the_name_of_another_job(served: Served) -> None:
    """The other job then stayed on the switches, and its lease was renewed no more."""
    await served.submit("own", ITERATIONS, WIDE)
    network: Any = served.daemon._network
    network.leave(network.enter(LaunchSpec(job=Job(name="own", workers=2), places=WIDE)))
    assert [each.spec.name for each in network.held.values()] == ["own"]
    assert await served.over() == ["completed"]
    await served.clean()
