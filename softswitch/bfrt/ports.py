"""The switch's ports: given when it starts, and always up; clients configure and count them as a chip's.

Port 4 * (C - 1) + L is lane L of connector C, as in the first pipe of a chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from softswitch.bfrt.rows import Refused, Row, Rows, Stored
from softswitch.bfrt.values import Column, Table, exact_entry, exact_key
from softswitch.compiler import ir
from softswitch.engine.counters import PortStatistics
from softswitch.engine.switch import Switch
from softswitch.p4runtime.errors import NotFound, PermissionDenied

LANES = 4
_DEV_PORT = (Column(1, "$DEV_PORT", "uint32", match="Exact"),)
PORT = Table(
    0xFF010001,
    "$PORT",
    "PortConfigure",
    512,
    _DEV_PORT,
    (
        *(Column(2, "$SPEED", "string"), Column(3, "$FEC", "string"), Column(4, "$N_LANES", "uint32")),
        *(Column(5, "$PORT_ENABLE", "bool"), Column(6, "$AUTO_NEGOTIATION", "string")),
        *(Column(7, "$LOOPBACK_MODE", "string"), Column(8, "$PORT_UP", "bool")),
        *(Column(9, "$PORT_NAME", "string"), Column(10, "$CONN_ID", "uint32")),
        Column(11, "$CHNL_ID", "uint32"),
    ),
)
STATISTICS: dict[str, tuple[str, ...]] = {
    "$FramesReceivedOK": ("rx_packets",),
    "$FramesReceivedAll": ("rx_packets",),
    "$FramesReceivedwithFCSError": ("rx_corrupted",),
    "$FrameswithanyError": ("rx_corrupted", "rx_malformed"),
    "$OctetsReceivedinGoodFrames": ("rx_bytes",),
    "$OctetsReceived": ("rx_bytes",),
    "$FramesTransmittedOK": ("tx_packets",),
    "$FramesTransmittedAll": ("tx_packets",),
    "$OctetsTransmittedwithouterror": ("tx_bytes",),
    "$FramesTransmittedwithError": ("tx_corrupted",),
}
"""Statistics of a chip's port, and the counters of ours that they are the sum of."""
STAT = Table(
    0xFF010002,
    "$PORT_STAT",
    "PortStat",
    512,
    _DEV_PORT,
    tuple(Column(number, name, "uint64") for number, name in enumerate(STATISTICS, 2)),
)
HANDLE = Table(
    0xFF010003,
    "$PORT_HDL_INFO",
    "PortHdlInfo",
    512,
    (
        Column(1, "$CONN_ID", "uint32", match="Exact"),
        Column(2, "$CHNL_ID", "uint32", match="Exact"),
    ),
    (Column(3, "$DEV_PORT", "uint32"),),
)


GENERATOR = Table(
    0xFF030001,
    "tf1.pktgen.port_cfg",
    "PktgenPortCfg",
    0,
    (Column(1, "dev_port", "uint32", match="Exact"),),
    (Column(2, "recirculation_enable", "bool"), Column(3, "pktgen_enable", "bool")),
)


def ports(switch: Switch) -> list[Rows]:
    """Return the tables of a switch's ports."""
    return [_Ports(switch), _Statistics(switch), _Handles(switch), Refused(GENERATOR)]


def port_metadata(program: ir.Program, prefix: str) -> list[Rows]:
    """Return the table of what a program's ingress parser gets of a port: here zero for all ports."""
    if not program.ingress_parser:
        return []
    key = (Column(1, "ingress_port", "uint16", match="Exact"),)
    name = f"{prefix}{program.ingress_parser}.$PORT_METADATA"
    return [Refused(Table(0xFE000001, name, "PhaseZero", 0, key, ()))]


class _Ports(Stored):
    def __init__(self, switch: Switch) -> None:
        super().__init__(PORT)
        self._switch = switch

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Refuse ports that the switch does not have."""
        _check_port(self._switch, key[0])

    def shown(self, key: tuple[int, ...]) -> Row:
        """Return a port's configuration, with its name; it is up."""
        connector, lane = key[0] // LANES + 1, key[0] % LANES
        told: Row = {
            "$PORT_UP": True,
            "$PORT_NAME": f"{connector}/{lane}",
            "$CONN_ID": connector,
            "$CHNL_ID": lane,
        }
        return {**self.rows[key], **told}


class _Statistics:
    """Counters of ports; setting one to a number counts on from there, here alone."""

    def __init__(self, switch: Switch) -> None:
        self.table = STAT
        self._switch = switch
        self._since: dict[int, dict[str, int]] = {}

    def write(self, kind: int, entry: Any) -> None:
        """Reset the counters of a port, or of all."""
        key = exact_key(entry, STAT)
        if key is not None:
            _check_port(self._switch, key[0])
        for port in self._switch.ports if key is None else key:
            self._since[port] = self._counted(port)

    def _counted(self, port: int) -> dict[str, int]:
        found: PortStatistics = self._switch.statistics(port)
        return {name: sum(getattr(found, part) for part in parts) for name, parts in STATISTICS.items()}

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the counters of a port, or of all."""
        key = exact_key(entry, STAT)
        if key is not None:
            _check_port(self._switch, key[0])
        for port in self._switch.ports if key is None else key:
            since = self._since.get(port, {})
            values = {name: count - since.get(name, 0) for name, count in self._counted(port).items()}
            yield exact_entry(STAT, (port,), dict(values))

    def usage(self) -> int:
        """Return the number of ports."""
        return len(self._switch.ports)


class _Handles:
    def __init__(self, switch: Switch) -> None:
        self.table = HANDLE
        self._switch = switch

    def write(self, kind: int, entry: Any) -> None:
        """Refuse: which port is where does not change."""
        raise PermissionDenied(f"'{HANDLE.name}' can only be read")

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the port of a connector and lane, or all."""
        key = exact_key(entry, HANDLE)
        places = {(port // LANES + 1, port % LANES): port for port in self._switch.ports}
        if key is not None and key not in places:
            listing = ", ".join(f"{c}/{lane}" for c, lane in places)
            raise NotFound(f"there is no port {key[0]}/{key[1]}; there are {listing}")
        for place, port in places.items():
            if key in (None, place):
                yield exact_entry(HANDLE, place, {"$DEV_PORT": port})

    def usage(self) -> int:
        """Return the number of ports."""
        return len(self._switch.ports)


def _check_port(switch: Switch, port: int) -> None:
    if port not in switch.ports:
        raise NotFound(f"the switch has no port {port}; it has {', '.join(map(str, switch.ports))}")
