"""Placement policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from controller.policies.placement.baselines import (
    at_random,
    gpu_balance,
    least_fragmentation,
    locality_first,
    locality_on_fast_links,
    optimus,
)
from controller.policies.placement.exact import exact
from controller.policies.placement.netpack import netpack
from controller.policies.placement.policy import Policy

POLICIES: Mapping[str, Policy] = {
    "netpack": Policy(netpack, netpack=True),
    "random": Policy(at_random),
    "gpu-balance": Policy(gpu_balance),
    "least-fragmentation": Policy(least_fragmentation),
    "locality": Policy(locality_first),
    "locality-fast-links": Policy(locality_on_fast_links),
    "optimus": Policy(optimus),
    "exact": Policy(exact),
}
