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
        number: Unique number; jobs that are started again get a run with a new number.
        jobs: Names of the jobs that have not ended.
        gpus: Numbers of the run's GPUs; each of its jobs uses all of these GPUs.
        offsets: For each job, the number of the stage at which it starts its rounds; 0 if the jobs take no
            turns.
        reason: Why the run was started.
        places: The place of each job, by name, in a `Desired` state; otherwise empty.
    """

    number: int
    jobs: tuple[str, ...]
    gpus: tuple[int, ...]
    offsets: tuple[int, ...]
    reason: str = field(default="", compare=False)
    places: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs.

    Attributes:
        servers: The server of each worker.
        tree: The aggregation tree of its gradients; None: the job uses no network, or the cluster has none.
        fallback: The server that sums packets without a slot; None: none.
        regions: By switch, the job's region of slots there; switches without one are left out.
        standing: Whether the job's slots are granted or shared; None: it has no slots, or uses no network.
        in_flight: Maximum number of the job's packets in flight; 0: only the job's window limits them.
    """

    servers: tuple[str, ...]
    tree: Tree | None = None
    fallback: str | None = None
    regions: Mapping[str, Region] = field(default_factory=dict)
    standing: SlotStatus | None = None
    in_flight: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """The servers, each once, in the order of their lowest workers, as `Job.hosts`."""
        return tuple(dict.fromkeys(self.servers))


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state from `at_s` on.

    Attributes:
        at_s: Time from which this state is desired, in seconds.
        runs: All runs, with the places of their jobs.
        waiting: The jobs that wait, in order of arrival.
        next_s: Time at which the core needs a `Tick` if no other event comes before; infinite: it needs none.
    """

    at_s: float = 0.0
    runs: tuple[Run, ...] = ()
    waiting: tuple[str, ...] = ()
    next_s: float = math.inf

    @property
    def places(self) -> dict[str, Place]:
        """The place of each running job, by name."""
        return {name: place for run in self.runs for name, place in run.places.items()}
