"""The hosts of a topology that carry the workers of each job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, zip_longest

from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import Topology


def place(topology: Topology, sizes: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the hosts of jobs with these numbers of workers, by rank; every host carries one worker.

    A job is spread over the racks evenly, and ranks of one rack are consecutive.

    >>> from controller.vocabulary.catalog import tree
    >>> place(tree([2, 3]), [4, 2])
    [('h1', 'h2', 'h4', 'h5'), ('h3', 'h6')]

    Raises:
        BadSpec: there are fewer hosts for workers.
    """
    taken: set[str] = set()
    places = []
    for workers in sizes:
        hosts = spread(topology, workers, taken)
        taken.update(hosts)
        places.append(hosts)
    return places


def spread(topology: Topology, workers: int, taken: Collection[str]) -> tuple[str, ...]:
    """Return the hosts of one job, as `place` does, when some are taken. Raises BadSpec."""
    free = [host for host in topology.servers_for("worker") if host not in taken]
    if workers > len(free):
        of = f" of {len(topology.servers_for('worker'))}" if taken else ""
        raise BadSpec(f"{workers} workers: {len(free)}{of} hosts for workers are free")
    racks: dict[str, list[str]] = {}
    for host in free:
        racks.setdefault(topology.rack_of[host], []).append(host)
    in_turns = [host for host in chain(*zip_longest(*racks.values())) if host is not None]
    chosen = set(in_turns[:workers])
    return tuple(host for rack in racks.values() for host in rack if host in chosen)
