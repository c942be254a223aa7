"""Writing and reading TableEntry and DirectCounterEntry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.engine.pipeline import BadEntry, EntryExists, NoSuchEntry, TableFull
from softswitch.p4runtime import action_profiles, decode, encode
from softswitch.p4runtime.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unimplemented,
)
from softswitch.p4runtime.schema import Table
from softswitch.p4runtime.state import Bundle

_NO_ACTION = ir.Invocation("NoAction", ())


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Apply one update of a table entry; on an error the table is as before."""
    table = decode.table(bundle.schema, message.table_id)
    if message.is_const:
        raise InvalidArgument("is_const is set by the switch; leave it false in writes")
    if message.idle_timeout_ns:
        raise Unimplemented(f"idle_timeout_ns is {message.idle_timeout_ns}; entries here never time out")
    if message.HasField("meter_config"):
        raise InvalidArgument(f"'{table.name}' has no direct meter; leave meter_config out")
    if message.HasField("counter_data") and table.direct_counter is None:
        raise InvalidArgument(f"'{table.name}' has no direct counter; leave counter_data out")
    if message.is_default_action:
        _write_default(bundle, table, kind, message)
        return
    if not table.fields:
        raise InvalidArgument(f"'{table.name}' has no key, so it has no entries but its default")
    match kind:
        case p4.Update.INSERT:
            _insert(bundle, table, message)
        case p4.Update.MODIFY:
            _modify(bundle, table, message)
        case p4.Update.DELETE:
            _delete(bundle, table, message)
        case _:
            raise InvalidArgument("the update has no type; it must be INSERT, MODIFY or DELETE")


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the entries that a request selects: of one table or, with id 0, of all."""
    if request.table_id == 0:
        for table in bundle.schema.tables.values():
            yield from _read_table(bundle, table, request, None)
        return
    table = decode.table(bundle.schema, request.table_id)
    patterns = decode.match_key(table, request.match) if request.match else None
    if request.action.WhichOneof("type") not in (None, "action"):
        raise InvalidArgument(f"entries of '{table.name}' can be chosen by action_id only")
    yield from _read_table(bundle, table, request, patterns)


def write_direct_counter(bundle: Bundle, kind: int, message: Any) -> None:
    """Set the counter of one table entry."""
    table = _counted_table(bundle, message)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument("a direct counter lives as long as its entry; it can only be modified")
    entry = _existing(bundle, table, message.table_entry)
    if message.HasField("data"):
        _set_counter(bundle, table, entry, message.data)


def read_direct_counter(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the direct counters of one entry, of one table or (table id 0) of all tables."""
    if request.table_entry.table_id == 0:
        tables = [t for t in bundle.schema.tables.values() if t.direct_counter is not None]
        patterns = None
    else:
        table = _counted_table(bundle, request)
        tables = [table]
        patterns = decode.match_key(table, request.table_entry.match) if request.table_entry.match else None
    found = False
    for table in tables:
        for entry in bundle.pipeline.entries(table.name):
            if patterns is None or _selects(table, request.table_entry, patterns, entry):
                found = True
                chosen = bundle.choices.get((table.name, entry.patterns, entry.priority))
                key = encode.table_entry(bundle.schema, table, entry, chosen)
                key.ClearField("action")
                yield p4.DirectCounterEntry(table_entry=key, data=_counter(bundle, table, entry))
    if patterns is not None and not found:
        raise NotFound(f"'{tables[0].name}' holds no entry with this match")


def _write_default(bundle: Bundle, table: Table, kind: int, message: Any) -> None:
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"'{table.name}' always has a default entry: it can only be modified")
    if message.match or message.priority:
        raise InvalidArgument(f"the default entry of '{table.name}' takes neither match nor priority")
    if table.const_default:
        raise PermissionDenied(f"the default action of '{table.name}' is constant in the program")
    if message.HasField("counter_data"):
        raise Unimplemented(f"the default entry of '{table.name}' has no counter of its own")
    if message.HasField("action"):
        invocation = decode.invocation(bundle.schema, table, message.action, default=True)
        bundle.pipeline.set_default(table.name, invocation)
        _remember(bundle, (table.name, None, 0), message)
    else:
        bundle.pipeline.set_default(table.name, None)
        bundle.metadata.pop((table.name, None, 0), None)


def _entry(bundle: Bundle, table: Table, message: Any) -> ir.ConstEntry:
    """Decode a table entry that has an action."""
    if table.implementation is None:
        called = decode.invocation(bundle.schema, table, message.action, default=False)
    else:
        called = action_profiles.invocation(bundle, table, message.action)
    return ir.ConstEntry(
        decode.match_key(table, message.match), called, decode.priority(table, message.priority)
    )


def _insert(bundle: Bundle, table: Table, message: Any) -> None:
    if table.const_entries:
        raise PermissionDenied(f"the entries of '{table.name}' are constant in the program")
    if not message.HasField("action"):
        raise InvalidArgument(f"the new entry of '{table.name}' has no action")
    entry = _entry(bundle, table, message)
    try:
        bundle.pipeline.insert(table.name, entry)
    except EntryExists as error:
        raise AlreadyExists(f"'{table.name}' holds an entry with this match already") from error
    except TableFull as error:
        raise ResourceExhausted(f"'{table.name}' is full: it has room for {table.size} entries") from error
    except BadEntry as error:
        raise InvalidArgument(str(error)) from error
    _remember(bundle, (table.name, entry.patterns, entry.priority), message)
    if message.HasField("counter_data"):
        _set_counter(bundle, table, entry, message.counter_data)


def _modify(bundle: Bundle, table: Table, message: Any) -> None:
    if table.const_entries and message.HasField("action"):
        raise PermissionDenied(
            f"the entries of '{table.name}' are constant; only their counters can be modified"
        )
    if message.HasField("action"):
        entry = _entry(bundle, table, message)
        try:
            bundle.pipeline.modify(table.name, entry)
        except NoSuchEntry as error:
            raise NotFound(f"'{table.name}' holds no entry with this match to modify") from error
        except BadEntry as error:
            raise InvalidArgument(str(error)) from error
        _remember(bundle, (table.name, entry.patterns, entry.priority), message)
    else:
        entry = _existing(bundle, table, message)
    if message.HasField("counter_data"):
        _set_counter(bundle, table, entry, message.counter_data)


def _delete(bundle: Bundle, table: Table, message: Any) -> None:
    if table.const_entries:
        raise PermissionDenied(f"the entries of '{table.name}' are constant in the program")
    entry = _key_only(table, message)
    try:
        bundle.pipeline.delete(table.name, entry)
    except NoSuchEntry as error:
        raise NotFound(f"'{table.name}' holds no entry with this match to delete") from error
    bundle.metadata.pop((table.name, entry.patterns, entry.priority), None)
    bundle.choices.pop((table.name, entry.patterns, entry.priority), None)


def _read_table(
    bundle: Bundle, table: Table, request: Any, patterns: tuple[ir.Pattern, ...] | None
) -> Iterator[Any]:
    if request.is_default_action:
        message = encode.default_entry(bundle.schema, table, bundle.pipeline.default(table.name))
        _recall(bundle, (table.name, None, 0), message)
        yield message
        return
    for entry in bundle.pipeline.entries(table.name):
        if patterns is not None and entry.patterns != patterns:
            continue
        chosen = bundle.choices.get((table.name, entry.patterns, entry.priority))
        message = encode.table_entry(bundle.schema, table, entry, chosen)
        _recall(bundle, (table.name, entry.patterns, entry.priority), message)
        if not _passes(request, message):
            continue
        if request.HasField("counter_data") and table.direct_counter is not None:
            message.counter_data.CopyFrom(_counter(bundle, table, entry))
        yield message


def _passes(request: Any, message: Any) -> bool:
    """Apply the filters of a read; a field with its default value filters nothing."""
    wanted = request.action.action.action_id
    return (
        request.priority in (0, message.priority)
        and wanted in (0, message.action.action.action_id)
        and request.metadata in (b"", message.metadata)
        and request.controller_metadata in (0, message.controller_metadata)
    )


def _selects(table: Table, key: Any, patterns: tuple[ir.Pattern, ...], entry: ir.ConstEntry) -> bool:
    return entry.patterns == patterns and (not table.takes_priority or key.priority in (0, entry.priority))


def _key_only(table: Table, message: Any) -> ir.ConstEntry:
    return ir.ConstEntry(
        decode.match_key(table, message.match), _NO_ACTION, decode.priority(table, message.priority)
    )


def _existing(bundle: Bundle, table: Table, message: Any) -> ir.ConstEntry:
    wanted = _key_only(table, message)
    for entry in bundle.pipeline.entries(table.name):
        if entry.patterns == wanted.patterns and entry.priority == wanted.priority:
            return entry
    raise NotFound(f"'{table.name}' holds no entry with this match")


def _counted_table(bundle: Bundle, message: Any) -> Table:
    if not message.HasField("table_entry"):
        raise InvalidArgument("the direct counter entry has no table_entry to say which counter")
    table = decode.table(bundle.schema, message.table_entry.table_id)
    if table.direct_counter is None:
        raise InvalidArgument(f"'{table.name}' has no direct counter")
    if message.table_entry.is_default_action:
        raise Unimplemented(f"the default entry of '{table.name}' has no counter of its own")
    return table


def _counter(bundle: Bundle, table: Table, entry: ir.ConstEntry) -> Any:
    packets, bytes_ = bundle.pipeline.read_direct_counter(table.name, entry)
    return p4.CounterData(packet_count=packets, byte_count=bytes_)


def _set_counter(bundle: Bundle, table: Table, entry: ir.ConstEntry, data: Any) -> None:
    if data.packet_count < 0 or data.byte_count < 0:
        raise InvalidArgument(
            f"counters start at 0; got {data.packet_count} packets, {data.byte_count} bytes"
        )
    bundle.pipeline.write_direct_counter(table.name, entry, data.packet_count, data.byte_count)


def _remember(bundle: Bundle, key: tuple[str, tuple[ir.Pattern, ...] | None, int], message: Any) -> None:
    patterns = key[1]
    if patterns is not None and message.action.WhichOneof("type") != "action":
        bundle.choices[key] = message.action
    if message.metadata or message.controller_metadata:
        bundle.metadata[key] = (message.metadata, message.controller_metadata)
    else:
        bundle.metadata.pop(key, None)


def _recall(bundle: Bundle, key: tuple[str, tuple[ir.Pattern, ...] | None, int], message: Any) -> None:
    if key in bundle.metadata:
        message.metadata, message.controller_metadata = bundle.metadata[key]
