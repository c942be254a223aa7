"""Switches with memory ports, cables between them, and what comes out at all other ports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller import Controller, TreeSwitch
from softswitch.engine.switch import Switch
from tests.controller.frames import Packet, parse

End = tuple[str, int]
"""A port of a switch."""


@dataclass
class Fabric:
    switches: Mapping[str, Switch]
    controllers: Mapping[str, Controller]
    cables: dict[End, End] = field(default_factory=dict)

    def cable(self, root: TreeSwitch) -> None:
        """Lay the cables of a tree."""
        self.cables.clear()
        for switch in root.walk():
            for link in switch.links:
                ends = (switch.name, link.port), (link.child.name, link.child_port)
                self.cables |= {ends[0]: ends[1], ends[1]: ends[0]}

    def send(self, switch: str, port: int, frame: bytes) -> dict[End, list[Packet]]:
        """Inject a frame, carry frames over the cables until none is left, return what came out."""
        arrived: dict[End, list[Packet]] = {}
        self.switches[switch].inject(port, [frame])
        moving = True
        while moving:
            moving = False
            for name, from_switch in self.switches.items():
                for number in from_switch.ports:
                    for out in from_switch.drain(number):
                        other = self.cables.get((name, number))
                        if other is None:
                            arrived.setdefault((name, number), []).append(parse(out))
                        else:
                            self.switches[other[0]].inject(other[1], [out])
                            moving = True
        return arrived
