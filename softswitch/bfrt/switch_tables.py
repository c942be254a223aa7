"""Tables of the switch itself: its ports, multicast groups and nodes, exclusions, mirror sessions.

The ports are set when the switch starts, and are always up; clients configure them and read their counters
as on a chip. Port 4 * (C - 1) + L is lane L of connector C, as in the first pipe of a chip.

A multicast group is a list of nodes, each with or without an exclusion id. A node has a replication id and
ports. A node may change while groups contain it: after each change of a node or group, this module updates
the affected groups in the switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from softswitch.bfrt.values import (
    ActionSpec,
    Column,
    RefusedRows,
    Row,
    Rows,
    Stored,
    TableSpec,
    exact_entry,
    exact_key,
)
from softswitch.compiler import ir
from softswitch.engine.ports import PortStatistics
from softswitch.engine.switch import Switch
from softswitch.engine.tofino import NO_GROUP, group_number
from softswitch.p4runtime.errors import InvalidArgument, NotFound, PermissionDenied, Unimplemented

LANES = 4
_DEV_PORT = (Column(1, "$DEV_PORT", "uint32", match="Exact"),)
PORT_TABLE = TableSpec(
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
"""For each statistic that a chip keeps of a port, the counters of `PortStatistics` to add up."""
STAT = TableSpec(
    0xFF010002,
    "$PORT_STAT",
    "PortStat",
    512,
    _DEV_PORT,
    tuple(Column(number, name, "uint64") for number, name in enumerate(STATISTICS, 2)),
)
HANDLE = TableSpec(
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


GENERATOR = TableSpec(
    0xFF030001,
    "tf1.pktgen.port_cfg",
    "PktgenPortCfg",
    0,
    (Column(1, "dev_port", "uint32", match="Exact"),),
    (Column(2, "recirculation_enable", "bool"), Column(3, "pktgen_enable", "bool")),
)


def ports(switch: Switch) -> list[Rows]:
    """Return the tables of a switch's ports."""
    return [_Ports(switch), _PortCounters(switch), _Handles(switch), RefusedRows(GENERATOR)]


def port_metadata(program: ir.Program, prefix: str) -> list[Rows]:
    """Return, in a list, the port metadata table of a program's ingress parser.

    The list is empty if the program has no ingress parser. This switch does not store port metadata: a parser
    always reads zeros.
    """
    if not program.ingress_parser:
        return []
    key = (Column(1, "ingress_port", "uint16", match="Exact"),)
    name = f"{prefix}{program.ingress_parser}.$PORT_METADATA"
    return [RefusedRows(TableSpec(0xFE000001, name, "PhaseZero", 0, key, ()))]


class _Ports(Stored):
    def __init__(self, switch: Switch) -> None:
        super().__init__(PORT_TABLE)
        self._switch = switch

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise an error for a port that the switch does not have."""
        _check_port(self._switch, key[0])

    def shown(self, key: tuple[int, ...]) -> Row:
        """Return a port's configuration with its name, connector, lane and state; the state is always up."""
        connector, lane = key[0] // LANES + 1, key[0] % LANES
        derived: Row = {
            "$PORT_UP": True,
            "$PORT_NAME": f"{connector}/{lane}",
            "$CONN_ID": connector,
            "$CHNL_ID": lane,
        }
        return {**self.rows[key], **derived}


class _PortCounters:
    """Counters of ports. A write resets them to 0 in this table only; the switch's own counters continue."""

    def __init__(self, switch: Switch) -> None:
        self.table = STAT
        self._switch = switch
        self._since: dict[int, dict[str, int]] = {}

    def write(self, kind: int, entry: Any) -> None:
        """Reset the counters of one port, or of all ports."""
        key = exact_key(entry, STAT)
        if key is not None:
            _check_port(self._switch, key[0])
        for port in self._switch.ports if key is None else key:
            self._since[port] = self._counted(port)

    def _counted(self, port: int) -> dict[str, int]:
        found: PortStatistics = self._switch.statistics(port)
        return {name: sum(getattr(found, part) for part in parts) for name, parts in STATISTICS.items()}

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the counters of one port, or of all ports."""
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
        """Raise PermissionDenied: the connector and the lane of each port are fixed."""
        raise PermissionDenied(f"'{HANDLE.name}' can only be read")

    def read(self, entry: Any) -> Iterator[Any]:
        """Yield the port at the given connector and lane or, without a key, all ports."""
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


_NODES, _VALID, _XIDS = "$MULTICAST_NODE_ID", "$MULTICAST_NODE_L1_XID_VALID", "$MULTICAST_NODE_L1_XID"
_RID, _PORTS = "$MULTICAST_RID", "$DEV_PORT"


def _list(id_: int, name: str, type_: str) -> Column:
    return Column(id_, name, type_, repeated=True)


def _key(name: str, type_: str) -> tuple[Column, ...]:
    return (Column(1, name, type_, match="Exact"),)


MGID = TableSpec(
    0xFF020001,
    "$pre.mgid",
    "PreMgid",
    65536,
    _key("$MGID", "uint16"),
    (
        *(_list(2, _NODES, "uint32"), _list(3, _VALID, "bool"), _list(4, _XIDS, "uint16")),
        *(_list(5, "$MULTICAST_ECMP_ID", "uint32"), _list(6, "$MULTICAST_ECMP_L1_XID_VALID", "bool")),
        _list(7, "$MULTICAST_ECMP_L1_XID", "uint16"),
    ),
)
NODE = TableSpec(
    0xFF020002,
    "$pre.node",
    "PreNode",
    1 << 24,
    _key(_NODES, "uint32"),
    (Column(2, _RID, "uint16"), _list(3, "$MULTICAST_LAG_ID", "uint8"), _list(4, _PORTS, "uint32")),
)
ECMP = TableSpec(
    0xFF020003,
    "$pre.ecmp",
    "PreEcmp",
    0,
    _key("$MULTICAST_ECMP_ID", "uint32"),
    (_list(2, _NODES, "uint32"),),
)
LAG = TableSpec(
    0xFF020004, "$pre.lag", "PreLag", 0, _key("$MULTICAST_LAG_ID", "uint8"), (_list(2, _PORTS, "uint32"),)
)
PRUNE = TableSpec(
    0xFF020005,
    "$pre.prune",
    "PrePrune",
    512,
    _key("$MULTICAST_L2_XID", "uint16"),
    (_list(2, _PORTS, "uint32"),),
)
PORT = TableSpec(
    0xFF020006,
    "$pre.port",
    "PrePort",
    0,
    _key(_PORTS, "uint32"),
    (Column(2, "$COPY_TO_CPU_PORT_ENABLE", "bool"),),
)
MIRROR = TableSpec(
    0xFF040001,
    "$mirror.cfg",
    "MirrorCfg",
    1024,
    _key("$sid", "uint16"),
    (),
    (
        ActionSpec(
            0xFF040101,
            "$normal",
            (
                Column(2, "$session_enable", "bool"),
                Column(3, "$direction", "string"),
                Column(4, "$ucast_egress_port", "uint32"),
                Column(5, "$ucast_egress_port_valid", "bool"),
                Column(6, "$max_pkt_len", "uint16"),
                Column(7, "$mcast_grp_a_valid", "bool"),
                Column(8, "$mcast_grp_b_valid", "bool"),
            ),
        ),
    ),
)


def replication(switch: Switch) -> list[Stored]:
    """Return the tables of a switch's traffic manager."""
    nodes = _Nodes(switch)
    return [
        nodes.groups,
        nodes,
        _Prune(switch),
        RefusedRows(ECMP),
        RefusedRows(LAG),
        RefusedRows(PORT),
        _Mirrors(switch),
    ]


class _Groups(Stored):
    def __init__(self, switch: Switch, nodes: _Nodes) -> None:
        super().__init__(MGID)
        self._switch = switch
        self._nodes = nodes

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise RequestError for an invalid group.

        A group is invalid if its number is reserved, if one of its nodes does not exist, if it uses ECMP, or
        if its lists of nodes, flags and exclusion ids differ in length.
        """
        if row is None:
            return
        if key[0] == NO_GROUP:
            raise Unimplemented(f"multicast group {NO_GROUP} is reserved: in this switch it means no group")
        if row.get("$MULTICAST_ECMP_ID"):
            raise Unimplemented("this switch does not support nodes chosen by ECMP")
        nodes, valid, xids = (_numbers(row, name) for name in (_NODES, _VALID, _XIDS))
        if {len(valid), len(xids)} - {0, len(nodes)}:
            counts = f"{len(nodes)} nodes, {len(valid)} flags and {len(xids)} exclusion ids"
            raise InvalidArgument(
                f"multicast group {key[0]} has {counts}: want one flag and one id for each node"
            )
        for node in nodes:
            if (node,) not in self._nodes.rows:
                raise NotFound(f"multicast group {key[0]}: first add the missing node {node}")

    def incremented(self, old: Row, given: Row, *, takes_away: bool) -> Row:
        """Return the group `old` with the nodes of `given` added or, with `takes_away`, removed.

        To remove a node, its exclusion id need not be given.
        """
        own = _with_exclusions(old)
        other = _with_exclusions(given)
        if takes_away:
            gone = {node for node, _ in other}
            own = [member for member in own if member[0] not in gone]
        else:
            own += other
        ids = [id_ for _, id_ in own]
        return {
            _NODES: [node for node, _ in own],
            _VALID: [id_ is not None for id_ in ids],
            _XIDS: [id_ or 0 for id_ in ids],
        }

    def changed(self, key: tuple[int, ...]) -> None:
        """Set the group's members in the switch."""
        row, group = self.rows.get(key), group_number(key[0])
        if row is None:
            self._switch.set_multicast_group(group, None)
            return
        members, exclusions = [], []
        for node, exclusion in _with_exclusions(row):
            of_node = self._nodes.rows[node,]
            rid = cast("int", of_node.get(_RID, 0))
            for port in _numbers(of_node, _PORTS):
                members.append((port, rid))
                exclusions.append(exclusion or 0)
        self._switch.set_multicast_group(group, members, exclusions)

    def having(self, node: int) -> list[tuple[int, ...]]:
        """Return the keys of the groups that contain a node."""
        return [key for key, row in self.rows.items() if node in _numbers(row, _NODES)]


class _Nodes(Stored):
    def __init__(self, switch: Switch) -> None:
        super().__init__(NODE)
        self.groups = _Groups(switch, self)

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise an error for an invalid port, and for the deletion of a node that a group contains.

        Also raise an error for a node with a link aggregation group, which the switch does not support.
        """
        if row is None:
            if held := self.groups.having(key[0]):
                raise InvalidArgument(
                    f"node {key[0]} is in multicast group {held[0][0]}: remove it from the group first"
                )
            return
        if row.get("$MULTICAST_LAG_ID"):
            raise Unimplemented("this switch does not support link aggregation groups in multicast nodes")
        _check_ports(row)

    def changed(self, key: tuple[int, ...]) -> None:
        """Update the groups that contain the node."""
        for group in self.groups.having(key[0]):
            self.groups.changed(group)


class _Prune(Stored):
    def __init__(self, switch: Switch) -> None:
        super().__init__(PRUNE)
        self._switch = switch

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise an error for an invalid port, and for exclusion id 0, which is reserved."""
        if key[0] == 0:
            raise Unimplemented("level 2 exclusion id 0 is reserved: in this switch it excludes nothing")
        _check_ports(row or {})

    def changed(self, key: tuple[int, ...]) -> None:
        """Set, in the switch, the ports that an exclusion id excludes."""
        row = self.rows.get(key)
        self._switch.set_exclusion(key[0], None if row is None else _numbers(row, _PORTS))


class _Mirrors(Stored):
    def __init__(self, switch: Switch) -> None:
        super().__init__(MIRROR)
        self._switch = switch

    def check(self, key: tuple[int, ...], row: Row | None) -> None:
        """Raise an error for settings that a clone session of the switch does not support."""
        if key[0] == 0:
            raise InvalidArgument("mirror session 0: sessions are 1 to 65535")
        if row and (row.get("$mcast_grp_a_valid") or row.get("$mcast_grp_b_valid")):
            raise Unimplemented("this switch does not support mirror sessions to multicast groups")

    def changed(self, key: tuple[int, ...]) -> None:
        """Set the clone session in the switch; a session that is not enabled is removed."""
        row = self.rows.get(key)
        if row is None or not row.get("$session_enable") or not row.get("$ucast_egress_port_valid"):
            self._switch.set_clone_session(key[0], None)
            return
        port, length = (cast("int", row.get(name, 0)) for name in ("$ucast_egress_port", "$max_pkt_len"))
        self._switch.set_clone_session(key[0], [(port, 0)], length)


def _numbers(row: Row, name: str) -> list[int]:
    return cast("list[int]", row.get(name, []))


def _with_exclusions(row: Row) -> list[tuple[int, int | None]]:
    """Return a (node, exclusion id) pair for each node of a group; the id is None if the node has none."""
    nodes = _numbers(row, _NODES)
    valid = _numbers(row, _VALID) or [0] * len(nodes)
    ids = _numbers(row, _XIDS) or [0] * len(nodes)
    return [(node, id_ if ok else None) for node, ok, id_ in zip(nodes, valid, ids, strict=True)]


def _check_ports(row: Row) -> None:
    for port in _numbers(row, _PORTS):
        if not 0 <= port < 512:
            raise InvalidArgument(f"port {port}: ports are 0 to 511")
