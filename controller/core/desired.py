"""The desired state: which jobs run where, in which groups, on which trees and slots, and which jobs wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.policies.memory.regions import SlotStatus
from controller.vocabulary import Region, Tree


@dataclass(frozen=True, slots=True)
class Run:
    """Jobs that start and stop together, on the same GPUs: a fused group, or one job.

    Attributes:
        number: Unique; a run that is started again gets a new number.
        jobs: Names of the jobs that have not ended.
        gpus: Numbers of the GPUs; each job uses all of them.
        offsets: For each job, the stage at which it starts a round, if the jobs take turns.
        reason: Why it runs.
    """

    number: int
    jobs: tuple[str, ...]
    gpus: tuple[int, ...]
    offsets: tuple[int, ...]
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs.

    Attributes:
        servers: The server of each worker.
        tree: The switches that sum its gradients; None: the job uses no network, or the cluster has none.
        fallback: The server that sums packets without a slot; None: none.
        regions: By switch, the job's region of slots there; switches without one are left out.
        standing: Whether these slots are its own or shared; None: it has no slots yet, or uses no network.
        in_flight: Maximum number of packets in flight, set by the memory policy; 0: the job's window.
    """

    servers: tuple[str, ...]
    tree: Tree | None = None
    fallback: str | None = None
    regions: Mapping[str, Region] = field(default_factory=dict)
    standing: SlotStatus | None = None
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state from `at_s` on.

    Attributes:
        at_s: Time from which it holds.
        runs: All runs.
        places: The place of each running job, by name.
        waiting: The jobs that wait, in order of arrival.
        next_s: Time at which the core needs a `Tick` if no other event comes before; infinite: it needs none.
    """

    at_s: float = 0.0
    runs: tuple[Run, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    next_s: float = math.inf
