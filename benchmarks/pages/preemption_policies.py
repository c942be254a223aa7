"""Policies for taking occupied slots, as the experiment `preemption` compares them.

Plain functions of the same arguments: what a rank measures of its job (`hostlib.priority.Urgency`), the
tensor's layer and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from bmv2_topos.testbeds.virtual.settings import Prioritize
from controller.switches.model import AGEING
from hostlib.priority import HIGHEST, LOWEST, Urgency, priority_of

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
    return LOWEST + HIGHEST - by_factors(urgency, layer, now)


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
"""Policies that every mix is run under."""

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
"""Policies that the favourable mix is run under as well."""
