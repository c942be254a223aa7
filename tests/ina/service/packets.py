"""One sum of a job in packets: its members' gradients through the switches, to wherever these send them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from itertools import count

import numpy as np

from controller.switches.layout import TreeAdmission
from controller.vocabulary import Topology
from hostlib import wire
from softswitch.engine.switch import Switch
from tests.ina.service.reached import LANES

MOST_HOPS = 1000
_NOW_US = count(1)
"""Of all switches, which last longer than a world."""
_FRAME = wire.packet_dtype(LANES, framed=True)


class WrongSum(AssertionError):
    """A sum that is not that of each member's gradient once."""


def summed(
    topology: Topology,
    switches: Mapping[str, Switch],
    served: Collection[str],
    admission: TreeAdmission,
    psn: int,
    works: Callable[[str, str], bool],
) -> bool:
    """Send a gradient from each member of a job; return whether their sum was completed.

    The sum is complete if every member has it, or the fallback server has all that it is made of. Member i
    sends 2 ** i, so that a sum says whose gradients it is of.

    Args:
        topology: How switches and servers are connected.
        switches: By name.
        served: The servers whose fallback servers serve the job.
        admission: The job, as its switches should serve it.
        psn: The packets' number.
        works: Returns whether the link between two nodes carries packets now.

    Raises WrongSum.
    """
    members = [
        (name, member, on)
        for name, on in admission.switches.items()
        for member in on.members
        if member.rank is not None
    ]
    results: list[int] = []
    at_server = 0
    going = []
    for number, (name, member, on) in enumerate(members):
        assert member.port is not None
        host = topology.ports[name][member.port].other(name)
        frame = np.zeros(1, _FRAME)
        prefix = _prefix(topology.mac(host), topology.ip(host), member.udp_port)
        frame.view(np.uint8)[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        frame["version_kind"] = wire.version_kind(wire.KIND_GRADIENT)
        frame["job"], frame["psn"], frame["epoch"] = on.job, psn, on.epoch
        frame["bitmap"], frame["fan_in"], frame["node"] = member.bitmap, on.fan_in, on.node
        frame["valid"] = frame["lanes"] = LANES
        frame["target"] = wire.TARGET_ALL
        frame["values"] = 1 << number
        if works(host, name):
            going.append((name, member.port, frame.tobytes()))
    for _ in range(MOST_HOPS):
        if not going:
            break
        name, port, data = going.pop(0)
        switches[name].inject(port, [data], next(_NOW_US))
        for out, link in topology.ports[name].items():
            for sent in switches[name].drain(out):
                other = link.other(name)
                if not works(name, other):
                    continue
                if other in switches:
                    there = next(n for n, back in topology.ports[other].items() if back is link)
                    going.append((other, there, sent))
                    continue
                packet = np.frombuffer(sent[: _FRAME.itemsize], _FRAME)[0]
                if packet["version_kind"] == wire.version_kind(wire.KIND_RESULT):
                    results.append(int(packet["values"][0]))
                elif other in served:
                    at_server += int(packet["values"][0])
    else:
        raise WrongSum(f"job {admission.job}: packets go round in circles")
    whole = (1 << len(members)) - 1
    if any(value != whole for value in results) or at_server > whole:
        raise WrongSum(
            f"job {admission.job}: want {whole:#b}, workers got {results}, the server {at_server:#b}"
        )
    return len(results) == len(members) or at_server == whole


@cache
def _prefix(mac: str, ip: str, port: int) -> bytes:
    ends = wire.Endpoints(mac, "02:00:00:00:ff:01", ip, "10.0.255.1", port)
    return wire.frame_prefix(ends, _FRAME.itemsize - wire.FRAME_PREFIX_BYTES)
