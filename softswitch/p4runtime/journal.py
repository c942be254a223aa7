"""Changes that controllers make to tables, reported entry by entry to listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import tables
from softswitch.p4runtime.errors import RequestError
from softswitch.p4runtime.state import Bundle

_KINDS: Mapping[int, Literal["INSERT", "MODIFY", "DELETE"]] = {
    p4.Update.INSERT: "INSERT",
    p4.Update.MODIFY: "MODIFY",
    p4.Update.DELETE: "DELETE",
}


@dataclass(frozen=True, slots=True)
class Written:
    """An entry that was written, or (LOAD) a program, which takes all entries of the one before along.

    `match` has the exact fields of the key by name, `params` those of the action; of an entry that was
    deleted, all is as it was. `client` is gRPC's name of the peer, with the name in its certificate.
    """

    kind: Literal["INSERT", "MODIFY", "DELETE", "LOAD"]
    client: str
    table: str = ""
    match: Mapping[str, int] | None = None
    params: Mapping[str, int] | None = None
    metadata: bytes = b""


Journal = Callable[[Written], None]
"""Gets each of them once it is done."""


def prepare(bundle: Bundle, updates: Sequence[Any], client: str) -> list[Written | None]:
    """Return the log entry of each update if it succeeds, before any is applied; None: it is of no table."""
    return [_written(bundle, update, client) for update in updates]


def client_of(context: Any) -> str:
    """Name who is at the other end of a request."""
    name = b", ".join(context.auth_context().get("x509_common_name", ())).decode(errors="replace")
    return f"{context.peer()} ({name})" if name else str(context.peer())


def _written(bundle: Bundle, update: Any, client: str) -> Written | None:
    message = update.entity.table_entry
    if not update.entity.HasField("table_entry") or message.is_default_action or update.type not in _KINDS:
        return None
    table = bundle.schema.tables.get(message.table_id)
    if table is None:
        return None
    if update.type == p4.Update.DELETE:
        try:
            found = tables.before(bundle, message)
        except RequestError:  # which the write will tell
            return None
        if not found:
            return None
        message = found[0]
    fields = {field.id: field.name for field in table.fields}
    action = bundle.schema.actions.get(message.action.action.action_id)
    params = {param.id: param.name for param in action.params} if action else {}
    return Written(
        _KINDS[update.type],
        client,
        table.name,
        {
            fields[m.field_id]: int.from_bytes(m.exact.value, "big")
            for m in message.match
            if m.field_id in fields and m.HasField("exact")
        },
        {
            params[p.param_id]: int.from_bytes(p.value, "big")
            for p in message.action.action.params
            if p.param_id in params
        },
        bytes(message.metadata),
    )
