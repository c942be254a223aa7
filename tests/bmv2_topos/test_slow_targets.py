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
