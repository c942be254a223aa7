"""Writing and reading DigestEntry; the lists of digests, and what becomes of them (sections 9.6 and 16.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import tables
from softswitch.p4runtime.data import encode_data
from softswitch.p4runtime.errors import AlreadyExists, InvalidArgument, NotFound
from softswitch.p4runtime.schema import Digest
from softswitch.p4runtime.state import Bundle, Subscription, Timeout


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Subscribe to a digest, change how its lists are sent, or end it."""
    digest = _digest(bundle, message.digest_id)
    config = message.config
    if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
        raise InvalidArgument(f"times and sizes of '{digest.name}' are 0 or more")
    there = digest.id in bundle.digests
    match kind:
        case p4.Update.INSERT if there:
            raise AlreadyExists(f"digest '{digest.name}' is subscribed to already; modify it")
        case p4.Update.INSERT:
            bundle.digests[digest.id] = Subscription(_copy(message))
        case p4.Update.MODIFY | p4.Update.DELETE if not there:
            raise NotFound(f"digest '{digest.name}' has no subscription; insert it")
        case p4.Update.MODIFY:
            bundle.digests[digest.id].entry = _copy(message)
        case p4.Update.DELETE:
            del bundle.digests[digest.id]
        case _:
            raise InvalidArgument("the update has no type; it must be INSERT, MODIFY or DELETE")


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one subscription or (id 0) all of them."""
    if request.digest_id != 0:
        _digest(bundle, request.digest_id)
    for id_, subscription in bundle.digests.items():
        if request.digest_id in (0, id_):
            yield _copy(subscription.entry)


def acknowledge(bundle: Bundle, message: Any) -> None:
    """Forget a list that the controller has; one that is forgotten already is no error."""
    subscription = bundle.digests.get(_digest(bundle, message.digest_id).id)
    if subscription is not None:
        subscription.sent.pop(message.list_id, None)


def due(bundle: Bundle, now_ns: int) -> Iterator[Any]:
    """Take the digests that the program has sent, and yield the lists to send; the switch is locked."""
    ids = {digest.name: digest.id for digest in bundle.schema.digests.values()}
    for name, values in bundle.pipeline.take_digests():
        subscription = bundle.digests.get(ids[name])
        if subscription is not None:
            data = bundle.program.digests[name].data
            subscription.offer(encode_data(data, iter(values)), now_ns)
    for subscription in bundle.digests.values():
        yield from subscription.due(now_ns)


def _digest(bundle: Bundle, id_: int) -> Digest:
    if id_ not in bundle.schema.digests:
        raise InvalidArgument(bundle.schema.describe_unknown("digest", id_))
    return bundle.schema.digests[id_]


def _copy(message: Any) -> Any:
    copy = p4.DigestEntry()
    copy.CopyFrom(message)
    return copy


DIGEST_INTERVAL_S = 0.01
"""Time from look to look at the program's digests."""

_SHORTEST_S, _LONGEST_S = 0.01, 1.0


def interval_s(bundle: Bundle | None) -> float | None:
    """Return how soon to look again; None: there is nothing to look for."""
    if bundle is None or not (bundle.digests or bundle.timeouts):
        return None
    if bundle.digests:
        return DIGEST_INTERVAL_S
    shortest = min(timeout.timeout_ns for timeout in list(bundle.timeouts.values()))
    return min(max(shortest / 1e9 / 4, _SHORTEST_S), _LONGEST_S)


def look(bundle: Bundle) -> Iterator[Any]:
    """Yield a StreamMessageResponse for each list of digests and for idle entries; the switch is locked."""
    now_us = bundle.now_us()
    if bundle.digests:
        for digest in due(bundle, 1000 * now_us):
            yield p4.StreamMessageResponse(digest=digest)
    idle = [
        tables.encoded(bundle, table, timeout.entry)
        for (table, _, _), timeout in bundle.timeouts.items()
        if _is_over(bundle, table, timeout, now_us)
    ]
    if idle:
        notification = p4.IdleTimeoutNotification(table_entry=idle, timestamp=1000 * now_us)
        yield p4.StreamMessageResponse(idle_timeout_notification=notification)


def _is_over(bundle: Bundle, table: str, timeout: Timeout, now_us: int) -> bool:
    """Return True, once after each hit, if an entry has been idle for its time."""
    last_us = bundle.pipeline.read_last_hit(table, timeout.entry)
    if 1000 * (now_us - last_us) < timeout.timeout_ns or timeout.told_us == last_us:
        return False
    timeout.told_us = last_us
    return True
