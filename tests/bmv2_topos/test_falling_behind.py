"""Windows that adapt, in whole jobs in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.pages.preemption_mixes import FAVOURABLE, MIXES
from bmv2_topos.testbeds.virtual import Report, VirtualSettings, VirtualTestbed, build
from tests import effort


def run(congestion: Any) -> Report:
    jobs = [
        replace(
            job, window=8 * (job.window or 1), priority=priority, congestion=congestion, preempt=True
        )  # eight times as many packets under way as in the mix, and fixed priorities
        for job, priority in zip(MIXES[FAVOURABLE], (100, 200, 200), strict=True)
    ]
    topology, placements = build(jobs, servers=True)
    settings = VirtualSettings(slots=512, seed=1, samples=0)
    return VirtualTestbed(topology, jobs, placements, settings).run()


@pytest.mark.parametrize("congestion", effort.some(["a2tp", "aimd"], every=2))
def test_no_rank_falls_behind_its_peers_for_its_own_time_outs(congestion: str) -> None:
    """One rank's window collapsed, and the mean completion time was 164 ms, with a fixed window 8 ms."""
    assert run(congestion).mean_jct_s < 1.1 * run("fixed").mean_jct_s
