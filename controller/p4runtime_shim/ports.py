"""The state of a running switch, read by gNMI at its P4Runtime address: its ports, and its revision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from controller.p4runtime_shim.client import Tls
from controller.switches.target import Revision

_TIMEOUT_S = 5.0
_UDP, _PEER = "udp:", " peer "


@dataclass(frozen=True, slots=True)
class PortEnds:
    """The UDP addresses of a port's link, as ``host:port``: the switch's (`udp`), the other end's (`peer`).

    Both are "" for a port that does not use UDP. `peer` is also "" for a port without a fixed peer. `up` is
    whether the link works, as far as the switch can see.
    """

    udp: str = ""
    peer: str = ""
    up: bool = True

    @classmethod
    def of(cls, description: str, status: str = "UP") -> PortEnds:
        """Parse a port's description; `status` is its ``oper-status``.

        >>> PortEnds.of("udp:127.0.0.1:27001 peer 127.0.0.1:28001")
        PortEnds(udp='127.0.0.1:27001', peer='127.0.0.1:28001', up=True)
        >>> PortEnds.of("if:veth0", "DOWN")
        PortEnds(udp='', peer='', up=False)
        """
        if not description.startswith(_UDP):
            return cls(up=status != "DOWN")
        udp, _, peer = description.removeprefix(_UDP).partition(_PEER)
        return cls(udp, peer, status != "DOWN")


def ports_of(address: str, tls: Tls | None = None) -> dict[int, PortEnds] | None:
    """Return a switch's ports by number, in order; None if it reports no ports (as BMv2) or is silent."""
    channel = grpc.secure_channel(address, tls.credentials()) if tls else grpc.insecure_channel(address)
    try:
        return _ports(_query(channel))
    except grpc.RpcError:
        return None
    finally:
        channel.close()


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """The state of a switch, as the switch reports it.

    Attributes:
        ports: The switch's ports by number.
        revision: The version of the program and the entries; None: the switch reports no version.
        packets: Number of packets that the ports have received; None: not reported.
    """

    ports: Mapping[int, PortEnds]
    revision: Revision | None = None
    packets: int | None = None


class SwitchWatch:
    """Polls switches for their reports, over one connection to each.

    One request asks for everything in a report, and an answer equal to the last one is not decoded again.
    """

    def __init__(self) -> None:
        self._queries: dict[str, _PortQuery] = {}

    def __call__(self, address: str) -> SwitchReport | None:
        """Return the report of the switch at `address`; None if it sends no reports (as BMv2) or is silent.

        The report of a switch without revisions has only its ports, as from `ports_of`.
        """
        query = self._queries.get(address)
        if query is None:
            query = self._queries[address] = _PortQuery(address)
        try:
            return query()
        except grpc.RpcError:
            del self._queries[address]  # a new connection finds a switch that was started anew at once
            query.close()
            return None


class _PortQuery:
    """A connection to a switch, with the last answer received over it."""

    def __init__(self, address: str) -> None:
        from p4src.messages import gnmi  # imported here: only runs on attached switches need it

        self._channel = grpc.insecure_channel(address)
        self.close = self._channel.close
        self._get = self._channel.unary_unary(f"/{gnmi.SERVICE}/Get", None, gnmi.GetResponse.FromString)
        request = gnmi.GetRequest(encoding=gnmi.ENCODINGS["PROTO"])
        for names in _WATCHED:
            path = request.path.add()
            for name in names:
                path.elem.add(name=name)
        self._request: bytes = request.SerializeToString()
        self._has_revision = True
        self._last: tuple[bytes, SwitchReport] = b"", SwitchReport({})

    def __call__(self) -> SwitchReport:
        """Return the switch's report. Raises grpc.RpcError."""
        if not self._has_revision:
            return SwitchReport(_ports(_query(self._channel)))
        try:
            answer = self._get(self._request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            self._has_revision = False
            return self()
        for notification in answer.notification:
            notification.timestamp = 0  # of the answer, not of its content
        plain = answer.SerializeToString()
        if plain != self._last[0]:
            self._last = plain, _report(answer)
        return self._last[1]


_WATCHED = (
    ("system", "state", "boot-time"),
    ("p4runtime", "state", "writes"),
    ("interfaces", "interface", "state", "id"),
    ("interfaces", "interface", "state", "oper-status"),
    ("interfaces", "interface", "state", "counters", "in-pkts"),
)
"""The gNMI paths that one request asks for."""


def _report(answer: Any) -> SwitchReport:
    boot, writes, ids, statuses, packets = answer.notification
    number = {each.path.elem[1].key["name"]: each.val.uint_val for each in ids.update}
    up = {each.path.elem[1].key["name"]: each.val.string_val != "DOWN" for each in statuses.update}
    return SwitchReport(
        {number[name]: PortEnds(up=up.get(name, True)) for name in number},
        Revision(boot.update[0].val.uint_val, writes.update[0].val.uint_val),
        sum(each.val.uint_val for each in packets.update),
    )


def _query(channel: grpc.Channel) -> bytes:
    """Return a switch's encoded answer about the state of its ports. Raises grpc.RpcError."""
    from p4src.messages import gnmi  # imported here: only runs on attached switches need it

    request = gnmi.GetRequest(encoding=gnmi.ENCODINGS["JSON"])
    path = request.path.add()
    for name in ("interfaces", "interface", "state"):
        path.elem.add(name=name)
    get = channel.unary_unary(f"/{gnmi.SERVICE}/Get", gnmi.GetRequest.SerializeToString, None)
    answer: bytes = get(request, timeout=_TIMEOUT_S)
    return answer


def _ports(answer: bytes) -> dict[int, PortEnds]:
    from p4src.messages import gnmi

    response = gnmi.GetResponse.FromString(answer)
    states = [json.loads(update.val.json_val) for each in response.notification for update in each.update]
    found = (
        (int(state["id"]), PortEnds.of(state.get("description", ""), state.get("oper-status", "UP")))
        for state in states
    )
    return dict(sorted(found))
