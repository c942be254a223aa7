"""Routing policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from controller.routing.baselines import ecmp, ecmp_everywhere, shortest_path, tor_only
from controller.routing.exact import exact
from controller.routing.grid import grid
from controller.routing.policy import Policy

POLICIES: Mapping[str, Policy] = {
    "grid": grid,
    "tor-only": tor_only,
    "ecmp": ecmp,
    "ecmp-everywhere": ecmp_everywhere,
    "shortest-path": shortest_path,
    "exact": exact,
}
