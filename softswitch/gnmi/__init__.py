"""gNMI for the embedded switch, read-only: its ports, and whether its program or entries have changed.

Ports are interfaces of OpenConfig (openconfig-interfaces, openconfig-p4rt). The leaves `boot-time` and
`writes` change whenever the program or its entries may have changed.

::

    interfaces/interface[name=1]/config/   name, type, enabled, id
    interfaces/interface[name=1]/state/    the same, description, ifindex, admin-status, oper-status
                                 counters/ in-pkts, in-octets, in-discards, in-errors, out-…
    system/state/boot-time                 nanoseconds since 1970 (openconfig-system)
    p4runtime/state/writes                 requests so far that may have changed the program or its entries
                                           (ina-p4runtime, a model of this project)

A port's `name` and `id` (which P4Runtime uses) are both its number. The description is the port's
attachment: ``udp:127.0.0.1:27001``, followed by its peer if it has one, ``shm:PATH``, ``if:NAME``,
``cpu`` or ``memory``.

Clients can read the leaves once or by polls (Capabilities, Get, Subscribe); they cannot set any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from p4src.messages import gnmi
from softswitch.engine.ports import InterfacePort, PortSpec, PortStatistics, SharedPort, UdpPort
from softswitch.engine.switch import Switch

Leaf = str | int | bool
Tree = dict[str, "Leaf | Tree"]
"""Nodes by name. The list `interface` maps each key, a port's number as text, to the port's nodes."""

MODELS = (
    ("openconfig-interfaces", "OpenConfig working group", "3.0.0"),
    ("openconfig-p4rt", "OpenConfig working group", "1.0.0"),
    ("openconfig-system", "OpenConfig working group", "2.0.0"),
    ("ina-p4runtime", "INA", "1.0.0"),
)
"""Name, organisation and version of each YANG model whose leaves this service offers."""

LISTS = {"interface": "name"}
"""Names of the lists in a tree, with the name of each list's key."""
WIDE = frozenset(
    f"{way}-{what}" for way in ("in", "out") for what in ("pkts", "octets", "discards", "errors")
) | {"boot-time", "writes"}
"""Leaves of 64 bits, which JSON_IETF encodes as text."""
_ETHERNET = "iana-if-type:ethernetCsmacd"


def tree(switch: Switch, *, booted_ns: int, writes: int) -> Tree:
    """Return the leaves of a switch with their present values.

    Args:
        switch: The switch.
        booted_ns: The switch's start time, in nanoseconds since 1970.
        writes: Number of requests so far that may have changed the switch's program or entries.
    """
    return {
        "interfaces": {"interface": {str(number): _interface(switch, number) for number in switch.ports}},
        "system": {"state": {"boot-time": booted_ns}},
        "p4runtime": {"state": {"writes": writes}},
    }


def _interface(switch: Switch, number: int) -> Tree:
    common: Tree = {"name": str(number), "type": _ETHERNET, "enabled": True, "id": number}
    spec = switch.ports[number]
    state: Tree = {
        **common,
        "description": attachment(switch, number, spec),
        "ifindex": number,
        "admin-status": "UP",
        "oper-status": "UP" if _is_up(spec) else "DOWN",
        "counters": _counters(switch.statistics(number)),
    }
    return {"name": str(number), "config": dict(common), "state": state}


def attachment(switch: Switch, number: int, spec: PortSpec) -> str:
    """Return the attachment of a port as text, such as ``udp:127.0.0.1:27001``."""
    match spec:
        case UdpPort(peer=peer):
            host, port = switch.port_address(number)
            return f"udp:{host}:{port}" + (f" peer {host}:{peer}" if peer else "")
        case SharedPort():
            return f"shm:{switch.shared_path(number)}"
        case InterfacePort(name):
            return f"if:{name}"
        case _:
            return "cpu" if spec.cpu else "memory"


def _is_up(spec: PortSpec) -> bool:
    if not isinstance(spec, InterfacePort):
        return True
    try:
        return Path("/sys/class/net", spec.name, "operstate").read_text().strip() in ("up", "unknown")
    except OSError:
        return False


def _counters(of: PortStatistics) -> Tree:
    return {
        "in-pkts": of.rx_packets,
        "in-octets": of.rx_bytes,
        "in-discards": of.rx_lost + of.rx_queue_full + of.rx_socket_full + of.rx_no_program + of.rx_stranger,
        "in-errors": of.rx_malformed,
        "out-pkts": of.tx_packets,
        "out-octets": of.tx_bytes,
        "out-discards": of.tx_lost + of.tx_queue_full + of.tx_blocked + of.tx_no_peer,
        "out-errors": of.tx_too_long,
    }


Element = tuple[str, Mapping[str, str]]
"""An element of a path: its name and, for an entry of a list, the values of the list's keys."""
Elements = tuple[Element, ...]
Node = Any
"""A leaf, a tree, or the entries of a list by key."""

ANY, ANYTHING = "*", "..."


class BadPath(ValueError):
    """A path is invalid; the message states why."""


def elements(*paths: Any) -> Elements:
    """Return the elements of all `paths`, such as a prefix and a path, in order. Raises BadPath."""
    found: list[Element] = []
    for path in paths:
        if path.element:
            raise BadPath("the path uses 'element' of gNMI 0.4; use 'elem' instead")
        found += [(each.name, dict(each.key)) for each in path.elem]
    return tuple(found)


def text(path: Elements) -> str:
    """Return a path in its usual text form.

    >>> text((("interfaces", {}), ("interface", {"name": "1"})))
    '/interfaces/interface[name=1]'
    """
    return "/" + "/".join(name + "".join(f"[{k}={v}]" for k, v in keys.items()) for name, keys in path)


def leaves(node: Node, path: Elements) -> Iterator[tuple[Elements, Leaf]]:
    """Yield a (path, leaf) pair for each leaf of `node`; `path` is the path of `node`."""
    if not isinstance(node, dict):
        yield path, node
        return
    for at, child in _children(node, path):
        yield from leaves(child, at)


def select(node: Node, path: Elements, at: Elements = ()) -> Iterator[tuple[Elements, Node]]:
    """Yield a (path, node) pair for each node that `path` selects below `node`, which is at `at`.

    Raises BadPath if `path` has a key that the list does not have.
    """
    if not path:
        yield at, node
        return
    if not isinstance(node, dict):
        return
    (name, keys), rest = path[0], path[1:]
    if name == ANYTHING:
        yield from select(node, rest, at)
        for below, child in _children(node, at):
            yield from select(child, path, below)
        return
    for below, child in _children(node, at):
        found, found_keys = below[-1]
        if name not in (ANY, found):
            continue
        if unknown := keys.keys() - found_keys.keys():
            raise BadPath(f"{found} has no key {min(unknown)!r} ({text((*at, (name, keys)))})")
        if all(value in (ANY, found_keys[key]) for key, value in keys.items()):
            yield from select(child, rest, below)


def _children(node: Tree, at: Elements) -> Iterator[tuple[Elements, Node]]:
    for name, child in node.items():
        if name in LISTS and isinstance(child, dict):
            for key, entry in child.items():
                yield (*at, (name, {LISTS[name]: key})), entry
        else:
            yield (*at, (name, {})), child


VERSION = "0.10.0"
_ENCODINGS = ("JSON", "PROTO", "JSON_IETF")
_JSON, _PROTO, _IETF = (gnmi.ENCODINGS[name] for name in _ENCODINGS)
_TOP = {"system": "openconfig-system", "p4runtime": "ina-p4runtime"}
"""YANG modules of top nodes; other nodes belong to the module `_INTERFACES`."""
_INTERFACES = "openconfig-interfaces"
_MODULES = {"id": "openconfig-p4rt"}
_LEFT_OUT = {1: "state", 2: "config", 3: "config"}
"""Containers to leave out, by the type of data that a Get requests."""
_READ_ONLY = "this switch's ports are set by --port when the switch starts; gNMI can only read them"


def handlers(switch: Switch, writes: Callable[[], int]) -> Any:
    """Return the handlers of gNMI's methods, for a gRPC server that may have other services, too.

    Args:
        switch: The switch.
        writes: Returns the number of requests so far that may have changed the switch's program or entries.
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
    """Decode a SubscribeRequest; return None if it is invalid.

    No error is raised: gRPC would not end the stream after an error raised here.
    """
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
                    "want one list of subscriptions first and then, with mode POLL only, polls",
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
        return list(select(now, elements(prefix, path)))
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
        update.val.json_ietf_val = _json(node, at, ietf=True)
    else:
        update.val.json_val = _json(node, at, ietf=False)


def _set_scalar(value: Any, leaf: Leaf) -> None:
    if isinstance(leaf, bool):
        value.bool_val = leaf
    elif isinstance(leaf, int):
        value.uint_val = leaf
    else:
        value.string_val = leaf


def _json(node: Node, at: Elements, *, ietf: bool) -> bytes:
    def plain(name: str, of: Node, *, top: bool) -> Any:
        if not isinstance(of, dict):
            return str(of) if ietf and name in WIDE else of
        return {
            _qualified(child, at, top) if ietf else child: (
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
