"""Switches with memory ports, cables between them, and what comes out at all other ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from controller import Branch, SwitchSession
from tests.p4.bed import Packet, parse

if TYPE_CHECKING:
    from tests.controller.conftest import Running

End = tuple[str, int]
"""A port of a switch."""


class Fabric:
    def __init__(self, running: Mapping[str, Running]) -> None:
        self.running = running
        self.switches = {name: each.switch for name, each in running.items()}
        self.controllers = self.connect()
        self.cables: dict[End, End] = {}

    def connect(self) -> dict[str, SwitchSession]:
        """Return more controllers of all switches, to be closed by the caller."""
        return {name: SwitchSession(each.target()) for name, each in self.running.items()}

    def cable(self, root: Branch) -> None:
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
                            arrived.setdefault((name, number), []).append(parse(number, out).packet)
                        else:
                            self.switches[other[0]].inject(other[1], [out])
                            moving = True
        return arrived
