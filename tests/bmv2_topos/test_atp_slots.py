"""ATP as published, in whole jobs in virtual time."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.pages.preemption_mixes import communicating
from bmv2_topos.testbeds.virtual import Report, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Straggler

JOB = communicating("a", 4)
SLOW = replace(JOB, compute_s=1e-3, straggler=Straggler(7, 6e-3))


def run(slots: int, job: Job = JOB, *, program: str = "atp", rehashes: bool = True) -> Report:
    topology, placements = build([job], servers=True)
    settings = replace(VirtualSettings(slots=slots, samples=0), program=program, rehashes=rehashes)  # type: ignore[arg-type]
    return VirtualTestbed(topology, [job], placements, settings).run()


def test_ranks_agree_on_slots_whatever_they_measure() -> None:
    """Where nothing collides, rehashing changes nothing.

    Without it ranks once sent their priorities as salts, and those of a straggler differ.
    """
    (kept,), (other,) = run(4096, SLOW, rehashes=False).jobs, run(4096, SLOW).jobs
    assert kept.outcomes["collided"] == 0
    assert kept == other


def test_every_result_is_the_servers() -> None:
    (atp,), (shared,) = run(4096).jobs, run(4096, program="shared").jobs
    assert atp.fallback["results"] == 4 * 1024
    assert shared.fallback["results"] == 0


def test_what_collided_gets_another_slot() -> None:
    (kept,), (other,) = run(96, rehashes=False).jobs, run(96).jobs
    assert kept.outcomes["collided"] > 2 * other.outcomes["collided"] > 0
