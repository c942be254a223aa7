"""Faults of a cluster, each with its remedy: pure functions of the facts that `doctor` gathers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.switches.model import INA_UDP_PORT
from controller.vocabulary import Topology
from ina.doctor.machine_facts import MachineFacts

HEADER_BYTES: Final = 20 + 8 + 28
"""Bytes of the IPv4, UDP and INA headers of a packet."""
CLOCK_S: Final = 5.0
"""Maximum difference of clocks, in seconds; a larger difference makes logs hard to compare."""
RECEIVE_BYTES: Final = 1 << 17
OPEN_FILES: Final = 256
SHARED_BYTES: Final = 32 << 20
SLOW: Final = 0.25
"""A machine is slow if its goodput is below this share of the median."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a switch or machine, and its remedy."""

    where: str
    """Name of the switch or machine."""
    what: str
    remedy: str
    harmless: bool = False
    """Whether jobs can run in spite of the fault, perhaps more slowly or with less useful messages."""


def of_machine(
    topology: Topology,
    machine: str,
    facts: MachineFacts,
    *,
    version: str,
    lanes: int,
    asked: tuple[float, float],
) -> Iterator[Finding]:
    """Yield the faults of one machine, without its paths to switches and other machines.

    Args:
        topology: The cluster file.
        machine: Name of the machine.
        facts: The machine's facts.
        version: Version of ina on this machine, where the doctor runs.
        lanes: Number of values in a packet.
        asked: Time on this machine's clock before and after the request for the facts.
    """
    if facts.version != version:
        yield Finding(
            machine,
            f"has ina {facts.version}, but this machine has {version}",
            "install the same version on all machines",
        )
    yield from _of_interface(topology, machine, facts, lanes)
    before, after = asked
    if not before - CLOCK_S <= facts.time_s <= after + CLOCK_S:
        off = facts.time_s - (before + after) / 2
        yield Finding(
            machine,
            f"its clock is {off:+.0f} s off this machine's clock",
            "set the same time server on all machines (NTP)",
            harmless=True,
        )
    if facts.receive_bytes is not None and facts.receive_bytes < RECEIVE_BYTES:
        yield Finding(
            machine,
            f"receive buffers of sockets hold {facts.receive_bytes} bytes at most",
            f"sysctl -w net.core.rmem_max={8 << 20}",
            harmless=True,
        )
    if facts.open_files < OPEN_FILES:
        yield Finding(
            machine,
            f"a process may open only {facts.open_files} files",
            f"ulimit -n 4096; want {OPEN_FILES} or more",
        )
    if facts.shared_bytes < SHARED_BYTES:
        yield Finding(
            machine,
            f"/dev/shm, in which the ranks of a machine sum, has only {facts.shared_bytes} bytes left",
            "make it larger: mount -o remount,size=1g /dev/shm",
        )
    if not facts.sealing:
        yield Finding(
            machine, "the package cryptography is missing", "pip install 'ina[machines]'", harmless=True
        )


def _of_interface(topology: Topology, machine: str, facts: MachineFacts, lanes: int) -> Iterator[Finding]:
    server, ip, mac = topology.server[machine], topology.ip(machine), topology.mac(machine)
    lines = "correct its lines in the cluster file: run 'ina host' on it, which prints them"
    named = [each for each in facts.interfaces if each.name == server.interface]
    having = [each for each in facts.interfaces if each.ip == ip]
    if server.interface and not named:
        there = ", ".join(each.name for each in facts.interfaces)
        yield Finding(machine, f"has no interface {server.interface}; it has {there}", lines)
        return
    if not having:
        there = ", ".join(each.ip for each in facts.interfaces if each.ip and not each.loopback)
        yield Finding(machine, f"has no interface with the address {ip}; it has {there or 'none'}", lines)
        return
    found = (named or having)[0]
    if found.ip != ip:
        yield Finding(machine, f"the address {ip} belongs to {having[0].name}, not to {found.name}", lines)
    if found.mac.lower() != mac.lower():
        yield Finding(
            machine, f"{found.name} has the MAC address {found.mac}, but the cluster file says {mac}", lines
        )
    if not found.up:
        yield Finding(machine, f"{found.name} is down", f"ip link set {found.name} up")
    elif not found.carrier:
        yield Finding(machine, f"{found.name} has no carrier", "check the cable, and the switch's port")
    needed = HEADER_BYTES + 4 * lanes
    if found.mtu < needed:
        yield Finding(
            machine,
            f"the MTU of {found.name} is {found.mtu}, and packets of {lanes} values have {needed} bytes",
            f"ip link set {found.name} mtu 1500, or use a program with fewer lanes",
        )
    if facts.port_taken:
        yield Finding(
            machine,
            f"UDP port {INA_UDP_PORT} of {ip} cannot be used: {facts.port_taken}",
            f"end the process that uses it (find it with ss -ulpn 'sport = {INA_UDP_PORT}')",
        )


def of_silence(
    topology: Topology, machine: str, refused: Mapping[str, Mapping[str, int]], error: str
) -> Finding:
    """Return why a machine's packets get no answer, judged from counters of the switches.

    Args:
        topology: The cluster file.
        machine: Name of the machine.
        refused: Number of packets that each switch refused during the trial, by reason.
        error: The error message of the machine's rank.
    """
    switch = topology.rack_of[machine]
    port = topology.port_to(switch, machine)
    here, others = refused.get(switch, {}), {name: each for name, each in refused.items() if name != switch}
    if here.get("wrong_port"):
        return Finding(
            machine,
            f"its packets reach switch {switch}, but not at port {port}, its port in the cluster file",
            "correct its port in the cluster file, or plug its cable into the port given there",
        )
    for name, reasons in others.items():
        if reasons.get("unknown_job") or reasons.get("wrong_port"):
            return Finding(
                machine,
                f"its packets reach switch {name}, but the cluster file says {switch}",
                "correct its switch in the cluster file, or plug its cable into the switch given there",
            )
    reasons = {reason: count for reason, count in here.items() if count}
    if reasons:
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        return Finding(
            machine,
            f"switch {switch} refuses its packets: {counted}",
            "see docs/reference/protocol/switch.md",
        )
    return Finding(
        machine,
        f"none of its packets reach switch {switch} at port {port}, or no answer comes back ({error})",
        f"look for a firewall that drops UDP port {INA_UDP_PORT}, a VLAN, a wrong cable, or a switch's port "
        "that is down",
    )


def of_speeds(goodputs_bps: Mapping[str, float]) -> Iterator[Finding]:
    """Yield a finding for each machine whose goodput is far below the median of three or more machines."""
    if len(goodputs_bps) < 3:
        return
    usual = statistics.median(goodputs_bps.values())
    for machine, goodput in goodputs_bps.items():
        if goodput < SLOW * usual:
            yield Finding(
                machine,
                f"sums {goodput / 1e6:.1f} Mb/s, but the machines' median is {usual / 1e6:.1f} Mb/s",
                "check its link's rate and errors (ethtool, ip -s link), and its other processes",
                harmless=True,
            )
