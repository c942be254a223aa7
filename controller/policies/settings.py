"""The choice of allocation policies (placement, memory and routing, by name), with settings and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.errors import BadSpec
from controller.policies.memory.regions import Reading
from controller.policies.scheduling.policy import SCHEDULER as SCHEDULER

if TYPE_CHECKING:
    from controller.policies.memory import policy as memory
    from controller.policies.placement import policy as placement
    from controller.policies.routing import policy as routing


FRAME_BYTES = 70
"""Bytes of the Ethernet, IPv4, UDP and INA headers of a packet (`hostlib.wire`)."""


FEW_SERVERS = 32
"""Maximum number of servers for which `joint` is the default. With more servers, `joint` takes more than a
second for a decision."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy of each kind, by name."""

    scheduler: str
    placement: str
    memory: str
    routing: str

    def __str__(self) -> str:
        return f"{self.scheduler} + {self.placement} + {self.memory} + {self.routing}"


SIMPLEST = PolicyChoice("fifo-backfill", "locality", "shared", "shortest-path")
"""The baseline for comparisons."""
JOINT = PolicyChoice("joint", SCHEDULER, "shared", "shortest-path")
SIMPLE = PolicyChoice("edf", "netpack", "shared", "ecmp-everywhere")
"""`JOINT` is the best choice for all kinds of jobs. `SIMPLE` is the best choice among separate policies for
scheduling, placement, memory and routing (docs/results/which-policy.md)."""


def default_for(servers: int, scheduler: str | None = None, placement: str | None = None) -> PolicyChoice:
    """Return the default policies for a cluster of `servers` servers.

    `scheduler` and `placement` are the policies that the user has chosen; None: not chosen.

    >>> str(default_for(16)), default_for(64).scheduler, default_for(16, placement="locality").scheduler
    ('joint + scheduler + shared + shortest-path', 'edf', 'edf')
    """
    together = servers <= FEW_SERVERS and placement in (None, SCHEDULER)
    return JOINT if scheduler == JOINT.scheduler or (scheduler is None and together) else SIMPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationSettings:
    """Allocation policies and their settings.

    Attributes:
        placement: Name of the placement policy, or `SCHEDULER`.
        memory: Name of the memory policy.
        routing: Name of the routing policy.
        period_s: How often memory is divided again while jobs run; 0: only when jobs start or end.
        reading: How the slots that deadlines need are computed.
        margin: Fraction of the time left before a deadline to keep in reserve, from 0 to below 1. Slots are
            computed as if the deadline were earlier by this reserve.
        draws: Number of random trees to compare, for routing policies that draw trees.
        seed: Seed of random choices.
        frame_bytes: Bytes of a packet beside its values.
    """

    placement: str = "netpack"
    memory: str = "shared"
    routing: str = "shortest-path"
    period_s: float = 60.0
    reading: Reading = "measured"
    margin: float = 0.05
    draws: int = 8
    seed: int = 0
    frame_bytes: int = FRAME_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise BadSpec(f"a margin of {self.margin:g}; want a fraction, 0 to 1")
        if not 0 <= self.period_s < 1e12:
            raise BadSpec(f"a period of {self.period_s:g} s; want 0 or more")

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the policies, by kind."""
        return {"placement": self.placement, "memory": self.memory, "routing": self.routing}


@dataclass(frozen=True, slots=True)
class AllocationPolicies:
    """One policy of each kind.

    If `placement` is None, the scheduling policy chooses jobs' servers; if `routing` is None, trees are
    shortest paths.
    """

    placement: placement.PlacementPolicy | None
    memory: memory.Policy
    routing: routing.Policy | None
