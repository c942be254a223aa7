"""Targets slower than time-outs expect: what comes steadily is not sent again, and what is lost is found."""

from __future__ import annotations

import pytest

from bmv2_topos.testbeds.virtual import JobReport, Placement, VirtualSettings, VirtualTestbed
from controller.vocabulary import Job, Link, float32_bytes, place
from controller.vocabulary.catalog import star
from hostlib.core.state import RtoLimits

WORKERS, WINDOW, LANES, FRAME_BYTES = 4, 32, 32, 198


def run(rate_bps: float, *, loss: float = 0.0, iterations: int = 5) -> JobReport:
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
    report = run(rate_bps)
    assert report.resent_packets == 0
    packets = (4000 + LANES - 1) // LANES + WINDOW  # exponents go ahead of the values by a window
    assert max(report.iteration_s) < 0.05 + 1.5 * packets * FRAME_BYTES * 8 / rate_bps + 0.01


def test_losses_at_a_slow_target_cost_little_more_than_themselves() -> None:
    report = run(3e6, loss=0.01, iterations=10)
    lost_and_asked_for = report.resent_packets / report.sent_packets
    assert 0 < lost_and_asked_for < 0.2


@pytest.mark.parametrize("rate_mbps", [20, 8, 1])
def test_slow_links_carry_little_more_than_each_packet_once(rate_mbps: float) -> None:
    """Shared slots, few of them, and ranks out of step: most of a window leaves at once, and waits in queues.

    What waited was taken for lost: two workers on 20 Mb/s sent 58,936 packets, 1,140 of them for the first
    time, which filled the queues; on 8 Mb/s the job ended with "no result for 10 s".
    """
    job = Job(
        name="job", workers=2, iterations=2, layers_bytes=float32_bytes((10_000,)), compute_s=0.02, jitter=0.3
    )
    topology = star(3, link=Link("a", "b", rate_bps=rate_mbps * 1e6))
    hosts, server = topology.servers_for("worker")[:2], topology.servers_for("worker")[2]
    settings = VirtualSettings(slots=8, samples=0)
    (report,) = VirtualTestbed(topology, [job], [Placement(tuple(hosts), server)], settings).run().jobs
    least = report.sent_packets - report.resent_packets
    assert report.checked_elements == 2 * 2 * 10_000
    assert report.sent_packets < 1.15 * least
