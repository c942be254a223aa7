"""Small jobs and settings for tests of the virtual testbed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from bmv2_topos.faults import Fault
from bmv2_topos.testbeds.virtual import Flow, Report, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Link, float32_bytes

SMALL = VirtualSettings(lanes=32, slots=256, samples=16, patience_s=2.0)


def job(name: str = "a", workers: int = 4, **changes: object) -> Job:
    """Return a job of three short iterations, or what `changes` make of it."""
    entry = Job(
        name=name,
        workers=workers,
        iterations=3,
        layers_bytes=float32_bytes((200, 3000)),
        compute_s=1e-4,
        jitter=0.1,
        window=64,
    )
    return dataclasses.replace(entry, **changes)  # type: ignore[arg-type]


def sending(name: str = "a", workers: int = 4, **changes: object) -> Job:
    """Return a job that does nothing but sum: a long tensor, and no time to compute it."""
    of = {
        "iterations": 2,
        "layers_bytes": float32_bytes((60_000,)),
        "compute_s": 0.0,
        "jitter": 0.0,
        "numbers": "fixed",
    }
    return job(name, workers, **{**of, **changes})


def elements(entry: Job) -> int:
    """Return how many elements the ranks of a job are handed if nothing begins anew."""
    return entry.workers * entry.iterations * sum(entry.tensors)


def check_exact(report: Report, jobs: Iterable[Job]) -> None:
    """Every element of every sum at every rank was compared; one that was not exact would have ended it."""
    for entry, of in zip(jobs, report.jobs, strict=True):
        assert (of.fate, of.checked_elements) == ("done", elements(entry))


def run(
    jobs: Sequence[Job],
    settings: VirtualSettings = SMALL,
    *,
    shape: Sequence[int] | None = None,
    link: Link | None = None,
    trunk: Link | None = None,
    transit: Sequence[int] = (),
    faults: Sequence[Fault] = (),
    flows: Sequence[Flow] = (),
) -> Report:
    """Run jobs, with fallback servers unless the program's slots are exclusive."""
    servers = settings.program != "exclusive"
    topology, placements = build(jobs, shape, servers=servers, link=link, trunk=trunk, transit=transit)
    return VirtualTestbed(topology, jobs, placements, settings, faults, flows=flows).run()
