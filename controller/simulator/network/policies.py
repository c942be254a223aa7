"""Allocation policies by name, for the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller import plugins
from controller.errors import BadSpec
from controller.memory import policies as of_memory
from controller.memory import policy as memory
from controller.placement import policies as of_placement
from controller.placement import policy as placement
from controller.routing import policies as of_routing
from controller.routing import policy as routing
from controller.simulator.network.settings import SCHEDULER, NetworkSettings
from controller.vocabulary.documents import hint


@dataclass(frozen=True, slots=True)
class Policies:
    """One of each kind.

    Without `placement` jobs are where their scheduler puts them; without `routing` on shortest paths.
    """

    placement: placement.Policy | None
    memory: memory.Policy
    routing: routing.Policy | None


def find(kind: str, name: str) -> Any:
    """Return the policy of that kind and name: one of ours, a package's, or a file's. Raises BadSpec."""
    known, group = _KNOWN[kind]
    if name in known:
        return known[name]
    if not plugins.is_external(name) and name not in plugins.names(group):
        there = hint(name, [*known, *([SCHEDULER] if kind == "placement" else [])])
        raise BadSpec(f"{kind} {name!r}: {there}; path.py:Name is one of a file")
    return plugins.load(name, group)


_KNOWN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "placement": (of_placement.POLICIES, placement.GROUP),
    "memory": (of_memory.POLICIES, memory.GROUP),
    "routing": (of_routing.POLICIES, routing.GROUP),
}


def policies_of(settings: NetworkSettings) -> Policies:
    """Return the policies that these settings name. Raises BadSpec."""
    placing: placement.Policy | None = None
    if settings.placement != SCHEDULER:
        chosen = find("placement", settings.placement)
        placing = chosen if isinstance(chosen, placement.Policy) else placement.Policy(chosen)
    route = None if settings.routing == "shortest-path" else find("routing", settings.routing)
    return Policies(placing, find("memory", settings.memory), route)
