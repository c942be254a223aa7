"""Write and read TableEntry, DirectCounterEntry and DirectMeterEntry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.engine.pipeline import BadEntry, EntryExists, NoSuchEntry, PipelineError, TableFull
from softswitch.p4runtime import action_profiles, cells, translate
from softswitch.p4runtime.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RequestError,
    ResourceExhausted,
)
from softswitch.p4runtime.schema import TableSchema
from softswitch.p4runtime.state import Bundle, EntryKey, Timeout

_INSERT, _MODIFY, _DELETE = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE
_NO_ACTION = ir.Invocation("NoAction", ())
_EVERYTHING = p4.TableEntry(counter_data=p4.CounterData(), meter_config=p4.MeterConfig())
"""A read request for all fields that a write can set."""
_MOST_MESSAGES = 1 << 16  # far more entries than a program usually has


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Apply one update of a table entry; on an error the table is unchanged."""
    table = translate.table(bundle.schema, message.table_id)
    deletes = kind == _DELETE  # fields other than the key are ignored
    if message.is_const and not deletes:
        raise InvalidArgument("is_const is set by the switch; leave it false in writes")
    brings_more = not deletes and _brings_resources(message)
    if brings_more:
        _check_resources(table, message)
    entry = None
    if message.is_default_action:
        _write_default(bundle, table, kind, message)
    elif not table.fields:
        raise InvalidArgument(f"'{table.name}' has no key, so it can have only a default entry")
    elif kind == _INSERT:
        entry = _insert(bundle, table, message)
    elif kind == _MODIFY:
        entry = _modify(bundle, table, message)
    elif deletes:
        _delete(bundle, table, message)
        return
    else:
        raise InvalidArgument("the update has no type; it must be INSERT, MODIFY or DELETE")
    if brings_more or table.idle_timeout or table.direct_meter is not None:
        _write_resources(bundle, table, entry, message)


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the entries that a read request selects, of one table or, for table id 0, of all tables."""
    if request.table_id == 0:
        for table in bundle.schema.tables.values():
            yield from _read_table(bundle, table, request, None)
        return
    table = translate.table(bundle.schema, request.table_id)
    patterns = translate.match_key(table, request.match) if request.match else None
    if request.action.WhichOneof("type") not in (None, "action"):
        raise InvalidArgument(f"reads of '{table.name}' can select entries by action_id only")
    yield from _read_table(bundle, table, request, patterns)


def before(bundle: Bundle, message: Any) -> list[Any]:
    """Return, in a list, the entry that a write names, as it is before the write; [] if there is none.

    The entry includes its counter, meter and timeout.
    """
    table = translate.table(bundle.schema, message.table_id)
    if message.is_default_action:
        found = translate.default_entry(bundle.schema, table, bundle.pipeline.default(table.name))
        found.ClearField("is_const")
        _recall(bundle, (table.name, None, 0), found)
        _describe(bundle, table, None, _EVERYTHING, found)
        return [found]
    try:
        entry = bundle.pipeline.find(table.name, _key_only(table, message))
    except (NoSuchEntry, BadEntry):  # the write itself raises the error
        return []
    found = encoded(bundle, table, entry)
    if found.is_const:
        found.ClearField("action")
        found.ClearField("is_const")
    _describe(bundle, table, entry, _EVERYTHING, found)
    return [found]


def encoded(bundle: Bundle, table: TableSchema | str, entry: ir.ConstEntry) -> Any:
    """Encode an entry as it was written, without its counter, its meter and the time since its last hit."""
    if isinstance(table, str):
        table = next(found for found in bundle.schema.tables.values() if found.name == table)
    key = (table.name, entry.patterns, entry.priority)
    message = _action_and_match(bundle, table, entry, bundle.choices.get(key))
    _recall(bundle, key, message)
    if key in bundle.timeouts:
        message.idle_timeout_ns = bundle.timeouts[key].timeout_ns
    return message


def _action_and_match(bundle: Bundle, table: TableSchema, entry: ir.ConstEntry, chosen: Any) -> Any:
    if chosen is not None:
        return translate.table_entry(bundle.schema, table, entry, chosen)
    known = bundle.messages.get((table.name, entry))
    if known is None:
        if len(bundle.messages) >= _MOST_MESSAGES:
            bundle.messages.clear()
        known = bundle.messages[table.name, entry] = translate.table_entry(bundle.schema, table, entry)
    message = p4.TableEntry()
    message.CopyFrom(known)
    return message


def write_direct_meter(bundle: Bundle, kind: int, message: Any) -> None:
    """Set the rates of the meter of one table entry; without a config all packets are green."""
    table = _owner(bundle, message, "meter", kind)
    cells.refuse_counts(message)
    configured = cells.rates(message.config) if message.HasField("config") else None
    bundle.pipeline.configure_direct_meter(table.name, _target(bundle, table, message), configured)


def read_direct_meter(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the direct meters of one entry, of one table's entries or, for table id 0, of all entries."""
    for table, entry, key in _read_direct(bundle, request, "meter"):
        message = p4.DirectMeterEntry(table_entry=key)
        reading = bundle.pipeline.read_direct_meter(table.name, entry)
        cells.describe(message, reading, "config")
        if request.HasField("counter_data"):
            cells.describe_counts(message.counter_data, reading)
        yield message


def write_direct_counter(bundle: Bundle, kind: int, message: Any) -> None:
    """Set the counter of one table entry."""
    table = _owner(bundle, message, "counter", kind)
    entry = _target(bundle, table, message)
    if message.HasField("data"):
        bundle.pipeline.write_direct_counter(table.name, entry, *cells.counts(message.data))


def read_direct_counter(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the direct counters of one entry, of one table's entries or, for table id 0, of all entries."""
    for table, entry, key in _read_direct(bundle, request, "counter"):
        yield p4.DirectCounterEntry(table_entry=key, data=_counter(bundle, table, entry))


def _read_direct(
    bundle: Bundle, request: Any, kind: str
) -> Iterator[tuple[TableSchema, ir.ConstEntry | None, Any]]:
    """Yield (table, entry or None for the default, key) of each direct counter or meter of a request."""
    wanted = request.table_entry
    if wanted.table_id == 0:
        tables = [t for t in bundle.schema.tables.values() if _direct(t, kind) is not None]
    else:
        tables = [_owner(bundle, request, kind)]
    patterns = translate.match_key(tables[0], wanted.match) if wanted.match and wanted.table_id else None
    found = False
    for table in tables:
        if wanted.is_default_action:
            yield table, None, p4.TableEntry(table_id=table.id, is_default_action=True)
            continue
        for entry in bundle.pipeline.entries(table.name):
            if patterns is None or _selects(table, wanted, patterns, entry):
                found = True
                key = encoded(bundle, table, entry)
                key.ClearField("action")
                yield table, entry, key
    if patterns is not None and not found:
        raise NotFound(f"'{tables[0].name}' holds no entry with this match")


def _write_default(bundle: Bundle, table: TableSchema, kind: int, message: Any) -> None:
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"'{table.name}' always has a default entry: it can only be modified")
    if message.match or message.priority:
        raise InvalidArgument(f"the default entry of '{table.name}' takes neither match nor priority")
    if message.idle_timeout_ns:
        raise InvalidArgument(
            f"the default entry of '{table.name}' cannot be idle; leave idle_timeout_ns out"
        )
    resources = message.HasField("counter_data") or message.HasField("meter_config")
    if table.const_default and (message.HasField("action") or not resources):
        raise PermissionDenied(f"the default action of '{table.name}' is constant in the program")
    if message.HasField("action"):
        invocation = translate.invocation(bundle.schema, table, message.action, default=True)
        bundle.pipeline.set_default(table.name, invocation)
        _remember(bundle, table, (table.name, None, 0), message)
    elif not resources:
        bundle.pipeline.set_default(table.name, None)
        bundle.metadata.pop((table.name, None, 0), None)


def _put(
    bundle: Bundle,
    table: TableSchema,
    message: Any,
    put: Callable[[str, ir.ConstEntry], None],
    doing: str,
) -> ir.ConstEntry:
    """Decode the table entry `message`, which has an action, and write it by `put`.

    `put` inserts or modifies an entry of the pipeline; `doing` names that operation in errors.
    """
    patterns, priority = (
        translate.match_key(table, message.match),
        translate.priority(table, message.priority),
    )
    try:
        if table.implementation is None:
            called = translate.called(bundle.schema, table, message.action)
            entry = ir.ConstEntry(patterns, called, priority)
            put(table.name, entry)
        else:
            key = (table.name, patterns, priority)
            with action_profiles.invoked(bundle, table, message.action, key) as called:
                entry = ir.ConstEntry(patterns, called, priority)
                put(table.name, entry)
    except PipelineError as error:
        raise _refusal(error, table, doing) from error
    _remember(bundle, table, (table.name, patterns, priority), message)
    return entry


def _insert(bundle: Bundle, table: TableSchema, message: Any) -> ir.ConstEntry:
    if table.const_entries:
        raise PermissionDenied(f"the entries of '{table.name}' are constant in the program")
    if not message.HasField("action"):
        raise InvalidArgument(f"the new entry of '{table.name}' has no action")
    return _put(bundle, table, message, bundle.pipeline.insert, "insert")


def _refusal(error: PipelineError, table: TableSchema, doing: str) -> RequestError:
    """Return the P4Runtime error for an error of the pipeline; `doing` names the refused operation."""
    match error:
        case EntryExists():
            return AlreadyExists(f"'{table.name}' holds an entry with this match already")
        case TableFull():
            return ResourceExhausted(f"'{table.name}' is full: it has room for {table.size} entries")
        case NoSuchEntry():
            return NotFound(f"'{table.name}' holds no entry with this match to {doing}")
        case BadEntry():
            return InvalidArgument(str(error))
        case _:
            raise error


def _modify(bundle: Bundle, table: TableSchema, message: Any) -> ir.ConstEntry:
    if table.const_entries and message.HasField("action"):
        raise PermissionDenied(
            f"the entries of '{table.name}' are constant; only their counters can be modified"
        )
    if message.HasField("action"):
        return _put(bundle, table, message, bundle.pipeline.modify, "modify")
    return _existing(bundle, table, message)


def _brings_resources(message: Any) -> bool:
    """Return True if an entry sets a counter, a meter or an idle timeout, which few entries do."""
    return bool(
        message.idle_timeout_ns
        or message.HasField("counter_data")
        or message.HasField("meter_config")
        or message.HasField("meter_counter_data")
    )


def _check_resources(table: TableSchema, message: Any) -> None:
    if message.idle_timeout_ns and not table.idle_timeout:
        raise InvalidArgument(
            f"entries of '{table.name}' cannot time out: the table lacks support_timeout = true"
        )
    if message.idle_timeout_ns < 0:
        raise InvalidArgument(f"idle_timeout_ns is {message.idle_timeout_ns}; it is 0 (never) or more")
    if message.HasField("meter_config"):
        if table.direct_meter is None:
            raise InvalidArgument(f"'{table.name}' has no direct meter; leave meter_config out")
        cells.rates(message.meter_config)
    cells.refuse_counts(message, "meter_counter_data")
    if message.HasField("counter_data"):
        if table.direct_counter is None:
            raise InvalidArgument(f"'{table.name}' has no direct counter; leave counter_data out")
        cells.counts(message.counter_data)


def _write_resources(bundle: Bundle, table: TableSchema, entry: ir.ConstEntry | None, message: Any) -> None:
    """Set the counter, the meter and the idle timeout of an entry from `message`.

    A field that is not set leaves the counter as it is, and removes the rates and the timeout.
    """
    if message.HasField("counter_data"):
        bundle.pipeline.write_direct_counter(table.name, entry, *cells.counts(message.counter_data))
    if table.direct_meter is not None:
        rates = cells.rates(message.meter_config) if message.HasField("meter_config") else None
        bundle.pipeline.configure_direct_meter(table.name, entry, rates)
    if table.idle_timeout and entry is not None:
        key = (table.name, entry.patterns, entry.priority)
        bundle.pipeline.write_last_hit(table.name, entry, bundle.now_us())
        bundle.timeouts.pop(key, None)
        if message.idle_timeout_ns:
            bundle.timeouts[key] = Timeout(entry, message.idle_timeout_ns)


def _delete(bundle: Bundle, table: TableSchema, message: Any) -> None:
    if table.const_entries:
        raise PermissionDenied(f"the entries of '{table.name}' are constant in the program")
    entry = _key_only(table, message)
    try:
        bundle.pipeline.delete(table.name, entry)
    except PipelineError as error:
        raise _refusal(error, table, "delete") from error
    key = (table.name, entry.patterns, entry.priority)
    for known in (bundle.metadata, bundle.choices, bundle.timeouts):
        known.pop(key, None)
    action_profiles.release(bundle, table, key)


def _read_table(
    bundle: Bundle, table: TableSchema, request: Any, patterns: tuple[ir.Pattern, ...] | None
) -> Iterator[Any]:
    if request.is_default_action:
        message = translate.default_entry(bundle.schema, table, bundle.pipeline.default(table.name))
        _recall(bundle, (table.name, None, 0), message)
        _describe(bundle, table, None, request, message)
        yield message
        return
    for entry in bundle.pipeline.entries(table.name):
        if patterns is not None and entry.patterns != patterns:
            continue
        message = encoded(bundle, table, entry)
        if not _passes(request, message):
            continue
        _describe(bundle, table, entry, request, message)
        yield message


def _describe(
    bundle: Bundle, table: TableSchema, entry: ir.ConstEntry | None, request: Any, message: Any
) -> None:
    """Fill in those fields of `message` that the read request asks for: counter, meter and idle time."""
    if request.HasField("counter_data") and table.direct_counter is not None:
        message.counter_data.CopyFrom(_counter(bundle, table, entry))
    if table.direct_meter is not None:
        reading = bundle.pipeline.read_direct_meter(table.name, entry)
        if request.HasField("meter_config"):
            cells.describe(message, reading, "meter_config")
        if request.HasField("meter_counter_data"):
            cells.describe_counts(message.meter_counter_data, reading)
    if request.HasField("time_since_last_hit") and table.idle_timeout and entry is not None:
        idle_us = max(0, bundle.now_us() - bundle.pipeline.read_last_hit(table.name, entry))
        message.time_since_last_hit.elapsed_ns = 1000 * idle_us


def _passes(request: Any, message: Any) -> bool:
    """Return True if the entry `message` passes the filters of a read request.

    A field of the request with its default value filters nothing.
    """
    wanted = request.action.action.action_id
    return (
        request.priority in (0, message.priority)
        and wanted in (0, message.action.action.action_id)
        and request.metadata in (b"", message.metadata)
        and request.controller_metadata in (0, message.controller_metadata)
    )


def _selects(table: TableSchema, key: Any, patterns: tuple[ir.Pattern, ...], entry: ir.ConstEntry) -> bool:
    return entry.patterns == patterns and (not table.takes_priority or key.priority in (0, entry.priority))


def _key_only(table: TableSchema, message: Any) -> ir.ConstEntry:
    return ir.ConstEntry(
        translate.match_key(table, message.match), _NO_ACTION, translate.priority(table, message.priority)
    )


def _existing(bundle: Bundle, table: TableSchema, message: Any) -> ir.ConstEntry:
    try:
        return bundle.pipeline.find(table.name, _key_only(table, message))
    except NoSuchEntry as error:
        raise NotFound(f"'{table.name}' holds no entry with this match") from error


def _owner(bundle: Bundle, message: Any, kind: str, update: int = _MODIFY) -> TableSchema:
    """Return the table of a direct counter or meter; `kind` is "counter" or "meter".

    Raises InvalidArgument, also for an `update` of another type than MODIFY.
    """
    if not message.HasField("table_entry"):
        raise InvalidArgument(f"the direct {kind} entry has no table_entry, which selects the {kind}")
    table = translate.table(bundle.schema, message.table_entry.table_id)
    if _direct(table, kind) is None:
        raise InvalidArgument(f"'{table.name}' has no direct {kind}")
    if update != _MODIFY:
        raise InvalidArgument(f"a direct {kind} exists as long as its entry; the only update type is MODIFY")
    return table


def _direct(table: TableSchema, kind: str) -> int | None:
    return table.direct_counter if kind == "counter" else table.direct_meter


def _target(bundle: Bundle, table: TableSchema, message: Any) -> ir.ConstEntry | None:
    """Return the entry that owns the direct counter or meter in `message`; None: the default entry."""
    if message.table_entry.is_default_action:
        return None
    return _existing(bundle, table, message.table_entry)


def _counter(bundle: Bundle, table: TableSchema, entry: ir.ConstEntry | None) -> Any:
    packets, bytes_ = bundle.pipeline.read_direct_counter(table.name, entry)
    return p4.CounterData(packet_count=packets, byte_count=bytes_)


def _remember(bundle: Bundle, table: TableSchema, key: EntryKey, message: Any) -> None:
    patterns = key[1]
    if patterns is not None and table.implementation is not None:
        bundle.choices[key] = message.action
    if message.metadata or message.controller_metadata:
        bundle.metadata[key] = (message.metadata, message.controller_metadata)
    elif bundle.metadata:
        bundle.metadata.pop(key, None)


def _recall(bundle: Bundle, key: EntryKey, message: Any) -> None:
    if key in bundle.metadata:
        message.metadata, message.controller_metadata = bundle.metadata[key]


def write_value_set(bundle: Bundle, kind: int, message: Any) -> None:
    """Replace the members of a value set."""
    values = _value_set(bundle, message.value_set_id)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"value set '{values.name}' always exists: it can only be modified")
    if len(message.members) > values.size:
        raise ResourceExhausted(
            f"{len(message.members)} members for '{values.name}', whose size is {values.size}"
        )
    member = ir.Invocation(f"{values.name}#member", ())
    patterns = [translate.match_key(values, given.match) for given in message.members]
    if len(set(patterns)) < len(patterns):
        raise InvalidArgument(f"a member of '{values.name}' appears twice")
    for entry in bundle.pipeline.entries(values.name):
        bundle.pipeline.delete(values.name, entry)
    for key in patterns:
        bundle.pipeline.insert(values.name, ir.ConstEntry(key, member, 1))


def read_value_set(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield the members of one value set or, for id 0, of all value sets."""
    if request.value_set_id == 0:
        found = list(bundle.schema.value_sets.values())
    else:
        found = [_value_set(bundle, request.value_set_id)]
    for values in found:
        entry = p4.ValueSetEntry(value_set_id=values.id)
        for member in bundle.pipeline.entries(values.name):
            matches = entry.members.add().match
            for field, pattern in zip(values.fields, member.patterns, strict=True):
                translate.match_field(matches, field, pattern)
        yield entry


def _value_set(bundle: Bundle, id_: int) -> TableSchema:
    if id_ not in bundle.schema.value_sets:
        raise NotFound(bundle.schema.describe_unknown("value set", id_))
    return bundle.schema.value_sets[id_]
