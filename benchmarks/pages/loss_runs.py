"""The runs of the page on loss: jobs that only sum, on links that lose packets, with probes and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bmv2_topos.harness import ResultRow, Scenario, mean_iteration_s
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link, Straggler, float32_bytes

SLOTS: Final = 8192
WORKERS: Final = (4, 8)
SEEDS: Final = (1, 2, 3, 4, 5)
LOSSES: Final = (0.0, 1e-4, 1e-3, 1e-2)
MORE_LOSSES: Final = (*LOSSES, 2e-2, 5e-2)
"""Losses of the runs with the largest tensors."""
SIZES_KB: Final[Mapping[int, int]] = {16: 80, 64: 30, 256: 12, 1024: 5, 4096: 2}
"""Iterations by size of the tensor: about as many losses for each size."""
PROBES: Final = ("on", "off")
STRAGGLER_S, STRAGGLER_ITERATIONS = 2e-3, 20


@dataclass(frozen=True, slots=True)
class Kind:
    """A program, and the number of packets that a worker may have in flight."""

    program: str
    in_flight: int


KINDS: Final[Mapping[str, Kind]] = {
    "exclusive": Kind("exclusive", 256),
    "shared": Kind("shared", 80),
    "shared, 256 in flight": Kind("shared", 256),
}


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep, and the runs with a straggler."""
    return [*_losses(quick), *_stragglers(quick)]


def _losses(quick: bool) -> Iterator[Scenario]:
    for kind in KINDS:
        for workers in WORKERS[:1] if quick else WORKERS:
            for size_kb in (16, 64) if quick else SIZES_KB:
                losses = MORE_LOSSES if size_kb == max(SIZES_KB) else LOSSES
                for loss in (0.0, 1e-2) if quick else losses:
                    for seed in SEEDS[:1] if quick or not loss else SEEDS:
                        yield from _with_and_without(
                            {
                                "kind": kind,
                                "workers": workers,
                                "size_kb": size_kb,
                                "loss": loss,
                                "seed": seed,
                            },
                            Job(
                                name="job",
                                workers=workers,
                                window=KINDS[kind].in_flight,
                                numbers="fixed",
                                iterations=10 if quick else SIZES_KB[size_kb],
                                layers_bytes=float32_bytes((size_kb * 256,)),
                                compute_s=0.0,
                            ),
                        )


def _stragglers(quick: bool) -> Iterator[Scenario]:
    """One rank of four computes for longer, and nothing is lost: all that is sent again is for nothing."""
    for kind in KINDS:
        yield from _with_and_without(
            {"kind": kind, "workers": 4, "size_kb": 0, "loss": 0.0, "seed": 1},
            Job(
                name="straggling",
                workers=4,
                window=KINDS[kind].in_flight,
                numbers="fixed",
                iterations=3 if quick else STRAGGLER_ITERATIONS,
                layers_bytes=float32_bytes((4096,) * 12),
                compute_s=STRAGGLER_S / 8,
                straggler=Straggler(1, STRAGGLER_S),
            ),
        )


def _with_and_without(labels: ResultRow, job: Job) -> Iterator[Scenario]:
    kind, loss, seed = KINDS[str(labels["kind"])], labels["loss"], labels["seed"]
    assert isinstance(loss, float)
    assert isinstance(seed, int)
    for probes in PROBES:
        settings = VirtualSettings(program=kind.program, slots=SLOTS, seed=seed, samples=0)
        if probes == "off":
            settings = replace(settings, rto=replace(settings.rto, probe_s=None))
        yield Scenario(
            labels={**labels, "probes": probes},
            jobs=(job,),
            settings=settings,
            link=Link("a", "b", loss=loss),
        )


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels."""
    (job,) = report.jobs
    elements = job.checked_elements / job.workers / job.iterations
    return {
        "goodput_bps": 32 * elements / mean_iteration_s(report),
        "resent_share": job.resent_packets / (job.sent_packets - job.resent_packets),
        "lost_packets": report.lost_packets,
        "aggregated_share": job.aggregated_share,
    }
