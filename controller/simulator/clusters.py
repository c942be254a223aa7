"""Clusters from files: TOML, JSON or YAML (`controller.vocabulary.files`), or CSV.

A line of a CSV file describes one server or several equal servers. The column ``gpus`` is required. Optional
columns are ``name``; ``cpus`` and ``memory_gb`` (empty: no limit); ``vc``, the virtual cluster of the server;
``kind``, the kind of its GPUs; ``rack``, its location; and ``count``, the number of equal servers. ``vc``
must be given for all servers or for none, and so must ``rack``.
"""

from __future__ import annotations

import math
from pathlib import Path

from controller.policies.scheduling.errors import BadSpec
from controller.simulator.traces.rows import TraceRow, read_rows
from controller.vocabulary import Cluster, Server, cluster_of, documents
from controller.vocabulary.catalog import MOST_GPUS
from controller.vocabulary.documents import brief
from controller.vocabulary.errors import plural

COLUMNS = ("gpus",)
KNOWN = (*COLUMNS, "name", "cpus", "memory_gb", "count", "vc", "kind", "rack")


def uniform(nodes: int, gpus: int, *, cpus: float, memory_gb: float) -> Cluster:
    """Return a cluster of equal servers.

    Args:
        nodes: Number of servers.
        gpus: GPUs of each server.
        cpus: CPUs of each server.
        memory_gb: Memory of each server, in GB.

    Raises BadSpec for numbers out of range: more than `MOST_GPUS` GPUs, or CPUs or memory not above 0.
    """
    if nodes * gpus > MOST_GPUS:
        raise BadSpec(
            f"{plural(nodes, 'server')} of {plural(gpus, 'GPU')}; a cluster has at most {MOST_GPUS:,} GPUs"
        )
    for name, value in (("CPUs", cpus), ("GB of memory", memory_gb)):
        if not value > 0:
            raise BadSpec(f"servers of {value:g} {name}; want more than 0")
    return Cluster.uniform(nodes, gpus, cpus=cpus, memory_gb=memory_gb)


def read_cluster(path: Path) -> Cluster:
    """Return the servers in a file: CSV, or TOML, JSON or YAML (`controller.vocabulary.files`).

    Raises BadTrace or BadSpec with the line number.
    """
    if path.suffix in documents.FORMATS:
        document = documents.read(path)
        found = cluster_of(document)
        if found.gpus > MOST_GPUS:
            raise BadSpec(f"{path}: {found.gpus:,} GPUs; a cluster has at most {MOST_GPUS:,} GPUs in all")
        return found
    rows = read_rows(path, COLUMNS, what="nodes")
    lines: dict[str, int] = {}
    nodes: list[Server] = []
    left = MOST_GPUS
    for row in rows:
        for node in _nodes(row, len(nodes), left):
            left -= node.gpus
            if node.name in lines:
                raise row.fail("name", f"node {node.name!r} was on line {lines[node.name]} already")
            lines[node.name] = row.line
            nodes.append(node)
    return Cluster(tuple(nodes))


def _nodes(row: TraceRow, number: int, most_gpus: int) -> list[Server]:
    for column in row.cells:
        if column not in KNOWN:
            raise row.fail(column, f"unknown; known are {', '.join(KNOWN)}")
    count = row.whole("count", least=1) if row.has("count") else 1
    gpus = row.whole("gpus", least=1)
    cpus = row.number("cpus", positive=True) if row.has("cpus") else math.inf
    memory_gb = row.number("memory_gb", positive=True) if row.has("memory_gb") else math.inf
    name = row.text("name") if row.has("name") else ""
    if count * gpus > most_gpus:
        wanted = f"{plural(count, 'server')} of {plural(gpus, 'GPU')}"
        raise row.fail("gpus", f"{wanted}; a cluster has at most {MOST_GPUS:,} GPUs in all")
    vc, kind, rack = (row.text(column) if row.has(column) else "" for column in ("vc", "kind", "rack"))
    for column, text in (("name", name), ("vc", vc), ("kind", kind), ("rack", rack)):
        if not text.isprintable():
            raise row.fail(column, f"{brief(repr(text))} has characters that cannot be printed")
    try:
        if name and count == 1:
            return [Server(gpus=gpus, cpus=cpus, memory_gb=memory_gb, name=name, vc=vc, kind=kind, rack=rack)]
        names = [f"{name or 'n'}{number + each}" for each in range(count)]
        return [
            Server(gpus=gpus, cpus=cpus, memory_gb=memory_gb, name=each, vc=vc, kind=kind, rack=rack)
            for each in names
        ]
    except BadSpec as error:
        raise row.fail("", str(error)) from error
