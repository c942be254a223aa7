"""How a cluster's network is simulated, and by which policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.errors import BadSpec
from controller.memory.demand import Reading

Model = Literal["phases", "average"]
MODELS: tuple[Model, ...] = ("phases", "average")

SCHEDULER = "scheduler"
"""Placement on the GPUs that the scheduler chose; other names are placement policies."""

FRAME_BYTES = 70
"""Ethernet, IPv4, UDP and INA headers of a packet (`hostlib.wire`)."""

WINDOW = 128
"""Packets in flight: the first so many of a tensor only announce the exponents of those that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Settings of the network.

    Attributes:
        placement: Name of the placement policy, or `SCHEDULER`.
        memory: Name of the memory policy.
        routing: Name of the routing policy.
        model: Jobs' phases one by one, or on average over time.
        period_s: How often memory is divided anew while jobs run; 0: when jobs start or end only.
        reading: How deadlines' needs are computed.
        margin: Part of the time left that deadlines' needs leave unused.
        seed: Of what is random.
        frame_bytes: Bytes of a packet beside its values.
        window: Packets in flight of a worker: each tensor is sent with as many more, if it has as many, which
            announce exponents; 0: none do. A round trip passes until its last sum is back.
        resent: Part of what a link carries that is sent again for each job beside the first that fills it:
            queues let round trips grow, and what is late is taken for lost.
        tensors: Tensors of a job at most; more layers are merged.
        iterations: Iterations that are looked at in phases before the rest is taken to be like them.
    """

    placement: str = "netpack"
    memory: str = "shared"
    routing: str = "shortest-path"
    model: Model = "average"
    period_s: float = 60.0
    reading: Reading = "measured"
    margin: float = 0.05
    seed: int = 0
    frame_bytes: int = FRAME_BYTES
    window: int = WINDOW
    resent: float = 0.0
    tensors: int = 8
    iterations: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise BadSpec(f"a margin of {self.margin:g}; want a fraction, 0 to 1")
        if not 0 <= self.resent < 1:
            raise BadSpec(f"a part of {self.resent:g} sent again; want a fraction, 0 to 1")
        if not 0 <= self.period_s < 1e12:
            raise BadSpec(f"a period of {self.period_s:g} s; want 0 or more")
        if self.model not in MODELS:
            raise BadSpec(f"model {self.model!r}; want one of {', '.join(MODELS)}")

    @property
    def names(self) -> Mapping[str, str]:
        """The policies."""
        return {"placement": self.placement, "memory": self.memory, "routing": self.routing}
