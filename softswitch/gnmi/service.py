"""The gNMI service: ports and changes can be read, once or when polled; nothing can be set."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from p4src.messages import gnmi
from softswitch.engine.switch import Switch
from softswitch.gnmi.interfaces import (
    LISTS,
    MODELS,
    WIDE,
    BadPath,
    Elements,
    Leaf,
    Node,
    Tree,
    elements,
    leaves,
    select,
    text,
    tree,
)

VERSION = "0.10.0"
_ENCODINGS = ("JSON", "PROTO", "JSON_IETF")
_JSON, _PROTO, _IETF = (gnmi.ENCODINGS[name] for name in _ENCODINGS)
_TOP = {"system": "openconfig-system", "p4runtime": "ina-p4runtime"}
"""Modules of top nodes; others are of `_INTERFACES`."""
_INTERFACES = "openconfig-interfaces"
_MODULES = {"id": "openconfig-p4rt"}
_LEFT_OUT = {1: "state", 2: "config", 3: "config"}
"""By the type of data that a Get asks for, the containers that it does not want."""
_READ_ONLY = "the ports of this switch are given when it starts, by --port; gNMI only reads them"


def handlers(switch: Switch, writes: Callable[[], int]) -> Any:
    """Return the handlers of gNMI's methods, for a gRPC server that may have other services, too.

    Args:
        switch: The switch.
        writes: Returns how many requests so far may have changed its program or entries.
    """
    service = _Service(switch, writes)
    unary = grpc.unary_unary_rpc_method_handler
    methods = {
        "Capabilities": unary(
            service.capabilities,
            gnmi.CapabilityRequest.FromString,
            gnmi.CapabilityResponse.SerializeToString,
        ),
        "Get": unary(service.get, gnmi.GetRequest.FromString, gnmi.GetResponse.SerializeToString),
        "Set": unary(service.set, gnmi.SetRequest.FromString, gnmi.SetResponse.SerializeToString),
        "Subscribe": grpc.stream_stream_rpc_method_handler(
            service.subscribe, _decoded, gnmi.SubscribeResponse.SerializeToString
        ),
    }
    return grpc.method_handlers_generic_handler(gnmi.SERVICE, methods)


def _decoded(data: bytes) -> Any:
    """Decode a SubscribeRequest; None if it is none: gRPC takes streams that it cannot decode for alive."""
    try:
        return gnmi.SubscribeRequest.FromString(data)
    except DecodeError:
        return None


class _Service:
    def __init__(self, switch: Switch, writes: Callable[[], int]) -> None:
        self._switch = switch
        self._writes = writes
        self._booted_ns = time.time_ns()

    def _tree(self) -> Tree:
        return tree(self._switch, booted_ns=self._booted_ns, writes=self._writes())

    def capabilities(self, request: Any, context: Any) -> Any:
        response = gnmi.CapabilityResponse(
            gNMI_version=VERSION, supported_encodings=[gnmi.ENCODINGS[name] for name in _ENCODINGS]
        )
        for name, organization, version in MODELS:
            response.supported_models.add(name=name, organization=organization, version=version)
        return response

    def get(self, request: Any, context: Any) -> Any:
        _check(request.encoding, request.use_models, context)
        now = self._tree()
        response = gnmi.GetResponse()
        for path in request.path or [gnmi.Path_()]:
            found = _found(now, request.prefix, path, context)
            if not found:
                where = text(elements(request.prefix, path))
                context.abort(grpc.StatusCode.NOT_FOUND, f"there is nothing at {where}")
            notification = response.notification.add(timestamp=time.time_ns())
            if request.prefix.target:
                notification.prefix.target = request.prefix.target
            for at, node in found:
                wanted = _without(node, _LEFT_OUT.get(request.type))
                if request.encoding == _PROTO:
                    _add_leaves(notification, at, wanted, _PROTO)
                else:
                    _add(notification, at, wanted, request.encoding)
        return response

    def set(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, _READ_ONLY)

    def subscribe(self, requests: Iterable[Any], context: Any) -> Iterator[Any]:
        wanted = None
        for request in requests:
            if request is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is no SubscribeRequest")
            kind = request.WhichOneof("request")
            if wanted is None and kind == "subscribe":
                wanted = request.subscribe
                if wanted.mode == gnmi.SubscriptionList.STREAM:
                    context.abort(
                        grpc.StatusCode.UNIMPLEMENTED, "mode STREAM: this switch has ONCE and POLL only"
                    )
                _check(wanted.encoding, wanted.use_models, context)
            elif wanted is None or kind != "poll" or wanted.mode != gnmi.SubscriptionList.POLL:
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    "want one list of subscriptions first, and with mode POLL polls behind it",
                )
            assert wanted is not None
            yield from self._state(wanted, context)
            yield gnmi.SubscribeResponse(sync_response=True)
            if wanted.mode == gnmi.SubscriptionList.ONCE:
                return

    def _state(self, wanted: Any, context: Any) -> Iterator[Any]:
        now = self._tree()
        for subscription in wanted.subscription:
            notification = gnmi.Notification(timestamp=time.time_ns())
            for at, node in _found(now, wanted.prefix, subscription.path, context):
                _add_leaves(notification, at, node, wanted.encoding)
            if notification.update:
                yield gnmi.SubscribeResponse(update=notification)


def _check(encoding: int, models: Any, context: Any) -> None:
    known = {name for name, _, _ in MODELS}
    if encoding not in (_JSON, _PROTO, _IETF):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"encoding {encoding}: want {', '.join(_ENCODINGS)}")
    for model in models:
        if model.name not in known:
            wanted = ", ".join(sorted(known))
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"model {model.name!r}: want some of {wanted}")


def _found(now: Any, prefix: Any, path: Any, context: Any) -> list[tuple[Elements, Node]]:
    try:
        return select(now, elements(prefix, path))
    except BadPath as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise


def _without(node: Node, left_out: str | None) -> Node:
    if left_out is None or not isinstance(node, dict):
        return node
    return {name: _without(child, left_out) for name, child in node.items() if name != left_out}


def _add_leaves(notification: Any, at: Elements, node: Node, encoding: int) -> None:
    for where, leaf in leaves(node, at):
        _add(notification, where, leaf, encoding)


def _add(notification: Any, at: Elements, node: Node, encoding: int) -> None:
    update = notification.update.add()
    for name, keys in at:
        update.path.elem.add(name=name, key=keys)
    if encoding == _PROTO:
        _set_scalar(update.val, node)
    elif encoding == _IETF:
        update.val.json_ietf_val = _json(node, at, _ietf)
    else:
        update.val.json_val = _json(node, at, lambda name, leaf: leaf)


def _set_scalar(value: Any, leaf: Leaf) -> None:
    if isinstance(leaf, bool):
        value.bool_val = leaf
    elif isinstance(leaf, int):
        value.uint_val = leaf
    else:
        value.string_val = leaf


def _json(node: Node, at: Elements, leaf_of: Callable[[str, Leaf], Leaf]) -> bytes:
    qualified = leaf_of is _ietf

    def plain(name: str, of: Node, *, top: bool) -> Any:
        if not isinstance(of, dict):
            return leaf_of(name, of)
        return {
            _qualified(child, at, top) if qualified else child: (
                [plain("", entry, top=False) for entry in below.values()]
                if child in LISTS
                else plain(child, below, top=False)
            )
            for child, below in of.items()
        }

    return json.dumps(plain(at[-1][0] if at else "", node, top=True)).encode()


def _qualified(name: str, at: Elements, top: bool) -> str:
    root = at[0][0] if at else name
    module = _MODULES.get(name, _TOP.get(root, _INTERFACES) if top else "")
    return f"{module}:{name}" if module else name


def _ietf(name: str, leaf: Leaf) -> Leaf:
    return str(leaf) if name in WIDE else leaf
