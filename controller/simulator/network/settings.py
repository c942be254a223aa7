"""How a cluster's network is simulated, and by which policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controller.errors import BadSpec
from controller.policies.by_kind import AllocationSettings

Model = Literal["phases", "average"]
MODELS: tuple[Model, ...] = ("phases", "average")

WINDOW = 128
"""Packets in flight: the first so many of a tensor only announce the exponents of those that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings(AllocationSettings):
    """Settings of the network's model, beside those of the allocation policies.

    Attributes:
        model: Jobs' phases one by one, or on average over time.
        window: Packets in flight of a worker: each tensor is sent with as many packets more, at most as many
            as it has, which announce exponents; 0: none are sent. Its last sum is back a round trip later.
        resent: Fraction of a full link's capacity that is retransmissions, for each job beside the first:
            queues make round trips longer, and late packets are taken for lost.
        tensors: Most tensors of a job; further layers are merged.
        iterations: Iterations that are simulated in phases; the rest is taken to be like them.
    """

    model: Model = "average"
    window: int = WINDOW
    resent: float = 0.0
    tensors: int = 8
    iterations: int = 32

    def __post_init__(self) -> None:
        AllocationSettings.__post_init__(self)  # super() knows no class that slots have made anew
        if not 0 <= self.resent < 1:
            raise BadSpec(f"a part of {self.resent:g} sent again; want a fraction, 0 to 1")
        if self.model not in MODELS:
            raise BadSpec(f"model {self.model!r}; want one of {', '.join(MODELS)}")
