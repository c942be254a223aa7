"""Traffic that has nothing to do with aggregation: ARP, bridged and routed packets, and entries for it."""

from __future__ import annotations

from collections.abc import Iterator

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from softswitch.compiler import ir
from tests.bmv2.jobs import entry
from tests.bmv2.packets import SWITCH_IP, SWITCH_MAC
from tests.bmv2.reference import Arrival
from tests.bmv2.stations import PORTS, WORKERS
from tests.bmv2.targets import Insert, Members, Write
from tests.p4.bed import UDP_PORT

FLOOD_GROUP = 100
FLOODED: dict[int, Members] = {FLOOD_GROUP: [(port, 0) for port in PORTS]}
BROADCAST = 0xFFFFFFFFFFFF


def forwarding(program: ir.Program) -> Iterator[Write]:
    """Yield the entries: all workers bridged, three prefixes routed."""
    own = "InaIngress.forwarding."

    def bridge(mac: int, action: str, **args: int) -> Write:
        return Insert(own + "bridge", entry(program, [mac], own + action, **args))

    yield Insert(own + "own_address", entry(program, [SWITCH_IP], own + "arp_reply", mac=SWITCH_MAC))
    yield Insert(own + "own_mac", entry(program, [SWITCH_MAC], "NoAction"))
    yield bridge(BROADCAST, "flood", group=FLOOD_GROUP)
    for worker in WORKERS[:7]:
        yield bridge(worker.mac, "forward", port=worker.port)
    yield bridge(WORKERS[7].mac, "drop")
    for prefix, length, port in ((0x0A010000, 16, 1), (0x0A010200, 24, 2), (0x0A010203, 32, 3)):
        mask = (1 << 32) - (1 << (32 - length))
        hop = (port, SWITCH_MAC, 0x02_00_00_00_01_00 + port)
        patterns = (ir.Pattern("mask", prefix, mask),)
        yield Insert(own + "routes", ir.ConstEntry(patterns, ir.Invocation(own + "route", hop), 0))


def traffic() -> Iterator[Arrival]:
    """Yield packets of every kind that the forwarding tables tell apart."""
    yield from _arp()
    yield from _bridged()
    yield from _routed()


def _arp() -> Iterator[Arrival]:
    for asked in ("10.0.0.254", "10.0.0.17", "0.0.0.0"):
        request = ARP(op=1, hwsrc=_mac(WORKERS[1].mac), psrc="10.0.0.17", pdst=asked)
        yield 1, bytes(_ether(1, BROADCAST) / request)
        yield 1, bytes(_ether(1, BROADCAST) / request) + bytes(18)
    yield 2, bytes(_ether(2, WORKERS[0].mac) / ARP(op=2, psrc="10.0.0.18", pdst="10.0.0.254"))
    yield 2, bytes(_ether(2, BROADCAST) / ARP(op=1, pdst="10.0.0.254"))[:41]
    yield 0, bytes(_ether(0, SWITCH_MAC) / ARP(op=2, pdst="10.0.0.254"))


def _bridged() -> Iterator[Arrival]:
    yield 3, bytes(_ether(3, WORKERS[5].mac) / IP(dst="10.0.0.21") / TCP(dport=80) / b"hello")
    yield 3, bytes(_ether(3, WORKERS[3].mac) / IP(dst="10.0.0.19") / ICMP())  # back out of the same port
    yield 4, bytes(_ether(4, WORKERS[7].mac) / IP(dst="10.0.0.23") / UDP(dport=53))  # to a drop entry
    yield 4, bytes(_ether(4, 0x02_00_00_00_99_99) / IP(dst="10.0.0.99") / UDP(dport=53))  # unknown address
    yield 5, bytes(_ether(5, BROADCAST) / IP(dst="255.255.255.255") / UDP(sport=68, dport=67) / bytes(300))
    yield 6, bytes(_ether(6, WORKERS[0].mac) / IPv6(dst="fe80::1") / UDP(dport=UDP_PORT) / bytes(152))
    yield 6, bytes(_ether(6, WORKERS[0].mac) / Dot1Q(vlan=5) / IP(dst="10.0.0.16") / UDP(dport=UDP_PORT))
    yield 6, bytes(_ether(6, WORKERS[0].mac))
    yield 6, bytes(_ether(6, BROADCAST) / (b"\x88\xb5" + bytes(range(256)) * 5))
    for worker in WORKERS:
        yield 6, bytes(_ether(6, worker.mac) / (b"\x08\x00" + bytes(20)))  # an IPv4 header of zeros
        packet = IP(src="10.0.0.22", dst="10.9.9.9", ttl=1) / UDP(dport=worker.port)
        yield 6, bytes(_ether(6, worker.mac) / packet)


def _routed() -> Iterator[Arrival]:
    to_switch = _ether(0, SWITCH_MAC)
    for target in ("10.1.0.1", "10.1.2.1", "10.1.2.3", "10.2.0.1", "10.1.255.255"):
        for ttl in (0, 1, 2, 64, 255):
            yield 0, bytes(to_switch / IP(dst=target, ttl=ttl, tos=7, flags=2) / UDP(dport=9) / b"payload")
    with_options = IP(dst="10.1.2.3", options=[IPOption_Router_Alert()])
    yield 0, bytes(to_switch / with_options / UDP(dport=UDP_PORT) / b"x")
    yield 0, bytes(to_switch / IP(dst="10.1.2.3", frag=100, proto=17) / bytes(60))
    yield 0, bytes(to_switch / IP(dst="10.1.2.3", chksum=0xABCD) / TCP())
    yield 0, bytes(to_switch / IP(dst="10.1.2.3", version=6) / UDP())
    yield 0, bytes(to_switch / IP(dst="10.1.2.3") / UDP())[:37]


def _ether(source: int, target: int) -> Ether:
    return Ether(src=_mac(WORKERS[source].mac), dst=_mac(target))


def _mac(address: int) -> str:
    return ":".join(f"{byte:02x}" for byte in address.to_bytes(6, "big"))
