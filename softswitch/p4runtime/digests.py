"""Writing and reading DigestEntry; the lists of digests, and what becomes of them (sections 9.6 and 16.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime.data import encode_data
from softswitch.p4runtime.errors import AlreadyExists, InvalidArgument, NotFound
from softswitch.p4runtime.schema import Digest
from softswitch.p4runtime.state import Bundle, Subscription


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
