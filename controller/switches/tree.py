"""A job on several switches: each sums its children's packets and sends one packet up. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.switches.layout import BESIDE_FAN_IN
from controller.switches.model import Admission, Member, Uplink
from controller.vocabulary import Region


@dataclass(frozen=True, slots=True)
class TreeAdmission:
    """A job as the switches of its tree serve it, by the switches' names: at least one."""

    switches: Mapping[str, Admission]
    beside: Member | None = None
    """The worker beside the fallback server (`Deployment.beside`), of which no switch knows; None: there is
    none, or the job was read from the switches."""

    @property
    def job(self) -> int:
        """The job's id, the same everywhere."""
        return self._any.job

    @property
    def generation(self) -> int:
        """The generation of its slots, the same everywhere."""
        return self._any.generation

    @property
    def epoch(self) -> int:
        """Part of the generation that packets carry."""
        return self._any.epoch

    @property
    def window(self) -> int:
        """Most packets in flight of a worker."""
        return self._any.window

    @property
    def tree(self) -> dict[int, list[int]]:
        """The logical tree: by node id the children in the order of their bits.

        A child is a worker's rank, or -n for node n; transit switches are not shown. Children that are
        on none of these switches are left out; if the tree is `whole`, there are none.
        """
        children: dict[int, dict[int, int]] = {}
        for admission in self.switches.values():
            node = children.setdefault(admission.node, {})
            node.update({m.bitmap: m.rank for m in admission.members if m.rank is not None})
            uplink = admission.uplink
            if uplink is not None and not admission.root and not admission.transit:
                children.setdefault(uplink.node, {})[uplink.bitmap] = -admission.node
        if self.beside is not None and self.beside.rank is not None:
            children.setdefault(0, {})[self.beside.bitmap] = self.beside.rank
        return {node: [of[bit] for bit in sorted(of)] for node, of in sorted(children.items())}

    @property
    def server(self) -> Uplink | None:
        """Return the way to the fallback server from the uppermost switch; None: no switch here has one."""
        for admission in self.switches.values():
            above = admission.uplink
            at_top = admission.root or (self.beside is not None and above is not None and above.node == 0)
            if at_top and not admission.transit:
                return above
        return None

    @property
    def whole(self) -> bool:
        """True if every child of every node is on one of these switches."""
        fan_ins = {a.node: a.fan_in for a in self.switches.values() if not a.transit}
        if self.beside is not None:
            fan_ins[0] = BESIDE_FAN_IN
        return 0 in fan_ins and {node: len(of) for node, of in self.tree.items()} == fan_ins

    def at(self, regions: Mapping[str, Region]) -> TreeAdmission:
        """Return the job as it stands once it has these slots, by switch, where it sums its packets."""
        there = {
            name: replace(held, region=regions[name], change=None)
            if name in regions and not held.transit
            else held
            for name, held in self.switches.items()
        }
        return replace(self, switches=there)

    @property
    def _any(self) -> Admission:
        return next(iter(self.switches.values()))
