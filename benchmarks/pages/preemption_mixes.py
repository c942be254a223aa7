"""Mixes of jobs that compete for the slots of one switch, for the experiment `preemption` and others.

Every job has eight workers on hosts of their own and a fallback server of its own. Windows are fixed, so that
a mix under two policies differs only in the division of slots. A link of 10 Gb/s carries 64 packets in a
round trip of 17 µs; straggling jobs, which have time to spare, have twice as many in flight.

Policies for taking occupied slots, as the experiment `preemption` compares them.

Plain functions of the same arguments: a rank's measurements of its job (`hostlib.core.priority.Urgency`), the
tensor's layer and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bmv2_topos.harness import Value
from bmv2_topos.testbeds.virtual import Report
from bmv2_topos.testbeds.virtual.settings import Prioritize
from controller.switches.model import AGEING
from controller.vocabulary import Job, Straggler, float32_bytes
from hostlib.core import priority
from hostlib.core.priority import Urgency, priority_of

Layer = tuple[int, int]


def by_factors(
    urgency: Urgency,
    layer: Layer,
    now: int,
    *,
    position: bool = True,
    share: bool = True,
    remaining: bool = True,
) -> int:
    """Return the priority of the library's policy; a factor that is off counts as unknown."""
    return priority_of(
        layer=layer if position else None,
        communication_share=urgency.communication_share(now) if share else None,
        remaining_s=urgency.remaining_s() if remaining else None,
    )


def equal(urgency: Urgency, layer: Layer, now: int) -> int:
    """Return the same priority for all: then only ageing lets a packet take a slot."""
    return priority_of()


def inverted(urgency: Urgency, layer: Layer, now: int) -> int:
    """Return the policy's priority inverted: the least urgent come first."""
    return priority.LOWEST + priority.HIGHEST - by_factors(urgency, layer, now)


@dataclass(frozen=True, slots=True)
class Policy:
    """The priorities of one run; `preempts` False: no packet may take an occupied slot."""

    prioritize: Prioritize = by_factors
    ageing: int = AGEING
    preempts: bool = True


FCFS, PREEMPT, EQUAL, INVERTED = "fcfs", "preempt", "equal", "inverted"

POLICIES: Final[Mapping[str, Policy]] = {
    FCFS: Policy(preempts=False),
    PREEMPT: Policy(),
    EQUAL: Policy(equal),
    INVERTED: Policy(inverted),
}
"""Policies for every mix."""

ABLATION: Final[Mapping[str, Policy]] = {
    "position alone": Policy(partial(by_factors, share=False, remaining=False)),
    "share alone": Policy(partial(by_factors, position=False, remaining=False)),
    "remaining time alone": Policy(partial(by_factors, position=False, share=False)),
    "without position": Policy(partial(by_factors, position=False)),
    "without share": Policy(partial(by_factors, share=False)),
    "without remaining time": Policy(partial(by_factors, remaining=False)),
    "ageing off": Policy(ageing=0),
    "ageing off, all equal": Policy(equal, ageing=0),
    "ageing 16 at a time": Policy(ageing=16),
    "ageing 128 at a time": Policy(ageing=128),
}
"""Further policies for the favourable mix."""


WORKERS: Final = 8
IN_FLIGHT: Final = 64
"""Packets in flight of a worker."""

RESNET: Final = (2048, 4096, 4096, 8192, 8192, 8192, 16384, 16384)
"""Many layers, the size growing towards the output: the shape of a residual network, far smaller."""
VGG: Final = (2048, 4096, 8192, 16384, 98304)
"""Most values in one fully connected layer near the output."""
TRANSFORMER: Final = (32768, 12288, 12288, 12288, 12288)
"""An embedding at the input and equal blocks."""

_JOB: Final = Job(
    name="", workers=WORKERS, window=IN_FLIGHT, congestion="fixed", numbers="fixed", jitter=0.05
)


def communicating(name: str, iterations: int = 16) -> Job:
    """Return a job that spends most of its time in collectives."""
    return replace(
        _JOB, name=name, iterations=iterations, layers_bytes=float32_bytes((32768, 32768)), compute_s=100e-6
    )


def straggling(name: str, iterations: int = 2, arrival_s: float = 0.0) -> Job:
    """Return a job whose last rank computes three times as long: the others' packets wait in slots for it."""
    return replace(
        _JOB,
        name=name,
        iterations=iterations,
        window=2 * IN_FLIGHT,
        layers_bytes=float32_bytes((65536, 65536)),
        compute_s=2e-3,
        jitter=0.1,
        straggler=Straggler(WORKERS - 1, 6e-3),
        arrival_s=arrival_s,
    )


def computing(name: str, iterations: int = 4) -> Job:
    """Return a job that spends most of its time computing; no rank is the slowest for long."""
    return replace(
        _JOB,
        name=name,
        iterations=iterations,
        layers_bytes=float32_bytes((32768, 32768)),
        compute_s=3e-3,
        jitter=0.1,
    )


def training(name: str, tensors: tuple[int, ...], iterations: int) -> Job:
    """Return a job with the layers of some model, which computes about as long as it communicates."""
    return replace(
        _JOB, name=name, iterations=iterations, layers_bytes=float32_bytes(tensors), compute_s=300e-6
    )


MIXES: Final[Mapping[str, tuple[Job, ...]]] = {
    "straggling + 2 communicating": (
        straggling("straggling"),
        communicating("communicating 1"),
        communicating("communicating 2"),
    ),
    "2 straggling + 2 communicating": (
        straggling("straggling 1"),
        straggling("straggling 2", arrival_s=1.5e-3),
        communicating("communicating 1"),
        communicating("communicating 2"),
    ),
    "computing + 2 communicating": (
        computing("computing"),
        communicating("communicating 1"),
        communicating("communicating 2"),
    ),
    "straggler among equals": (
        replace(communicating("straggler", 12), straggler=Straggler(WORKERS - 1, 600e-6)),
        communicating("equal 1", 12),
        communicating("equal 2", 12),
    ),
    "4 equal, communicating": tuple(communicating(f"equal {number}", 10) for number in range(1, 5)),
    "3 equal, computing": tuple(computing(f"equal {number}") for number in range(1, 4)),
    "3 straggling": tuple(straggling(f"straggling {n}", arrival_s=1.5e-3 * (n - 1)) for n in range(1, 4)),
    "short, middle, long": (
        communicating("short", 4),
        communicating("middle", 8),
        communicating("long", 16),
    ),
    "4 models": (
        training("resnet", RESNET, 8),
        training("vgg", VGG, 5),
        training("transformer 1", TRANSFORMER, 8),
        training("transformer 2", TRANSFORMER, 4),
    ),
}
"""By name. In all of them priorities are the policy's own, measured while the jobs run."""

FAVOURABLE: Final = "straggling + 2 communicating"


def completion(report: Report, **more: Value) -> dict[str, Value]:
    """Return the mean completion time, more columns, and each job's time, numbered in the mix's order."""
    times = {f"jct_{place}_s": job.jct_s for place, job in enumerate(report.jobs, start=1)}
    return {"mean_jct_s": report.mean_jct_s, **more, **times}


def by_job(mix: str, ratio: Callable[[str], float]) -> tuple[str, float]:
    """Return the job of a mix with the greatest `ratio`, given the column of its times; and the ratio."""
    found = {job.name: ratio(f"jct_{place}_s") for place, job in enumerate(MIXES[mix], start=1)}
    slowest = max(found, key=lambda job: found[job])
    return slowest, found[slowest]


LOWEST: Final = (
    replace(communicating("lowest", 2), priority=1),
    *(replace(communicating(f"highest {number}", 16), priority=255) for number in range(1, 4)),
)
"""The first job has the lowest priority there is; the others have the highest, and go on after its end."""

SLOTS: Final = (64, 512)
FINER_SLOTS: Final = (32, 64, 128, 256, 512)
SEEDS: Final = (1, 2, 3, 4, 5)
MORE_SEEDS: Final = tuple(range(1, 11))
"""Seeds of the favourable mix."""
ABLATION_SLOTS: Final = (64, 128)
WITHOUT: Final = "without"
"""Runs in which all may preempt and the first job of the mix has no slots."""
STARVATION: Final = "lowest + 3 highest"
STARVATION_SLOTS: Final = (64, 128, 256)
