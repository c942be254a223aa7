"""The cluster as its switches are wired: all parts, those that work, and those that have left it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from controller.vocabulary import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """All that the switches have to know of the cluster beside jobs. Compared by identity.

    Attributes:
        whole: Switches, servers and links.
        up: The part that works.
        left: Switches that have left the cluster: they are still to give up what they hold of jobs.
        macs: MAC addresses of servers that have left, or have others: no switch is to know a way there.
    """

    whole: Topology
    up: Topology
    left: Mapping[str, str] = field(default_factory=dict)
    macs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Topology) -> Self:
        """Return a cluster of which all works, and nothing has left."""
        return cls(cluster, cluster)

    def changed(self, whole: Topology, up: Topology) -> Self:
        """Return another cluster after this one, and the part of it that works."""
        left = {**self.left, **{each.name: each.p4runtime for each in self.whole.switches}}
        macs = self.macs | {self.whole.mac(name) for name in self.whole.server}
        return replace(
            self,
            whole=whole,
            up=up,
            left={name: address for name, address in left.items() if name not in whole.switch},
            macs=macs - {whole.mac(name) for name in whole.server},
        )
