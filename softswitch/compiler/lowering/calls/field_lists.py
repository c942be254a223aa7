"""Field lists: the metadata that a clone, resubmitted or recirculated packet keeps."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.paths import path_of
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Group, Number, Run, Value, parts_of, show

Fields = tuple[tuple[str, ...], ...]

FIRST_LEGACY_LIST = 256
"""Numbers below are those of ``@field_list``, a bit<8>."""


def annotated_lists(meta: t.Type) -> dict[int, Fields]:
    """Return the lists that ``@field_list`` annotations in the metadata make."""
    lists: dict[int, list[tuple[str, ...]]] = {}
    _collect(meta, ("meta",), (), lists)
    return {number: tuple(paths) for number, paths in sorted(lists.items())}


def _collect(
    type_: t.Type, path: tuple[str, ...], numbers: tuple[int, ...], lists: dict[int, list[tuple[str, ...]]]
) -> None:
    fields = t.fields_of(t.base(type_))
    if fields is None or isinstance(t.base(type_), t.HeaderType):
        for number in dict.fromkeys(numbers):
            lists.setdefault(number, []).append(path)
        return
    own = type_.lists if isinstance(type_, t.StructType) else {}
    for name, field in fields.items():
        _collect(field, (*path, name), numbers + own.get(name, ()), lists)


def list_number(body: Body, value: Value, pos: ir.Position) -> ir.Const:
    """Return the argument that names a field list."""
    match value:
        case Number(number) | Run(_, ir.Const(_, number)):
            body.unit.field_lists.setdefault(number, ())
            return ir.Const(ir.Bits(8), number, pos)
        case _:
            raise CompileError(f"{show(value)} as a field list", pos, "a compile-time constant")


def legacy_field_list(body: Body, value: Value, pos: ir.Position) -> ir.Const:
    """Return a field list for the data given to clone3, resubmit or recirculate."""
    paths = tuple(_leaves(value, pos))
    lists = body.unit.field_lists
    for number, known in lists.items():
        if number >= FIRST_LEGACY_LIST and known == paths:
            return ir.Const(t.BIT32, number, pos)
    number = max((FIRST_LEGACY_LIST, *(n + 1 for n in lists)))
    lists[number] = paths
    return ir.Const(t.BIT32, number, pos)


def _leaves(value: Value, pos: ir.Position) -> list[tuple[str, ...]]:
    if isinstance(value, Group):
        return [path for part in value.parts for path in _leaves(part, pos)]
    if isinstance(value, Run) and isinstance(t.base(value.type), t.StructType | t.Tuple):
        return [path for part in parts_of(value, pos) for path in _leaves(part, pos)]
    path = path_of(value.expr) if isinstance(value, Run) else None
    if path is None or path[0] != "meta" or not all(isinstance(name, str) for name in path):
        raise Unsupported(f"{show(value)} in a field list", pos, "fields of the user's metadata")
    return [tuple(str(name) for name in path)]
