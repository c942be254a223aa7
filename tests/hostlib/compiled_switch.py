"""The compiled programs of ``p4src`` on memory ports, with one job as the controller admits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.switches.layout import Branch, Deployment, Downlink
from controller.switches.model import Admission, Member, Region, Uplink
from controller.switches.planning import Identity
from controller.vocabulary import Mode
from hostlib.wire import INA_UDP_PORT
from hostlib.wire.tree import Tree
from softswitch.engine.switch import Switch
from tests.contract.admitted import admit, serving

SLOTS = 1024


def admissions(
    tree: Tree, job: int, slots: int, *, window: int | None = None, generation: int = 0x100
) -> dict[int, Admission]:
    """Return a job's admission for each node of its tree: child b at port b, the uplink after them.

    With a window it is a shared job, whose fallback server is above the root. The low byte of the generation
    is the epoch: 0, as workers have it by default.
    """

    def branch(node: int) -> Branch:
        members, links = [], []
        for port, child in enumerate(tree.nodes[node]):
            if child >= 0:
                mac, ip = f"02:00:00:00:00:{child:02x}", f"10.0.0.{child + 1}"
                members.append(Member(child, port, mac, ip, INA_UDP_PORT))
            else:
                links.append(Downlink(port, branch(-child), tree.fan_in(-child)))
        return Branch(str(node), tuple(members), tuple(links))

    mode: Mode = "exclusive" if window is None else "shared"
    shared: dict[str, Any] = {}
    if window is not None:
        server = Uplink(tree.fan_in(0), "02:00:00:00:fb:01", "10.0.255.2")
        shared = {"window": window, "max_age_us": 1_000_000, "fallback": server}
    deployment = Deployment(branch(0), slots, mode=mode, **shared)
    _, present = admit(mode, {Identity(job, generation): deployment}, SLOTS)
    # of any size: the controller rounds the regions of exclusive jobs up
    return {int(name): replace(on, region=Region(0, slots)) for name, (on,) in present.items()}


def exclusive_switch(job: int, size: int, slots: int, *, generation: int = 0x100) -> Switch:
    """Return an exclusive switch with one job, rank r at port r."""
    admitted = admissions(Tree.star(size), job, slots, generation=generation)
    return serving("exclusive", admitted.values(), slots=SLOTS)
