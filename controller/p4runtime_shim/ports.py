"""The ports of a running switch, by gNMI at the address of its P4Runtime."""

from __future__ import annotations

import json

import grpc

from controller.p4runtime_shim.tls import Tls
from p4src.messages import gnmi

_TIMEOUT_S = 5.0


def ports_of(address: str, tls: Tls | None = None) -> tuple[int, ...] | None:
    """Return the numbers of a switch's ports, in order; None: it does not tell them, as BMv2 does not."""
    channel = grpc.secure_channel(address, tls.credentials()) if tls else grpc.insecure_channel(address)
    request = gnmi.GetRequest(encoding=gnmi.ENCODINGS["JSON"])
    path = request.path.add()
    for name in ("interfaces", "interface", "state", "id"):
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
    ids = (json.loads(update.val.json_val) for each in told.notification for update in each.update)
    return tuple(sorted(map(int, ids)))
