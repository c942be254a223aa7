"""P4Info: the control plane's view of a program.

Ids equal p4c's (tests compare them): the top byte is the resource type (P4Runtime specification, section
6.3), the lower bytes are the Jenkins one-at-a-time hash of the name, incremented while the id is taken; names
get their ids in sorted order. ``@id`` overrides the hash. The alias is the shortest suffix of the name, in
whole components, that no other object has.

P4Info's `type_info` has the types of digests' and registers' data, and the program's ``type`` declarations.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from p4src.messages import p4info_pb2
from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, unescape
from softswitch.compiler.frontend.lexer import integer, tokenize

_Ids = p4info_pb2.P4Ids
_MATCH_TYPES = {
    "exact": p4info_pb2.MatchField.EXACT,
    "lpm": p4info_pb2.MatchField.LPM,
    "ternary": p4info_pb2.MatchField.TERNARY,
    "range": p4info_pb2.MatchField.RANGE,
    "optional": p4info_pb2.MatchField.OPTIONAL,
}
_SCOPES = {
    "": p4info_pb2.ActionRef.TABLE_AND_DEFAULT,
    "table_only": p4info_pb2.ActionRef.TABLE_ONLY,
    "default_only": p4info_pb2.ActionRef.DEFAULT_ONLY,
}
_UNITS = {
    "packets": p4info_pb2.CounterSpec.PACKETS,
    "bytes": p4info_pb2.CounterSpec.BYTES,
    "packets_and_bytes": p4info_pb2.CounterSpec.BOTH,
}
# Annotations with fields of their own in P4Info.
_REPRESENTED = frozenset(["name", "id", "brief", "description", "max_group_size"])

_PACKAGE_TEXTS = frozenset(["name", "version", "arch", "organization", "contact", "url"])

_VALUE_FIELDS = {str: "string_value", int: "int64_value", bool: "bool_value"}

_METER_UNITS = {"packets": p4info_pb2.MeterSpec.PACKETS, "bytes": p4info_pb2.MeterSpec.BYTES}

_Object = (
    ir.Table
    | ir.Action
    | ir.Counter
    | ir.RegisterArray
    | ir.ControllerHeader
    | ir.ActionProfile
    | ir.Meter
    | ir.Digest
)
_Item = TypeVar("_Item", bound=_Object)


def _ids(prefix: int, objects: Mapping[str, _Object]) -> dict[str, int]:
    """Return the ids of all objects of one kind by name; `prefix` is the top byte. Raises CompileError."""
    ids: dict[str, int] = {}
    taken: dict[int, str] = {}
    for name, item in objects.items():
        given = _number(item.annotations, "id", 32, item.pos)
        if given is None:
            continue
        if given >> 24 not in (0, prefix):
            raise CompileError(
                f"@id({given:#x}) of '{name}' has the prefix of another kind of object",
                item.pos,
                f"an id below 2^24 or between {prefix << 24:#x} and {(prefix << 24) + 0xFFFFFF:#x}",
            )
        ids[name] = given & 0xFFFFFF | prefix << 24
        if ids[name] in taken:
            raise CompileError(f"'{name}' and '{taken[ids[name]]}' have the same @id({given:#x})", item.pos)
        taken[ids[name]] = name
    for name in sorted(objects.keys() - ids.keys()):
        value = _hash(name)
        while (prefix << 24 | value & 0xFFFFFF) in taken:
            value += 1
        ids[name] = prefix << 24 | value & 0xFFFFFF
        taken[ids[name]] = name
    return ids


class Export:
    """The export of one program: ids, aliases, and the P4Info made with them."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._info = p4info_pb2.P4Info()
        plain = {name: table for name, table in program.tables.items() if ir.plain_name(name) == name}
        objects: dict[int, Mapping[str, _Object]] = {
            _Ids.TABLE: {name: table for name, table in plain.items() if not table.value_set},
            _Ids.ACTION_PROFILE: program.action_profiles,
            _Ids.CONTROLLER_HEADER: {each.type_name: each for each in program.controller_headers.values()},
            _Ids.VALUE_SET: {name: table for name, table in program.tables.items() if table.value_set},
            _Ids.ACTION: _actions(program),
            _Ids.COUNTER: _of_tables(program.counters, direct=False),
            _Ids.DIRECT_COUNTER: _of_tables(program.counters, direct=True),
            _Ids.REGISTER: program.register_arrays,
            _Ids.METER: _of_tables(program.meters, direct=False),
            _Ids.DIRECT_METER: _of_tables(program.meters, direct=True),
            _Ids.DIGEST: program.digests,
        }
        self._ids = {prefix: _ids(prefix, of_kind) for prefix, of_kind in objects.items()}
        named = (of_kind for prefix, of_kind in objects.items() if prefix != _Ids.CONTROLLER_HEADER)
        self._aliases = _aliases({*program.tables, *itertools.chain(*named)})

    def message(self) -> p4info_pb2.P4Info:
        """Return the P4Info. Raises CompileError for the reasons listed at `softswitch.compiler.p4info`."""
        program, info = self._program, self._info
        info.pkg_info.arch = program.architecture
        _describe(info.pkg_info, program.annotations)
        for table in _visible(program.tables.values()):
            if table.value_set:
                self._value_set(info.value_sets.add(), table)
            elif table.name in self._ids[_Ids.TABLE]:
                self._table(info.tables.add(), table)
        for action in _visible(_actions(program).values()):
            self._action(info.actions.add(), action)
        for profile in _visible(program.action_profiles.values()):
            self._profile(info.action_profiles.add(), profile)
        for counter in _visible(program.counters.values()):
            message = self._cells(
                (info.counters, info.direct_counters), (_Ids.COUNTER, _Ids.DIRECT_COUNTER), counter
            )
            message.spec.unit = _UNITS[counter.unit]
        for meter in _visible(program.meters.values()):
            message = self._cells((info.meters, info.direct_meters), (_Ids.METER, _Ids.DIRECT_METER), meter)
            message.spec.unit = _METER_UNITS[meter.unit]
        for register in _visible(program.register_arrays.values()):
            message = info.registers.add(size=register.size)
            self._preamble(message.preamble, register, _Ids.REGISTER)
            self._data(message.type_spec, register.data)
        for digest in program.digests.values():
            message = info.digests.add()
            self._preamble(message.preamble, digest, _Ids.DIGEST)
            self._data(message.type_spec, digest.data)
        for header in program.controller_headers.values():
            self._controller_header(info.controller_packet_metadata.add(), header)
        return info

    def _cells(self, messages: tuple[Any, Any], kinds: tuple[int, int], item: ir.Counter | ir.Meter) -> Any:
        """Add the counter or meter `item` to one of two lists of messages, and return the new message.

        The first of `messages` is the list of arrays, the second is the list of direct counters or meters;
        `kinds` are the resource types of both.
        """
        if item.table is None:
            message = messages[0].add(size=item.size)
        else:
            message = messages[1].add(direct_table_id=self._ids[_Ids.TABLE][item.table])
        self._preamble(message.preamble, item, kinds[item.table is not None])
        return message

    def _field(self, fields: Any, id_: int, name: str, item: ir.Key | ir.Param) -> Any:
        """Add a match field, an action parameter or packet metadata to `fields`, and return it.

        If the type of `item` has a ``@p4runtime_translation``, that annotation gives the new field's width.
        """
        type_ = item.expr.type if isinstance(item, ir.Key) else item.type
        field = fields.add(id=id_, name=name, bitwidth=ir.width_of(type_))
        if item.named is not None:
            self._named(item.named)
            if (new := self._program.new_types.get(item.named.name)) is not None:
                field.type_name.name = new.name
                field.bitwidth = new.width or field.bitwidth
        _annotate(field, item.annotations)
        return field

    def _data(self, message: Any, data: ir.DataType) -> None:
        """Fill in `message`, a ``P4DataTypeSpec``, and describe the named types in it."""
        match data.kind:
            case "bits" | "bool":
                assert isinstance(data.scalar, ir.Bits | ir.Bool)
                _describe_scalar(message, data.scalar)
            case "error":
                assert isinstance(data.scalar, ir.Enum)
                message.error.SetInParent()
                self._info.type_info.error.members[:] = data.scalar.members
            case "tuple":
                for _, member in data.members:
                    self._data(message.tuple.members.add(), member)
            case kind:
                getattr(message, kind).name = data.name
                self._named(data)

    def _named(self, data: ir.DataType) -> None:
        """Describe a type in P4Info's `type_info`."""
        types = self._info.type_info
        match data.kind:
            case "struct" if data.name not in types.structs:
                described = types.structs[data.name]
                for name, member in data.members:
                    self._data(described.members.add(name=name).type_spec, member)
            case "header" if data.name not in types.headers:
                described = types.headers[data.name]
                for name, scalar in data.leaves():
                    part = described.members.add(name=name).type_spec
                    signed = isinstance(scalar, ir.Bits) and scalar.signed
                    (part.int if signed else part.bit).bitwidth = ir.width_of(scalar)
            case "enum" if data.name not in types.enums:
                for name, _ in data.values:
                    types.enums[data.name].members.add(name=name)
            case "serializable_enum" if data.name not in types.serializable_enums:
                assert isinstance(data.scalar, ir.Bits)
                described = types.serializable_enums[data.name]
                described.underlying_type.bitwidth = data.scalar.width
                for name, value in data.values:
                    described.members.add(name=name, value=_bytes(value, data.scalar))
            case "new_type":
                self._new_type(types.new_types[data.name], self._program.new_types[data.name])

    def _new_type(self, message: Any, new: ir.NewType) -> None:
        _annotate(message, [note for note in new.annotations if note.name != "p4runtime_translation"])
        if new.uri:
            message.translated_type.uri = new.uri
            message.translated_type.sdn_bitwidth = new.width
        else:
            _describe_scalar(message.original_type, new.type)

    def _profile(self, message: Any, profile: ir.ActionProfile) -> None:
        self._preamble(message.preamble, profile, _Ids.ACTION_PROFILE)
        users = [table for table in self._program.tables.values() if table.implementation == profile.name]
        message.table_ids.extend(self._ids[_Ids.TABLE][table.name] for table in users)
        message.with_selector = profile.selector
        message.size = profile.size
        # 0 without the annotation: then only `size` limits the groups
        message.max_group_size = _number(profile.annotations, "max_group_size", 31, profile.pos) or 0

    def _controller_header(self, message: Any, header: ir.ControllerHeader) -> None:
        message.preamble.id = self._ids[_Ids.CONTROLLER_HEADER][header.type_name]
        message.preamble.name = message.preamble.alias = header.name
        _annotate(message.preamble, header.annotations)
        for field_id, param in _numbered(header.fields, header.pos):
            self._field(message.metadata, field_id, param.name, param)

    def _value_set(self, message: Any, table: ir.Table) -> None:
        self._preamble(message.preamble, table, _Ids.VALUE_SET)
        for field_id, key in enumerate(table.keys, start=1):
            self._field(message.match, field_id, key.name, key).match_type = _MATCH_TYPES[key.match]
        message.size = table.size

    def _preamble(self, preamble: Any, item: _Object, kind: int) -> None:
        preamble.id = self._ids[kind][item.name]
        preamble.name = item.name
        preamble.alias = self._aliases[item.name]
        _annotate(preamble, item.annotations)

    def _table(self, message: Any, table: ir.Table) -> None:
        self._preamble(message.preamble, table, _Ids.TABLE)
        for field_id, key in _numbered(table.keys, table.pos):
            if key.match == "selector":
                continue  # the control plane cannot match on it
            field = self._field(message.match_fields, field_id, key.name, key)
            if key.match in _MATCH_TYPES:
                field.match_type = _MATCH_TYPES[key.match]
            else:
                field.other_match_type = key.match
        if table.implementation:
            message.implementation_id = self._ids[_Ids.ACTION_PROFILE][table.implementation]
        for ref in table.actions:
            id_ = self._ids[_Ids.ACTION].get(ir.plain_name(ref.action))
            if id_ is not None:  # skip the group action, which the control plane does not see
                _annotate(message.action_refs.add(id=id_, scope=_SCOPES[ref.scope]), ref.annotations)
        self._initial_default(message.initial_default_action, table.default, table.pos)
        if table.const_default:
            message.const_default_action_id = message.initial_default_action.action_id
        for kind, name in (
            (_Ids.DIRECT_COUNTER, table.direct_counter),
            (_Ids.DIRECT_METER, table.direct_meter),
        ):
            if name is not None:
                message.direct_resource_ids.append(self._ids[kind][name])
        if table.idle_timeout:
            message.idle_timeout_behavior = p4info_pb2.Table.NOTIFY_CONTROL
        message.size = table.size
        message.is_const_table = table.const_entries
        message.has_initial_entries = bool(table.entries)

    def _initial_default(self, message: Any, default: ir.Invocation, pos: ir.Position) -> None:
        message.action_id = self._ids[_Ids.ACTION][ir.plain_name(default.action)]
        params = self._program.actions[default.action].params
        for (param_id, param), value in zip(_numbered(params, pos), default.args, strict=True):
            message.arguments.add(param_id=param_id, value=_bytes(value, param.type))

    def _action(self, message: Any, action: ir.Action) -> None:
        self._preamble(message.preamble, action, _Ids.ACTION)
        for param_id, param in _numbered(action.params, action.pos):
            names = [unescape(note.body) for note in param.annotations if note.name == "name"]
            self._field(message.params, param_id, names[0] if names else param.name, param)


def _bytes(value: int, type_: ir.Bits | ir.Bool) -> bytes:
    """Return a value in P4Runtime's encoding: two's complement if negative, in as few bytes as possible."""
    unsigned = value & (1 << ir.width_of(type_)) - 1
    return unsigned.to_bytes(max(1, (unsigned.bit_length() + 7) // 8), "big")


def _describe_scalar(message: Any, type_: ir.Bits | ir.Bool) -> None:
    match type_:
        case ir.Bool():
            message.bool.SetInParent()
        case ir.Bits(width, signed=True):
            message.bitstring.int.bitwidth = width
        case ir.Bits(width):
            message.bitstring.bit.bitwidth = width


_Cells = TypeVar("_Cells", ir.Counter, ir.Meter)


def _of_tables(cells: Mapping[str, _Cells], *, direct: bool) -> dict[str, _Cells]:
    return {name: item for name, item in cells.items() if (item.table is not None) == direct}


def _actions(program: ir.Program) -> dict[str, ir.Action]:
    """Return, by name, the actions that the control plane sees: those of tables or called by controls.

    As with p4c, these are not the actions that only actions call, nor any with a ``#`` in the name, and those
    of no table have no parameters.
    """
    of_tables = {ir.plain_name(ref.action) for table in program.tables.values() for ref in table.actions}
    return {
        **program.called_actions,
        **{name: action for name, action in program.actions.items() if name in of_tables},
    }


def _visible(items: Iterable[_Item]) -> Iterator[_Item]:
    return (item for item in items if not any(note.name == "hidden" for note in item.annotations))


def _annotate(message: Any, annotations: Iterable[ir.Annotation]) -> None:
    for note in annotations:
        if note.name in ("brief", "description"):
            setattr(message.doc, note.name, unescape(note.body))
        if note.elements is not None:
            _add_structured(message.structured_annotations.add(name=note.name), note.elements)
        elif note.name not in _REPRESENTED:
            message.annotations.append(f"@{note.name}({note.body})" if note.body else f"@{note.name}")


def _add_structured(message: Any, elements: Iterable[tuple[str, int | str | bool]]) -> None:
    """Fill in `message`, a ``StructuredAnnotation``."""
    pairs, expressions = message.kv_pair_list.kv_pairs, message.expression_list.expressions
    for key, value in elements:
        expression = pairs.add(key=key).value if key else expressions.add()
        setattr(expression, _VALUE_FIELDS[type(value)], value)


def _describe(package: Any, annotations: Sequence[ir.Annotation]) -> None:
    """Fill in the package's ``@pkginfo[name = "…", …]`` and ``@platform_property[…]``."""
    numbers = package.platform_properties.DESCRIPTOR.fields_by_name
    for note in annotations:
        for key, value in note.elements or ():
            if note.name == "pkginfo" and key in _PACKAGE_TEXTS and isinstance(value, str):
                setattr(package, key, value)
            if note.name == "platform_property" and key in numbers and isinstance(value, int):
                setattr(package.platform_properties, key, value)
    _annotate(package, [note for note in annotations if note.name not in ("pkginfo", "platform_property")])


def _number(annotations: Iterable[ir.Annotation], name: str, bits: int, pos: ir.Position) -> int | None:
    """Return the number in the annotation `name`, such as ``@id(32w5)``; None without the annotation.

    Raises CompileError unless the number is positive and has at most `bits` bits.
    """
    for note in annotations:
        if note.name == name:
            token, *rest = tokenize(note.body, pos.file)
            value = integer(token)[0] if token.kind == "number" and len(rest) == 1 else 0
            if not 0 < value < 1 << bits:
                raise CompileError(
                    f"@{name} does not take {note.body!r}", pos, f"a positive {bits}-bit number"
                )
            return value
    return None


_Part = TypeVar("_Part", ir.Key, ir.Param)


def _numbered(parts: Sequence[_Part], pos: ir.Position) -> list[tuple[int, _Part]]:
    """Return parameters or match fields with their ids: from ``@id``, or else counted from 1."""
    given = [_number(part.annotations, "id", 32, pos) for part in parts]
    taken = {value for value in given if value is not None}
    if len(taken) != len(given) - given.count(None):
        raise CompileError("the same @id is used twice", pos)
    ids, index = [], 1
    for value in given:
        if value is None:
            while index in taken:
                index += 1
            taken.add(index)
            value = index
        else:
            index += 1
        ids.append(value)
    return list(zip(ids, parts, strict=True))


def _hash(name: str) -> int:
    """Return Bob Jenkins's one-at-a-time hash of the name, 32 bits."""
    value = 0
    for byte in name.encode():
        value = (value + byte) & 0xFFFFFFFF
        value = (value + (value << 10)) & 0xFFFFFFFF
        value ^= value >> 6
    value = (value + (value << 3)) & 0xFFFFFFFF
    value ^= value >> 11
    return (value + (value << 15)) & 0xFFFFFFFF


def _aliases(names: Iterable[str]) -> dict[str, str]:
    def suffixes(name: str) -> list[str]:
        parts = name.split(".")
        return [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]

    uses = Counter(suffix for name in set(names) for suffix in suffixes(name))
    return {name: next((s for s in suffixes(name) if uses[s] == 1), name) for name in names}
