"""Names and values of a script, looked up in a program.

Scripts may leave the front of a name away (``tbl`` for ``ingress.tbl``) and write a stack's element
as ``stack$0`` and a validity as ``hdr.valid`` or ``hdr.$valid``: as BMv2's scripts do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from softswitch.compiler import ir
from softswitch.engine.entries import bit_width, has_priorities
from softswitch.stf.script import Add, Operand, ScriptError


def find(what: str, name: str, names: Iterable[str], line: int) -> str:
    """Return the name that is `name` or, as the only one, ends in it.

    Args:
        what: Kind of the object, for error messages.
        name: The name in the script.
        names: The program's names.
        line: Line of the script.

    Raises ScriptError.
    """
    known = list(names)
    if name in known:
        return name
    whole = [other for other in known if other.endswith(f".{name}")]
    found = whole or [other for other in known if other.endswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ScriptError(f"{what} {name!r} may be {' or '.join(found)}", line)
    raise ScriptError(f"no {what} {name!r}; the program has {', '.join(known) or 'none'}", line)


def tables_of(program: ir.Program) -> list[str]:
    """Return the tables that the control plane knows."""
    return [name for name in program.tables if ir.plain_name(name) == name]


def entry_of(program: ir.Program, statement: Add) -> tuple[str, ir.ConstEntry]:
    """Return the table and the entry that a statement adds. Raises ScriptError."""
    name = find("table", statement.table, tables_of(program), statement.line)
    table = program.tables[name]
    given: dict[str, Operand] = {}
    for written, operand in statement.matches:
        given[key_named(written, [key.name for key in table.keys], name, statement.line)] = operand
    patterns = tuple(_pattern(key, given.get(key.name), statement.line) for key in table.keys)
    called = invocation_of(program, table, statement.action, statement.args, statement.line)
    priority = (statement.priority or 0) + 1 if has_priorities(table) else 0
    return name, ir.ConstEntry(patterns, called, priority)


def invocation_of(
    program: ir.Program, table: ir.Table, name: str, args: tuple[tuple[str, int], ...], line: int
) -> ir.Invocation:
    """Return the call of one of a table's actions.

    Args:
        program: The program.
        table: The table.
        name: Name of the action.
        args: Names and values of its parameters.
        line: Line of the script.

    Raises ScriptError.
    """
    own = {ir.plain_name(ref.action): ref.action for ref in table.actions}
    action = program.actions[own[find("action", name, own, line)]]
    given = dict(args)
    values = []
    for param in action.params:
        if param.name not in given:
            raise ScriptError(f"no value for parameter {param.name!r} of {action.name}", line)
        values.append(_value(param.type, given.pop(param.name)))
    if given:
        known = ", ".join(param.name for param in action.params) or "none"
        raise ScriptError(f"{action.name} has no parameter {next(iter(given))!r}; it has {known}", line)
    return ir.Invocation(action.name, tuple(values))


def _value(type_: ir.Type, number: int) -> int:
    if isinstance(type_, ir.Bits) and type_.signed and number >> (type_.width - 1) == 1:
        return number - (1 << type_.width)
    return number


def key_named(name: str, keys: list[str], table: str, line: int) -> str:
    """Return the key of a table that a script's name means.

    Args:
        name: The name in the script.
        keys: The table's keys.
        table: Name of the table, for error messages.
        line: Line of the script.

    Raises ScriptError.
    """
    name = re.sub(r"\$(\d+)", r"[\1]", name)
    valid = re.sub(r"(\.|^)\$?valid$", r"\1$valid$", name)
    for candidate in (name, f"{name}$", valid, f"{name}.$valid$"):
        if candidate in keys:
            return candidate
    ending = [key for key in keys if key.endswith((f".{name}", f".{name}$", f".{valid}"))]
    if len(ending) == 1:
        return ending[0]
    raise ScriptError(f"no key {name!r} in table {table}; it has {', '.join(keys) or 'none'}", line)


def _pattern(key: ir.Key, operand: Operand | None, line: int) -> ir.Pattern:
    width = bit_width(key.expr.type)
    full = (1 << width) - 1
    if operand is None:
        return ir.Pattern("exact", 0) if key.match == "exact" else ir.Pattern("any")
    if operand.value > full:
        raise ScriptError(f"{operand.value:#x} does not fit in the {width} bits of key {key.name}", line)
    if operand.high is not None:
        if key.match != "range" or not operand.value <= operand.high <= full:
            raise ScriptError(f"a range for key {key.name}, which is {key.match} of {width} bits", line)
        return ir.Pattern("range", operand.value, operand.high)
    if key.match == "lpm":
        return _prefix(operand, width, line)
    if operand.prefix is not None:
        raise ScriptError(f"a prefix length for key {key.name}, which is {key.match}", line)
    if key.match == "ternary":
        mask = full if operand.digits == 0 else operand.mask & full
        return ir.Pattern("mask", operand.value & mask, mask)
    if not operand.whole:
        raise ScriptError(f"* in a value for key {key.name}, which is {key.match}", line)
    return ir.Pattern("exact", operand.value)


def _prefix(operand: Operand, width: int, line: int) -> ir.Pattern:
    length = operand.prefix
    if length is None:
        length = width if operand.whole else operand.mask.bit_count()
    if not 0 <= length <= width:
        raise ScriptError(f"a prefix of {length} bits of a key that has {width}", line)
    full = (1 << width) - 1
    mask = full ^ (full >> length)
    return ir.Pattern("mask", operand.value & mask, mask) if mask else ir.Pattern("any")
