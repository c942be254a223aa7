"""Ablations by the names that tables print: a policy, and what is set of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MURI: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "muri-s-2": ("muri-s", {"members": 2}),
    "muri-s-3": ("muri-s", {"members": 3}),
    "muri-s-worst": ("muri-s", {"worst_order": 1}),
    "muri-s-in-order": ("muri-s", {"in_order": 1}),
}
CODED: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "coded:muri-s-keep": ("coded:muri-s", {"unpack": 0}),
    "coded:muri-l-keep": ("coded:muri-l", {"unpack": 0}),
    "coded:muri-l-2": ("coded:muri-l", {"members": 2}),
    "coded:muri-l-3": ("coded:muri-l", {"members": 3}),
    "coded:muri-l-2-keep": ("coded:muri-l", {"members": 2, "unpack": 0}),
    "coded:muri-l-3-keep": ("coded:muri-l", {"members": 3, "unpack": 0}),
    "coded:muri-l-worst": ("coded:muri-l", {"worst_order": 1, "unpack": 0}),
    "coded:muri-l-in-order": ("coded:muri-l", {"in_order": 1, "unpack": 0}),
}
LUCID: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "lucid:lucid-2": ("lucid:lucid", {"profiler_nodes": 2}),
    "lucid:no-sharing": ("lucid:lucid", {"capacity": 0}),
    "lucid:no-profiler": ("lucid:lucid", {"profiler_nodes": 0}),
}
ALL = {**MURI, **CODED, **LUCID}


def resolved(name: str) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the policy that goes by `name` in tables, and its settings.

    >>> resolved("coded:muri-s-keep"), resolved("fifo")
    (('coded:muri-s', (('unpack', 0),)), ('fifo', ()))
    """
    policy, settings = ALL.get(name, (name, {}))
    return policy, tuple(settings.items())


def with_ablations(names: Sequence[str]) -> list[str]:
    """Return the names, each coded one followed by its ablations, and Muri's own after the last of Muri."""
    found: list[str] = []
    for name in names:
        found += [name, *(ablation for ablation, (policy, _) in CODED.items() if policy == name)]
        if name == "muri-l":
            found += MURI
    return found
