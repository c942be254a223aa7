"""A cluster's switches, servers and links: all of them, the working part, and switches that have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from controller.vocabulary import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The cluster at one time, without its jobs. The switches' forwarding entries follow from it.

    Two objects are equal only if they are the same object.

    Attributes:
        whole: The whole cluster: switches, servers and links.
        up: The part of the cluster that works.
        left: By name of each switch that has left the cluster, the switch's address. The switch may still
            have jobs that must be removed.
        macs: Former MAC addresses of servers. Switches must not have forwarding entries for these.
    """

    whole: Topology
    up: Topology
    left: Mapping[str, str] = field(default_factory=dict)
    macs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Topology) -> Self:
        """Return the wiring of a cluster in which all parts work, and which no switch has left."""
        return cls(cluster, cluster)

    def changed(self, whole: Topology, up: Topology) -> Self:
        """Return the wiring after this cluster is replaced by `whole`.

        `up` is the working part of `whole`.
        """
        left = {**self.left, **{each.name: each.p4runtime for each in self.whole.switches}}
        macs = self.macs | {self.whole.mac(name) for name in self.whole.server}
        return replace(
            self,
            whole=whole,
            up=up,
            left={name: address for name, address in left.items() if name not in whole.switch},
            macs=macs - {whole.mac(name) for name in whole.server},
        )
