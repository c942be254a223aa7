"""The ports of a running switch, by gNMI at the address of its P4Runtime."""

from __future__ import annotations

import json
from dataclasses import dataclass

import grpc

from controller.p4runtime_shim.tls import Tls
from p4src.messages import gnmi

_TIMEOUT_S = 5.0
_UDP, _PEER = "udp:", " peer "


@dataclass(frozen=True, slots=True)
class PortEnds:
    """Both ends of a port's link, as ``host:port``; empty: it is not UDP's, or has no fixed peer."""

    udp: str = ""
    peer: str = ""

    @classmethod
    def of(cls, description: str) -> PortEnds:
        """Return the ends that a port's description tells.

        >>> PortEnds.of("udp:127.0.0.1:47001 peer 127.0.0.1:48001")
        PortEnds(udp='127.0.0.1:47001', peer='127.0.0.1:48001')
        >>> PortEnds.of("if:veth0")
        PortEnds(udp='', peer='')
        """
        if not description.startswith(_UDP):
            return cls()
        udp, _, peer = description.removeprefix(_UDP).partition(_PEER)
        return cls(udp, peer)


def ports_of(address: str, tls: Tls | None = None) -> dict[int, PortEnds] | None:
    """Return a switch's ports by number, in order; None: it does not tell them, as BMv2 does not."""
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
    return dict(sorted((int(state["id"]), PortEnds.of(state.get("description", ""))) for state in states))
