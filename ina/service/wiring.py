"""The wired cluster: its parts, its working parts, and the parts that have left it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from controller.vocabulary import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The switches' knowledge of the cluster apart from jobs. Compared by identity.

    Attributes:
        whole: Switches, servers and links.
        up: The working part.
        left: Switches that have left the cluster, and must still remove its jobs.
        macs: MAC addresses of servers that have left, or have others: switches must have no way to them.
    """

    whole: Topology
    up: Topology
    left: Mapping[str, str] = field(default_factory=dict)
    macs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Topology) -> Self:
        """Return the wiring of a cluster that works as a whole, without former switches."""
        return cls(cluster, cluster)

    def changed(self, whole: Topology, up: Topology) -> Self:
        """Return the wiring of another cluster after this one, with its working part."""
        left = {**self.left, **{each.name: each.p4runtime for each in self.whole.switches}}
        macs = self.macs | {self.whole.mac(name) for name in self.whole.server}
        return replace(
            self,
            whole=whole,
            up=up,
            left={name: address for name, address in left.items() if name not in whole.switch},
            macs=macs - {whole.mac(name) for name in whole.server},
        )
