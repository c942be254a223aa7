"""The public traces in Muri's format in a folder, with the number of servers of each.

Replicas and ablations by the names that tables print: a policy, and its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import replicas
from controller.simulator.runs import SimulationFailed

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
    """Return the policy with this name in tables, and its settings.

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


SAMPLE = Path(__file__).with_name("small_muri.csv")

TRACES = tuple(f"trace{number}{suffix}" for number in (3, 1, 2, 4) for suffix in ("", "_pr"))
LONG = ("trace1", "trace2", "trace4")
"""Prefixes of the names of traces of more than a thousand jobs."""

SLOW = ("muri-l",)
"""Policies that take minutes on them: without durations they decide at every event."""

JOB_TYPES = ("job_type_1", "job_type_2", "job_type_3")


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace file and its number of servers, of eight GPUs each."""

    name: str
    path: Path
    nodes: int = 8


def takes_minutes(trace: Trace, policy: str) -> bool:
    """Return True if this policy takes minutes on this trace."""
    return policy in SLOW and trace.name.startswith(LONG)


def traces(folder: Path | None) -> list[Trace]:
    """Return the traces below `folder`, first the one for all policies; None: the shipped sample.

    Raises SimulationFailed if there is none.
    """
    if folder is None:
        return [Trace("sample", SAMPLE, 2)]
    files = [(name, folder / "muri" / f"{name}.csv") for name in (*TRACES, *JOB_TYPES)]
    files.append(("c1000", folder / "common" / "c1000" / "muri.csv"))
    found = [Trace(name, path) for name, path in files if path.exists()]
    if not found:
        raise SimulationFailed(f"--traces {folder}: no muri/trace3.csv or the like there", exit_code=2)
    return found
