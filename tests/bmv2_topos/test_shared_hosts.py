"""Several workers and fallback servers on one host: they share its link, and get what is theirs."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from array import array

import pytest

from bmv2_topos.faults import LinkFault, RestartJob
from bmv2_topos.testbeds.virtual import (
    Flow,
    JobReport,
    Placement,
    Report,
    TestbedError,
    VirtualSettings,
    VirtualTestbed,
)
from bmv2_topos.testbeds.virtual.admission import VirtualFleet
from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.interfaces import Assignment, Interfaces
from controller.errors import BadJob
from controller.switches.model import INA_UDP_PORT
from controller.vocabulary import Job, Link, Topology, float32_bytes, place, star, tree
from hostlib.core.state import RtoLimits
from tests.bmv2_topos.beds import SMALL, elements, job, sending

SLOW = Link("a", "b", rate_bps=1e9)


def run(
    network: Topology,
    *jobs: tuple[Job, Placement],
    settings: VirtualSettings = SMALL,
    faults: tuple[RestartJob | LinkFault, ...] = (),
) -> Report:
    entries, placements = zip(*jobs, strict=True)
    report = VirtualTestbed(network, entries, placements, settings, faults).run()
    for (entry, _), of in zip(jobs, report.jobs, strict=True):
        assert (of.outcomes["wrong_port"], of.outcomes["wrong_rank"]) == (0, 0)
        if not of.restarts:
            assert of.checked_elements == elements(entry)
    return report


@pytest.mark.parametrize("program", ["shared", "exclusive"])
@pytest.mark.parametrize("slots", [32, 4096])
def test_workers_of_one_job_and_of_two_on_the_same_hosts_get_their_own_sums(program: str, slots: int) -> None:
    settings = dataclasses.replace(SMALL, program=program, slots=slots)  # type: ignore[arg-type]
    a = (job("a", 6), Placement(("h1", "h2", "h1", "h2", "h1", "h3"), "p1"))
    b = (job("b", 3), Placement(("h2", "h2", "h1"), "p1"))
    report = run(star(3, servers=1), a, b, settings=settings)
    if slots == 4096:
        assert [of.aggregated_share for of in report.jobs] == [1.0, 1.0]


@pytest.mark.parametrize("transit", [(), (1,)])
def test_they_do_at_switches_that_sum_and_at_switches_that_only_pass(transit: tuple[int, ...]) -> None:
    network = tree([2, 2], servers=1, transit=transit, link=Link("a", "b", loss=0.02))
    a = (job("a", 6), Placement(("h1", "h1", "h2", "h3", "h3", "h3"), "p1"))
    b = (job("b", 2), Placement(("h1", "h3"), "p1"))
    report = run(network, a, b)
    assert report.lost_packets > 0
    assert all(of.resent_packets > 0 for of in report.jobs)


@pytest.mark.parametrize(
    ("hosts", "share"),
    [
        ([("h1", "h1", "h2", "h2")], 2),  # of one job
        ([("h1", "h2"), ("h1", "h2")], 2),
        ([("h1", "h3"), ("h2", "h4")], 1),
    ],
)
def test_workers_on_a_host_have_equal_parts_of_its_link(hosts: list[tuple[str, ...]], share: int) -> None:
    network, wide = star(4, servers=2, link=SLOW), dataclasses.replace(SMALL, slots=4096)
    jobs = [
        (sending(f"j{k}", len(workers)), Placement(workers, f"p{k}"))
        for k, workers in enumerate([("h1", "h2"), *hosts])
    ]
    alone = run(network, (jobs[0][0], Placement(("h1", "h2"), "p1")), settings=wide).jobs[0]
    for of in run(network, *jobs[1:], settings=wide).jobs:
        assert of.mean_iteration_s == pytest.approx(share * alone.mean_iteration_s, rel=0.1)


def test_a_fallback_server_may_share_its_host_with_others_and_with_workers_of_other_jobs() -> None:
    none = dataclasses.replace(SMALL, slots=0)  # everything goes by the fallback servers
    a = (job("a", 2), Placement(("h1", "h2"), "h3"))
    b = (job("b", 2), Placement(("h2", "h3"), "h1"))
    c = (job("c", 2), Placement(("h2", "h2"), "h3"))
    report = run(star(3), a, b, c, settings=none)
    assert all(of.fallback["results"] > 0 for of in report.jobs)


def test_faults_on_a_shared_host_leave_every_sum_exact() -> None:
    faults = (
        LinkFault(0.0001, ("h1", "s1"), "loss", 0.2),
        RestartJob(0.0004, "a", 0.0002),
        LinkFault(0.001, ("h1", "s1"), "loss", 0.0),
    )
    a = (job("a", 4, iterations=6), Placement(("h1", "h1", "h2", "h2"), "p1"))
    b = (job("b", 3, iterations=6), Placement(("h1", "h2", "h2"), "p1"))
    small = dataclasses.replace(SMALL, slots=32)
    report = run(star(2, servers=1), a, b, settings=small, faults=faults)
    assert [of.restarts for of in report.jobs] == [1, 0]
    assert [of.iterations for of in report.jobs] == [6, 6]


def test_a_socket_gets_the_frames_to_its_port_in_their_order_and_no_others() -> None:
    network = star(2)
    draw = random.Random(0)
    frames = [(draw.choice((7, 8, 9)), draw.choice((100, 200)), serial) for serial in range(200)]
    with contextlib.closing(Fabric(network, SMALL.compiled)) as fabric:
        VirtualFleet(network, fabric.switches, fabric.pipelines, SMALL.objects, slots=8192).bridge_to(
            "h1", ["h2"], draw
        )
        interfaces = Interfaces(fabric)
        sockets = [interfaces.open("h1", port) for port in (7, 8)]
        for port, length, serial in frames:
            header = bytes.fromhex(network.mac("h1").replace(":", "")) + bytes(30) + port.to_bytes(2, "big")
            fabric.send_later(
                "h2", (header + serial.to_bytes(2, "big")).ljust(length, b"."), array("Q", [1 + serial])
            )
        fabric.advance(1000)
        for socket in sockets:
            arrival = socket.receive()
            assert arrival is not None
            expected = [(length, serial) for port, length, serial in frames if port == socket.port]
            assert list(arrival.lengths) == [length for length, _ in expected]
            at, serials = 0, []
            for length in arrival.lengths:
                serials.append(int.from_bytes(arrival.data[at + 38 : at + 40], "big"))
                at += length
            assert serials == [serial for _, serial in expected]
            assert socket.receive() is None


def test_who_is_alone_on_a_host_has_the_usual_port_and_no_sink_has_it() -> None:
    placements = [Placement(("h1", "h1", "h2"), "p1"), Placement(("h2", "h3"))]
    assignment = Assignment.of(placements, ["h4", "h1", "h4"])
    first, second = assignment.jobs
    usual = INA_UDP_PORT
    assert first.workers == (usual, usual + 1, usual)
    assert first.server == usual
    assert second.workers == (usual + 1, usual)
    assert assignment.sinks == (usual + 1, usual + 2, usual + 2)


def test_a_host_runs_out_of_ports() -> None:
    many = [Placement(("h1",) * 1000)] * 23
    with pytest.raises(
        TestbedError, match="more workers, servers and sinks than the 22943 UDP ports for them"
    ):
        Assignment.of(many, [])


def test_a_switch_still_sums_up_to_32_children_however_few_hosts_they_are_on() -> None:
    run(star(2, servers=1), (job("a", 32), Placement(("h1", "h2") * 16, "p1")))
    with pytest.raises(BadJob, match="the job has 33 members; one switch sums up to 32"):
        run(star(1, servers=1), (job("a", 33), Placement(("h1",) * 33, "p1")))


def test_a_sink_of_ordinary_traffic_shares_a_host_with_workers() -> None:
    jobs = [job("a", 3, iterations=5)]
    placements = [Placement(("h1", "h1", "h2"), "p1")]
    flow = Flow(source="h2", target="h1", rate_bps=1e9, packet_bytes=500)
    report = VirtualTestbed(star(2, servers=1), jobs, placements, SMALL, flows=[flow]).run()
    assert report.jobs[0].checked_elements == elements(jobs[0])
    (of,) = report.flows
    assert of.sent_packets > 100
    assert of.sent_packets - 10 <= of.arrived_packets <= of.sent_packets


# ---------------------------------------------------------------------------
# Targets slower than time-outs expect: what comes steadily is not sent again, and what is lost is found.


WORKERS, WINDOW, LANES, FRAME_BYTES = 4, 32, 32, 198


def run_slow(rate_bps: float, *, loss: float = 0.0, iterations: int = 5) -> JobReport:
    """Run a job with the time-outs of real workers, which pauses for longer than they are."""
    job = Job(
        name="job",
        workers=WORKERS,
        window=WINDOW,
        iterations=iterations,
        layers_bytes=float32_bytes((4000,)),
        compute_s=0.05,
    )
    topology = star(WORKERS, link=Link("a", "b", rate_bps=rate_bps, loss=loss))
    settings = VirtualSettings(
        program="exclusive",
        lanes=LANES,
        slots=2 * WINDOW,
        rto=RtoLimits(),
        coalesce_us=50,
        samples=0,
        limit_s=60,
    )
    (hosts,) = place(topology, [WORKERS])
    (report,) = VirtualTestbed(topology, [job], [Placement(hosts, None)], settings).run().jobs
    return report


@pytest.mark.parametrize("rate_bps", [1e6, 3e6, 1e8])
def test_nothing_is_sent_again_where_results_come_steadily_if_slowly(rate_bps: float) -> None:
    """A time-out counted from when a packet was sent is shorter than a window's time at 1,000 packets/s.

    So packets were sent again, which made the queue longer, so that more were: 22 times each, for an
    iteration 30 times as long as the link takes.
    """
    report = run_slow(rate_bps)
    assert report.resent_packets == 0
    packets = (4000 + LANES - 1) // LANES + WINDOW  # exponents go ahead of the values by a window
    assert max(report.iteration_s) < 0.05 + 1.5 * packets * FRAME_BYTES * 8 / rate_bps + 0.01


def test_losses_at_a_slow_target_cost_little_more_than_themselves() -> None:
    report = run_slow(3e6, loss=0.01, iterations=10)
    lost_and_asked_for = report.resent_packets / report.sent_packets
    assert 0 < lost_and_asked_for < 0.2
