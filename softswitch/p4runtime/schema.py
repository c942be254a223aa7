"""The objects of a P4Info, indexed by the ids in requests and the names in pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from p4src.messages import p4info_pb2
from softswitch.compiler import ir
from softswitch.p4runtime.errors import InvalidArgument

_MATCH_KINDS = {
    p4info_pb2.MatchField.EXACT: "exact",
    p4info_pb2.MatchField.LPM: "lpm",
    p4info_pb2.MatchField.TERNARY: "ternary",
    p4info_pb2.MatchField.RANGE: "range",
    p4info_pb2.MatchField.OPTIONAL: "optional",
}

_SCOPES = {
    p4info_pb2.ActionRef.TABLE_AND_DEFAULT: "",
    p4info_pb2.ActionRef.TABLE_ONLY: "table_only",
    p4info_pb2.ActionRef.DEFAULT_ONLY: "default_only",
}


@dataclass(frozen=True, slots=True)
class Numbered:
    """An object that P4Runtime messages name by its id."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class FieldInfo(Numbered):
    """One component of a table's key.

    ``@p4runtime_translation`` may make the controller's values wider than the program's key; `beyond` has the
    bits that the key lacks. They match zeros: masks in entries have none of them, masks read have all.
    """

    match: str
    width: int
    beyond: int = 0
    label: str = field(init=False, repr=False, compare=False)
    """The component's name in error messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"match field '{self.name}'")


@dataclass(frozen=True, slots=True)
class ParamInfo(Numbered):
    """A value with a width: a parameter of an action, or metadata of a packet to or from the controller."""

    width: int


@dataclass(frozen=True, slots=True)
class ActionInfo(Numbered):
    """An action and its parameters in order."""

    params: tuple[ParamInfo, ...]
    labels: list[str] = field(init=False, repr=False, compare=False)
    """Names of the parameters in error messages, in order."""

    def __post_init__(self) -> None:
        labels = [f"parameter '{param.name}' of '{self.name}'" for param in self.params]
        object.__setattr__(self, "labels", labels)


@dataclass(frozen=True, slots=True)
class TableSchema(Numbered):
    """A table: its key fields in order, and its actions' scopes by id ("", table_only, default_only)."""

    fields: tuple[FieldInfo, ...]
    actions: Mapping[int, str]
    const_entries: bool
    const_default: bool
    direct_counter: int | None
    size: int
    implementation: int | None = None
    direct_meter: int | None = None
    idle_timeout: bool = False
    decoded: dict[bytes, ir.Invocation] = field(default_factory=dict, repr=False, compare=False)
    """Cache of entries' actions, from serialized ``TableAction`` to invocation: see `translate.called`."""
    takes_priority: bool = field(init=False)
    """True if entries have priorities, as the key has a ternary, range or optional field."""

    def __post_init__(self) -> None:
        takes = any(f.match in ("ternary", "range", "optional") for f in self.fields)
        object.__setattr__(self, "takes_priority", takes)


@dataclass(frozen=True, slots=True)
class ArrayInfo(Numbered):
    """A counter, meter or register of `size` cells, a direct counter or meter of a table, or a digest."""

    size: int = 0
    table: int | None = None


@dataclass(frozen=True, slots=True)
class ProfileInfo(Numbered):
    """An action profile or selector with at most `size` members.

    The weights of a group's members add up to at most `max_group_size` or, if it is 0, to at most `size`.
    """

    size: int
    selector: bool
    max_group_size: int

    @property
    def group_limit(self) -> int:
        """Maximum sum of the members' weights in a group."""
        return self.max_group_size or self.size


Object = TableSchema | ActionInfo | ProfileInfo | ArrayInfo


@dataclass(frozen=True, slots=True)
class Schema:
    """All objects of one P4Info: for each kind, the objects by id."""

    tables: Mapping[int, TableSchema] = field(default_factory=dict)
    actions: Mapping[int, ActionInfo] = field(default_factory=dict)
    counters: Mapping[int, ArrayInfo] = field(default_factory=dict)
    direct_counters: Mapping[int, ArrayInfo] = field(default_factory=dict)
    value_sets: Mapping[int, TableSchema] = field(default_factory=dict)
    profiles: Mapping[int, ProfileInfo] = field(default_factory=dict)
    meters: Mapping[int, ArrayInfo] = field(default_factory=dict)
    direct_meters: Mapping[int, ArrayInfo] = field(default_factory=dict)
    registers: Mapping[int, ArrayInfo] = field(default_factory=dict)
    digests: Mapping[int, ArrayInfo] = field(default_factory=dict)

    def action_named(self, name: str) -> ActionInfo:
        """Return an action by its control-plane name; raise KeyError if there is none."""
        for action in self.actions.values():
            if action.name == name:
                return action
        raise KeyError(name)

    def by_kind(self) -> dict[str, Mapping[int, Object]]:
        """Return, for each kind of object (as error messages name it), the objects by id."""
        return {
            "table": self.tables,
            "action": self.actions,
            "counter": self.counters,
            "direct counter": self.direct_counters,
            "value set": self.value_sets,
            "action profile": self.profiles,
            "meter": self.meters,
            "direct meter": self.direct_meters,
            "register": self.registers,
            "digest": self.digests,
        }

    def find(self, kind: str, id_: int) -> Any:
        """Return the object with this id. Raises InvalidArgument if none of the `kind` has it."""
        found = self.by_kind()[kind].get(id_)
        if found is None:
            raise InvalidArgument(self.describe_unknown(kind, id_))
        return found

    def describe_unknown(self, kind: str, id_: int) -> str:
        """Return the message that `id_` is not the id of a `kind`, with the valid ids."""
        of_kind = self.by_kind()
        for other, objects in of_kind.items():
            if other != kind and id_ in objects:
                return f"0x{id_:08x} is not a {kind} but the {other} '{objects[id_].name}'"
        return f"no {kind} has id 0x{id_:08x}; {listing(kind, of_kind[kind].values())}"


def listing(kind: str, known: Iterable[Object | FieldInfo | ParamInfo]) -> str:
    """Return a list of up to eight valid choices with their ids, as text."""
    choices = list(known)
    if not choices:
        return f"there are no {kind}s"
    shown = ", ".join(
        f"'{k.name}' (0x{k.id:08x})" if k.id > 0xFFFF else f"'{k.name}' ({k.id})" for k in choices[:8]
    )
    more = f" and {len(choices) - 8} more" if len(choices) > 8 else ""
    return f"the {kind}s are {shown}{more}"


def from_p4info(p4info: Any, program: ir.Program) -> Schema:
    """Index a ``p4.config.v1.P4Info`` of `program`. Raises InvalidArgument if it is inconsistent."""
    widths = {
        (table.name, key.name): ir.width_of(key.expr.type)
        for table in program.tables.values()
        for key in table.keys
    }
    direct_counters, direct_meters = _arrays(p4info.direct_counters), _arrays(p4info.direct_meters)
    return Schema(
        tables={t.preamble.id: _table(t, widths, direct_counters, direct_meters) for t in p4info.tables},
        actions={
            a.preamble.id: ActionInfo(
                a.preamble.id, a.preamble.name, tuple(ParamInfo(p.id, p.name, p.bitwidth) for p in a.params)
            )
            for a in p4info.actions
        },
        counters=_arrays(p4info.counters),
        direct_counters=direct_counters,
        profiles={
            a.preamble.id: ProfileInfo(
                a.preamble.id, a.preamble.name, a.size, a.with_selector, a.max_group_size
            )
            for a in p4info.action_profiles
        },
        meters=_arrays(p4info.meters),
        direct_meters=direct_meters,
        registers=_arrays(p4info.registers),
        digests=_arrays(p4info.digests),
        value_sets={v.preamble.id: _value_set(v, widths) for v in p4info.value_sets},
    )


def packet_headers(p4info: Any, program: ir.Program) -> dict[str, tuple[ParamInfo, ...]]:
    """Return the headers between controller and CPU port by name ("packet_in", "packet_out").

    The fields have the widths of `program`: `p4info` has those of ``@p4runtime_translation``.
    """
    return {
        header.name: tuple(
            ParamInfo(metadata.id, metadata.name, ir.width_of(field_.type))
            for metadata, field_ in zip(described.metadata, header.fields, strict=True)
        )
        for header, described in zip(
            program.controller_headers.values(), p4info.controller_packet_metadata, strict=True
        )
    }


def _arrays(found: Any) -> dict[int, ArrayInfo]:
    """Return counters, meters, registers or digests; those of one table have no size, digests neither."""
    return {
        each.preamble.id: ArrayInfo(
            each.preamble.id,
            each.preamble.name,
            getattr(each, "size", 0),
            getattr(each, "direct_table_id", None),
        )
        for each in found
    }


def _fields(owner: str, described: Any, widths: Mapping[tuple[str, str], int]) -> tuple[FieldInfo, ...]:
    """Return the key of a table or value set; the field of a value set of numbers has no name."""
    return tuple(
        FieldInfo(
            f.id,
            f.name or "value",
            _MATCH_KINDS.get(f.match_type, "unsupported"),
            f.bitwidth,
            max(0, (1 << f.bitwidth) - (1 << widths.get((owner, f.name), f.bitwidth))),
        )
        for f in described
    )


def _table(
    table: Any,
    widths: Mapping[tuple[str, str], int],
    direct_counters: Mapping[int, ArrayInfo],
    direct_meters: Mapping[int, ArrayInfo],
) -> TableSchema:
    return TableSchema(
        id=table.preamble.id,
        name=table.preamble.name,
        fields=_fields(table.preamble.name, table.match_fields, widths),
        actions={r.id: _scope(table, r) for r in table.action_refs},
        const_entries=table.is_const_table,
        const_default=table.const_default_action_id != 0,
        direct_counter=next((i for i in table.direct_resource_ids if i in direct_counters), None),
        size=table.size,
        implementation=table.implementation_id or None,
        direct_meter=next((i for i in table.direct_resource_ids if i in direct_meters), None),
        idle_timeout=table.idle_timeout_behavior == p4info_pb2.Table.NOTIFY_CONTROL,
    )


def _scope(table: Any, ref: Any) -> str:
    """Return the scope of one of a table's actions."""
    if ref.scope not in _SCOPES:
        known = ", ".join(map(str, _SCOPES))
        where = f"action 0x{ref.id:08x} of table '{table.preamble.name}'"
        raise InvalidArgument(f"the P4Info has scope {ref.scope} for {where}; scopes are {known}")
    return _SCOPES[ref.scope]


def _value_set(value_set: Any, widths: Mapping[tuple[str, str], int]) -> TableSchema:
    """Return a value set as a table without actions."""
    return TableSchema(
        id=value_set.preamble.id,
        name=value_set.preamble.name,
        fields=_fields(value_set.preamble.name, value_set.match, widths),
        actions={},
        const_entries=False,
        const_default=True,
        direct_counter=None,
        size=value_set.size,
    )


def differences(given: Schema, compiled: Schema) -> list[str]:
    """Compare the P4Info that a controller sent with the compiled program's, object by object, by name.

    Returns the differences; none if both describe the same program. Ids may differ: a controller keeps the
    ids of its own compiler. Controller headers are not compared, as compiled programs do not have them.
    """
    return [
        *_compare("table", _tables_by_name(given), _tables_by_name(compiled)),
        *_compare("action", _actions_by_name(given), _actions_by_name(compiled)),
        *_compare("counter", _cells(given.counters), _cells(compiled.counters)),
        *_compare("direct counter", _names(given.direct_counters), _names(compiled.direct_counters)),
        *_compare("meter", _cells(given.meters), _cells(compiled.meters)),
        *_compare("direct meter", _names(given.direct_meters), _names(compiled.direct_meters)),
        *_compare("register", _cells(given.registers), _cells(compiled.registers)),
        *_compare("digest", _names(given.digests), _names(compiled.digests)),
    ]


def _compare(kind: str, given: Mapping[str, str], compiled: Mapping[str, str]) -> list[str]:
    found = [
        f"{kind} '{name}' is not in the program"
        if name not in compiled
        else f"the P4Info lacks {kind} '{name}'"
        for name in sorted(given.keys() ^ compiled.keys())
    ]
    found += [
        f"{kind} '{name}' has {given[name]} in the P4Info, {compiled[name]} in the program"
        for name in sorted(given.keys() & compiled.keys())
        if given[name] != compiled[name]
    ]
    return found


def _tables_by_name(schema: Schema) -> dict[str, str]:
    return {
        t.name: "key ("
        + ", ".join(f"{f.name}: {f.match} bit<{f.width}>" for f in t.fields)
        + ") and actions ("
        + ", ".join(sorted(schema.actions[a].name for a in t.actions if a in schema.actions))
        + ")"
        for t in schema.tables.values()
    }


def _actions_by_name(schema: Schema) -> dict[str, str]:
    """Describe, by name, the actions that tables may run.

    Actions that no table may run are left out, as compilers differ in whether they list them.
    """
    used = {action for table in schema.tables.values() for action in table.actions}
    return {
        a.name: ("(" + ", ".join(f"bit<{p.width}> {p.name}" for p in a.params) + ")")
        for a in schema.actions.values()
        if a.id in used
    }


def _cells(objects: Mapping[int, ArrayInfo]) -> dict[str, str]:
    return {item.name: f"{item.size} cells" for item in objects.values()}


def _names(objects: Mapping[int, Object]) -> dict[str, str]:
    return {item.name: "" for item in objects.values()}
