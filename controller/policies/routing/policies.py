"""Routing policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from controller.policies.routing.baselines import ecmp, ecmp_everywhere, shortest_path, tor_only
from controller.policies.routing.exact import exact
from controller.policies.routing.grid import grid
from controller.policies.routing.policy import Policy

POLICIES: Mapping[str, Policy] = {
    "grid": grid,
    "tor-only": tor_only,
    "ecmp": ecmp,
    "ecmp-everywhere": ecmp_everywhere,
    "shortest-path": shortest_path,
    "exact": exact,
}
