"""Rows for ordinary traffic: bridging by MAC, flooding, the switch's own addresses, routes."""

from __future__ import annotations

from controller.switches import names
from controller.switches.model import ipv4_to_int, mac_to_int
from controller.switches.target import Lpm, MulticastGroup, TableEntry


def bridge(mac: str, port: int) -> TableEntry:
    """Return the entry that sends frames for `mac` out of `port`."""
    return TableEntry(names.BRIDGE, {names.BRIDGE_KEY: mac_to_int(mac)}, names.FORWARD, {"port": port})


def broadcast(group: int) -> TableEntry:
    """Return the entry that floods broadcast frames to a multicast group's ports, except the ingress port."""
    return TableEntry(names.BRIDGE, {names.BRIDGE_KEY: 0xFFFF_FFFF_FFFF}, names.FLOOD, {"group": group})


def flood_unknown(group: int) -> TableEntry:
    """Return the default entry that floods frames for MACs without an entry to a multicast group's ports."""
    return TableEntry(names.BRIDGE, {}, names.FLOOD, {"group": group}, default=True)


def flood_group(group: int, ports: list[int]) -> MulticastGroup:
    """Return the multicast group for flooding, with these ports."""
    return MulticastGroup(group, tuple((port, 0) for port in ports))


def own_address(ip: str, mac: str) -> TableEntry:
    """Return the entry by which the switch answers ARP requests for `ip` with `mac`."""
    return TableEntry(
        names.OWN_ADDRESS, {names.OWN_ADDRESS_KEY: ipv4_to_int(ip)}, names.ARP_REPLY, {"mac": mac_to_int(mac)}
    )


def own_mac(mac: str) -> TableEntry:
    """Return the entry by which the switch routes frames for `mac` instead of bridging them."""
    return TableEntry(names.OWN_MAC, {names.OWN_MAC_KEY: mac_to_int(mac)}, names.NO_ACTION)


def route(ip: str, prefix_len: int, *, port: int, src: str, dst: str) -> TableEntry:
    """Return the entry that routes a prefix.

    Args:
        ip: An IPv4 address in the prefix.
        prefix_len: Length of the prefix in bits; 0: the default route.
        port: The egress port.
        src: MAC address of the switch on that port.
        dst: MAC address of the next hop.
    """
    mask = (1 << 32) - (1 << (32 - prefix_len))
    match = {names.ROUTES_KEY: Lpm(ipv4_to_int(ip) & mask, prefix_len)} if prefix_len else {}
    return TableEntry(
        names.ROUTES, match, names.ROUTE, {"port": port, "src": mac_to_int(src), "dst": mac_to_int(dst)}
    )
