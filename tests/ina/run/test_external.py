"""Jobs whose workers somebody else starts, by the real daemon in virtual time: leases, ends, limits."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from controller.core import Measured
from controller.policies.settings import AllocationSettings
from controller.switches.model import Feature
from controller.vocabulary import Job
from ina import faults
from ina.errors import Conflict, TooMany, Unknown
from ina.run import holder
from ina.run.launch.spec import LaunchSpec
from ina.run.policies import Policies
from ina.run.quotas import Quota
from ina.run.records import LEASE_S
from tests.ina.run.served import CLUSTER, LEFT, RIGHT, Served
from tests.ina.run.virtual import Died

_USUAL = Policies.by_default(len(CLUSTER.servers), {})
USUAL = {"scheduler": _USUAL.scheduler, "allocation": _USUAL.allocation}
"""The policies of a controller that is told none."""


def external(name: str = "job", servers: tuple[str, ...] = (LEFT, RIGHT)) -> Job:
    """A job with a worker on each of these servers."""
    return Job(name=name, workers=len(servers), servers=servers)


async def admitted(served: Served) -> None:
    """Admit a job; return when its workers may begin."""
    await served.daemon.admit(external(), holder="")
    await served.state("job", "running")


@pytest.mark.parametrize("served", [{"retries": 3}], indirect=True)
async def test_a_job_leaves_its_switches_when_nobody_renews_its_lease(served: Served) -> None:
    await admitted(served)
    assert served.world.left()["jobs on switches"]
    assert await served.over("job", within_s=LEASE_S + 5) == ["failed"]
    assert "has not sent a request for 20 s" in served.daemon.reports.record("job").reason
    await served.clean()


async def test_ranks_are_told_what_the_program_of_the_switches_lacks(served: Served) -> None:
    """They moved shards through programs that move none."""
    offers = replace(served.daemon._network.offers, lacks={Feature.SHARDS: "a table"})
    served.daemon._network.offers = offers
    await admitted(served)
    grant, spec = served.daemon.grant("job"), LaunchSpec(job=external(), machines=((0,), (1,)))
    assert holder._granted(spec, json.loads(json.dumps(grant))).offers.lacks == offers.lacks


@pytest.mark.parametrize("served", [USUAL], indirect=True)
async def test_the_default_scheduler_leaves_jobs_on_the_servers_that_they_name(served: Served) -> None:
    """`joint` put them where it liked, and so could not serve workers that are where they are."""
    await served.submit("named", 400, ("h3",))
    await admitted(served)
    for name, servers in (("named", ("h3",)), ("job", (LEFT, RIGHT))):
        assert served.daemon.reports.record(name).place.servers == servers
    await served.daemon.leave("job")
    await served.over()
    await served.clean()


@pytest.mark.parametrize("waits_for", ["gpus", "quota"])
async def test_a_job_that_waits_leaves_the_queue_when_nobody_renews_its_lease(
    served: Served, waits_for: str
) -> None:
    daemon = served.daemon
    if waits_for == "quota":
        await daemon.set_quota(Quota("a", gpus=2))
    await daemon.admit(external("first"), holder="", tenant="a")
    await served.state("first#1", "running")
    second = external("second", (LEFT, LEFT) if waits_for == "gpus" else (RIGHT,))
    await daemon.admit(second, holder="", tenant="a")
    give_up = served.loop.time() + 2 * LEASE_S
    while not daemon.reports.record("second#2").over:
        assert served.loop.time() < give_up
        await daemon.renew("first#1")
        await asyncio.sleep(1.0)
    assert daemon.reports.record("first#1").state == "running"
    await daemon.leave("first#1")
    assert await served.over("first#1") == ["completed"]
    await served.clean()


@pytest.mark.parametrize("why", ["rank 1 was killed", f"not sent a request for {LEASE_S:g} s"])
async def test_a_controller_that_starts_again_gives_holders_a_whole_lease(served: Served, why: str) -> None:
    await admitted(served)
    for _ in range(3):
        await asyncio.sleep(0.9 * LEASE_S)
        await served.again()
        assert served.daemon.reports.record("job").state == "running"
        assert served.daemon.grant("job")["crosses"]
    if "killed" in why:
        await served.daemon.leave("job", why)
    await served.until(lambda: served.daemon.reports.record("job").over, LEASE_S + 5)
    assert served.daemon.reports.record("job").reason.endswith(why)
    await served.clean()


@pytest.mark.parametrize("leases", [0.9, 1.05, 2.0])
async def test_a_controller_that_was_suspended_gives_holders_time(served: Served, leases: float) -> None:
    """It ended them after SIGSTOP and SIGCONT: no request had arrived while it did not run itself."""
    await admitted(served)
    served.loop.now_s += leases * LEASE_S
    await asyncio.sleep(LEASE_S / 2)
    assert served.daemon.reports.record("job").state == "running"
    await served.until(lambda: served.daemon.reports.record("job").over, LEASE_S + 5)
    await served.clean()


@pytest.mark.parametrize("served", [{"retries": 3}], indirect=True)
async def test_a_job_whose_server_is_drained_ends_once_its_holder_has_ended_its_workers(
    served: Served,
) -> None:
    """It cannot start elsewhere; its GPUs are not given away before."""
    await admitted(served)
    await served.daemon.drain(LEFT)
    await served.until(lambda: served.daemon.reports.record("job").state == "stopping")
    await served.daemon.renew("job")
    await served.until(lambda: bool(served.daemon._external.to_stop(0)))
    stop = await served.daemon.renew("job")
    assert stop
    assert served.daemon.ledger.holds
    await served.daemon.leave("job", stop)
    assert await served.over("job") == ["failed"]
    await served.clean()


async def test_a_job_that_was_cancelled_leaves_as_soon_as_its_workers_have_ended(served: Served) -> None:
    await admitted(served)
    await served.daemon.cancel("job")
    await asyncio.sleep(1.0)
    began_s = served.loop.time()
    await served.daemon.leave("job", "told to end")
    await served.clean()
    assert served.loop.time() - began_s < LEASE_S / 4
    assert served.daemon.reports.record("job").state == "cancelled"


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
async def test_a_holder_that_does_not_end_its_workers_when_told_loses_its_place(
    served: Served, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """A controller that dies once it has asked goes on asking; workers have as much time, and no more."""
    asked = asyncio.Event()

    def point(name: str) -> None:
        if name == "asked to end" and not asked.is_set():
            asked.set()
            if dies:
                raise Died

    monkeypatch.setattr(faults, "hook", point)
    await admitted(served)
    await served.daemon.cancel("job")
    await served.until(asked.is_set)
    began_s = served.loop.time()
    if dies:
        await served.again()
    assert served.world.left()["jobs on switches"]
    while served.daemon.ledger.holds:
        assert await served.daemon.renew("job") == "by its owner"
        assert served.loop.time() < began_s + 2 * LEASE_S
        await asyncio.sleep(1.0)
    assert served.loop.time() > began_s + LEASE_S - 1.0
    assert served.daemon.reports.record("job").state == "cancelled"
    await served.clean()


@pytest.mark.parametrize(
    "served", [{"allocation": AllocationSettings(placement="scheduler", memory="shared")}], indirect=True
)
async def test_where_the_scheduler_chooses_servers_none_is_admitted(served: Served) -> None:
    with pytest.raises(Conflict, match="want another placement"):
        await served.daemon.admit(external(), holder="")


async def test_a_tenant_submits_no_more_than_its_quota_allows_in_a_minute(served: Served) -> None:
    daemon = served.daemon
    await daemon.set_quota(Quota("a", per_minute=2))
    await daemon.admit(external("first"), holder="", tenant="a", key="1")
    await daemon.admit(external("first"), holder="", tenant="a", key="1")
    with pytest.raises(Conflict):  # what is refused for another reason does not count
        await daemon.admit(external("first"), holder="", tenant="a")
    await daemon.admit(external("second"), holder="", tenant="a")
    with pytest.raises(TooMany) as refused:
        await daemon.admit(external("third"), holder="", tenant="a")
    assert 0 < refused.value.after_s <= 30
    for name in ("first#1", "second#2"):
        await daemon.leave(name, "not needed")
    await asyncio.sleep(refused.value.after_s)
    await daemon.admit(external("third"), holder="", tenant="a")
    await daemon.leave("third#3", "not needed")
    await served.clean()


@pytest.mark.parametrize(
    "served", [{"allocation": AllocationSettings(memory="deadline", period_s=0.0)}], indirect=True
)
async def test_memory_is_divided_when_somebody_asks_and_each_job_is_told_why(served: Served) -> None:
    """One job shares all slots until a measurement shows what another, with a deadline, needs."""
    daemon = served.daemon
    await daemon.admit(external("share", (LEFT, RIGHT)), holder="")
    urgent = Job(
        name="urgent",
        workers=2,
        servers=(CLUSTER.servers_for("worker")[1], CLUSTER.servers_for("worker")[2]),
        iterations=1000,
        compute_s=0.05,
        deadline_s=100.0,
        layers_bytes=(1_000_000,),
    )
    await daemon.admit(urgent, holder="")
    for name in ("share", "urgent"):
        await served.state(name, "running")
    nothing = await daemon.reallocate()
    assert [(each["job"], each["changed"]) for each in nothing] == [("share", False), ("urgent", False)]
    assert nothing[0]["why"].endswith("shared with no other job: it has no deadline")
    daemon.ledger.record([Measured(daemon.ledger.now_s, "urgent", None, 20_000_000)])
    (found,) = await daemon.reallocate("urgent", by="alice")
    assert found["changed"]
    before, after = (sum(each["slots"] for each in found[when].values()) for when in ("before", "after"))
    assert after > before
    assert "of its own" in found["why"]
    assert "iterations of 0.05 s of computing and 20,000,000 bytes in" in found["why"]
    assert any("asked for by alice" in each.entry.text for each in daemon.reports.decisions())
    for name in ("share", "urgent"):
        await daemon.leave(name)
    await served.clean()
    with pytest.raises(Unknown):
        await daemon.reallocate("nobody")
    with pytest.raises(Conflict, match="uses no switch memory"):
        await daemon.reallocate("urgent")


@pytest.mark.parametrize("served", [{"scheduler": "muri-s"}], indirect=True)
async def test_a_scheduler_that_groups_does_not_share_gpus_of_workers_that_it_cannot_stop(
    served: Served,
) -> None:
    daemon = served.daemon
    served.world.iterations["own"] = 400
    stages = {"compute_s": 0.03, "layers_bytes": (4_000_000,)}
    everywhere = tuple(CLUSTER.servers_for("worker"))
    await daemon.submit([Job(name="own", workers=4, command=("train",), iterations=400, **stages)])
    await daemon.admit(Job(name="job", workers=4, servers=everywhere, **stages), holder="")
    while not daemon.reports.record("own").over:
        assert daemon.reports.record("job").state == "queued"
        await daemon.renew("job")
        await asyncio.sleep(1.0)
    assert daemon.reports.record("own").state == "completed"
    assert any("take turns" in each.entry.text for each in daemon.reports.decisions())
    await served.state("job", "running")
    await daemon.leave("job")
    await served.clean()


@pytest.mark.parametrize(
    "served", [USUAL | {"scheduler": "joint"}, {"scheduler": "edf"}, {"scheduler": "srsf"}], indirect=True
)
async def test_no_policy_stops_workers_that_it_cannot_start_again(served: Served) -> None:
    """A job that is urgent and short waits for them, or runs beside them; then they end well."""
    daemon = served.daemon
    everywhere = tuple(CLUSTER.servers_for("worker"))
    await daemon.admit(Job(name="job", workers=4, servers=everywhere, iterations=10_000), holder="")
    await served.state("job", "running")
    await served.submit("urgent", 10, state="queued", workers=4, deadline_s=500.0)
    for _ in range(30):
        assert await daemon.renew("job") == ""
        await asyncio.sleep(1.0)
    assert daemon.reports.record("urgent").state == "queued"
    await served.again()
    assert daemon.reports.record("job").state == "running"
    await served.daemon.leave("job")
    assert await served.over() == ["completed"] * 2
    await served.clean()
