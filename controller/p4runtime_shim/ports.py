"""The ports of a running switch, by gNMI at the address of its P4Runtime."""

from __future__ import annotations

import json
from dataclasses import dataclass

import grpc

from controller.p4runtime_shim.tls import Tls

_TIMEOUT_S = 5.0
_UDP, _PEER = "udp:", " peer "


@dataclass(frozen=True, slots=True)
class PortEnds:
    """Both ends of a port's link, as ``host:port``; empty: it is not UDP's, or has no fixed peer.

    `up` is whether its link works, as far as the switch can see.
    """

    udp: str = ""
    peer: str = ""
    up: bool = True

    @classmethod
    def of(cls, description: str, status: str = "UP") -> PortEnds:
        """Return the ends that a port's description tells; `status` is its ``oper-status``.

        >>> PortEnds.of("udp:127.0.0.1:47001 peer 127.0.0.1:48001")
        PortEnds(udp='127.0.0.1:47001', peer='127.0.0.1:48001', up=True)
        >>> PortEnds.of("if:veth0", "DOWN")
        PortEnds(udp='', peer='', up=False)
        """
        if not description.startswith(_UDP):
            return cls(up=status != "DOWN")
        udp, _, peer = description.removeprefix(_UDP).partition(_PEER)
        return cls(udp, peer, status != "DOWN")


def ports_of(address: str, tls: Tls | None = None) -> dict[int, PortEnds] | None:
    """Return a switch's ports by number, in order; None: it does not tell them, as BMv2 does not."""
    from p4src.messages import gnmi  # messages that only runs on attached switches need

    channel = grpc.secure_channel(address, tls.credentials()) if tls else grpc.insecure_channel(address)
    request = gnmi.GetRequest(encoding=gnmi.ENCODINGS["JSON"])
    path = request.path.add()
    for name in ("interfaces", "interface", "state"):
        path.elem.add(name=name)
    get = channel.unary_unary(
        f"/{gnmi.SERVICE}/Get", gnmi.GetRequest.SerializeToString, gnmi.GetResponse.FromString
    )
    try:
        told = get(request, timeout=_TIMEOUT_S)
    except grpc.RpcError:
        return None
    finally:
        channel.close()
    states = [json.loads(update.val.json_val) for each in told.notification for update in each.update]
    found = (
        (int(state["id"]), PortEnds.of(state.get("description", ""), state.get("oper-status", "UP")))
        for state in states
    )
    return dict(sorted(found))
