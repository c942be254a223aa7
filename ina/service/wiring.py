"""The cluster's switches, servers and links: all of them, the working ones, and former ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from controller.vocabulary import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The cluster without its jobs, from which switches' forwarding entries follow. Compared by identity.

    Attributes:
        whole: The whole cluster: switches, servers and links.
        up: The working part of the cluster.
        left: Addresses of switches that have left the cluster, by name; jobs must still be removed from them.
        macs: Former MAC addresses of servers, for which switches must have no forwarding entries.
    """

    whole: Topology
    up: Topology
    left: Mapping[str, str] = field(default_factory=dict)
    macs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Topology) -> Self:
        """Return the wiring of a cluster of which all parts work, without former switches."""
        return cls(cluster, cluster)

    def changed(self, whole: Topology, up: Topology) -> Self:
        """Return the wiring after the cluster was replaced by `whole`, of which `up` works."""
        left = {**self.left, **{each.name: each.p4runtime for each in self.whole.switches}}
        macs = self.macs | {self.whole.mac(name) for name in self.whole.server}
        return replace(
            self,
            whole=whole,
            up=up,
            left={name: address for name, address in left.items() if name not in whole.switch},
            macs=macs - {whole.mac(name) for name in whole.server},
        )
