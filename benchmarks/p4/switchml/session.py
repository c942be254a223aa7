"""The entries that SwitchML's controller writes for a session of workers over UDP, with packets of 256 bytes.

They are those of its `udp_receiver`, `udp_sender`, `next_step_selector` and `pre`, for one session: its
multicast group is 0, as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.p4.switchml.client import Client, Match

SWITCH_MAC, SWITCH_IP = 0x001122334455, 0x0A0000FE
UDP_PORT, UDP_MASK = 0xBEE0, 0xFFF0
RECIRCULATION = 68
_MTU_256 = 1
_CONSUME0, _HARVEST7 = 0x4, 0xF
_FIRST, _LAST = 0, 1
_WORKER_OVER_UDP = 1


@dataclass(frozen=True, slots=True)
class Host:
    """A worker's place: its rank, its port of the switch, and its addresses."""

    rank: int
    port: int
    mac: int
    ip: int


def hosts(workers: int) -> list[Host]:
    """Return workers at every fourth port, as SwitchML's example of a configuration has them."""
    return [Host(rank, 4 * rank, 0x001122330000 + rank, 0x0A000001 + rank) for rank in range(workers)]


def open_session(client: Client, workers: Sequence[Host]) -> None:
    """Write a session's entries into a switch that has none."""
    tables = client.tables
    addresses = {"switch_mac": SWITCH_MAC, "switch_ip": SWITCH_IP}
    sender = "Egress.udp_sender"
    tables[f"pipe.{sender}.switch_mac_and_ip"].set_default(addresses, f"{sender}.set_switch_mac_and_ip")
    for host in workers:
        _admit(client, host, len(workers))
        tables["$pre.node"].add(
            {"$MULTICAST_NODE_ID": host.rank}, {"$MULTICAST_RID": host.rank, "$DEV_PORT": [host.port]}
        )
    ranks = [host.rank for host in workers]
    tables["$pre.mgid"].add(
        {"$MGID": 0},
        {
            "$MULTICAST_NODE_ID": ranks,
            "$MULTICAST_NODE_L1_XID_VALID": [True] * len(ranks),
            "$MULTICAST_NODE_L1_XID": ranks,
        },
    )
    _steps(client)


def _admit(client: Client, host: Host, workers: int) -> None:
    receiver, sender = "Ingress.udp_receiver", "Egress.udp_sender"
    key: dict[str, Match] = {
        "$MATCH_PRIORITY": 10,
        "ig_intr_md.ingress_port": None,
        "hdr.ethernet.src_addr": host.mac,
        "hdr.ethernet.dst_addr": SWITCH_MAC,
        "hdr.ipv4.src_addr": host.ip,
        "hdr.ipv4.dst_addr": SWITCH_IP,
        "hdr.udp.dst_port": (UDP_PORT, UDP_MASK),
        "ig_prsr_md.parser_err": None,
    }
    worker = {"worker_type": _WORKER_OVER_UDP, "worker_id": host.rank, "worker_bitmap": 1 << host.rank}
    whole = {"mgid": 0, "num_workers": workers, **worker}
    client.tables[f"pipe.{receiver}.receive_udp"].add(key, whole, f"{receiver}.set_bitmap")
    to = {"eth_dst_addr": host.mac, "ip_dst_addr": host.ip}
    client.tables[f"pipe.{sender}.dst_addr"].add(
        {"eg_md.switchml_md.worker_id": host.rank}, to, f"{sender}.set_dst_addr"
    )


def _steps(client: Client) -> None:
    """Write what becomes of a packet by its type, place among its slot's, and whether it came before."""
    size, kind, place, seen, selector = (
        *("packet_size", "packet_type", "first_last_flag", "map_result"),
        "Ingress.next_step_selector",
    )
    consume, harvest = {size: _MTU_256, kind: _CONSUME0}, {kind: _HARVEST7}
    rows: list[tuple[dict[str, int], str]] = [
        ({**consume, place: _LAST}, "recirculate_for_HARVEST7"),
        ({**consume, seen: 0}, "finish_consume"),
        ({**consume, place: _FIRST}, "recirculate_for_HARVEST7"),
        (consume, "drop"),
        ({**harvest, place: _LAST, seen: 0}, "broadcast"),
        ({**harvest, place: _FIRST, seen: 0}, "drop"),
        ({**harvest, place: _FIRST}, "retransmit"),
        (harvest, "drop"),
    ]
    names = (size, "worker_id", kind, place, seen)
    for priority, (row, action) in enumerate(rows):
        key: dict[str, Match] = {f"ig_md.switchml_md.{name}": row.get(name) for name in names}
        data = {"recirc_port": RECIRCULATION} if action.startswith("recirculate") else {}
        client.tables[f"pipe.{selector}.next_step"].add(
            {"$MATCH_PRIORITY": priority, **key}, data, f"{selector}.{action}"
        )
