"""Replicas and ablations by the names that tables print: a policy, and what is set of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks import replicas

MURI: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "muri-s-2": ("muri-s", {"members": 2}),
    "muri-s-3": ("muri-s", {"members": 3}),
    "muri-s-worst": ("muri-s", {"worst_order": 1}),
    "muri-s-in-order": ("muri-s", {"in_order": 1}),
}
REPLICA: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "muri-replica:muri-s-keep": ("muri-replica:muri-s", {"unpack": 0}),
    "muri-replica:muri-l-keep": ("muri-replica:muri-l", {"unpack": 0}),
    "muri-replica:muri-l-2": ("muri-replica:muri-l", {"members": 2}),
    "muri-replica:muri-l-3": ("muri-replica:muri-l", {"members": 3}),
    "muri-replica:muri-l-2-keep": ("muri-replica:muri-l", {"members": 2, "unpack": 0}),
    "muri-replica:muri-l-3-keep": ("muri-replica:muri-l", {"members": 3, "unpack": 0}),
    "muri-replica:muri-l-worst": ("muri-replica:muri-l", {"worst_order": 1, "unpack": 0}),
    "muri-replica:muri-l-in-order": ("muri-replica:muri-l", {"in_order": 1, "unpack": 0}),
}
LUCID: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "lucid:lucid-2": ("lucid:lucid", {"profiler_nodes": 2}),
    "lucid:no-sharing": ("lucid:lucid", {"capacity": 0}),
    "lucid:no-profiler": ("lucid:lucid", {"profiler_nodes": 0}),
}
ALL = {**MURI, **REPLICA, **LUCID}


def resolved(name: str) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the policy that goes by `name` in tables, and its settings.

    >>> resolved("muri-replica:muri-s-keep"), resolved("fifo")
    (('benchmarks.replicas.muri:muri-s', (('unpack', 0),)), ('fifo', ()))
    """
    policy, settings = ALL.get(name, (name, {}))
    return replicas.full_name(policy), tuple(settings.items())


def with_ablations(names: Sequence[str]) -> list[str]:
    """Return the names, each replica followed by its ablations, and Muri's own after the last of Muri."""
    found: list[str] = []
    for name in names:
        found += [name, *(ablation for ablation, (policy, _) in REPLICA.items() if policy == name)]
        if name == "muri-l":
            found += MURI
    return found
