"""Apply files with table entries: JSON as in p4lang/tutorials, or commands of simple_switch_CLI.

======================  =======================================================================
``NAME.json``           ``table_entries``, ``multicast_group_entries`` and ``clone_session_entries``,
                        with the keys of the tutorials' ``s1-runtime.json``; the program's location
                        (``p4info``, ``bmv2_json``) is ignored
any other name          one command per line: ``table_add TABLE ACTION KEY… => VALUE… [PRIORITY]``,
                        ``table_set_default TABLE ACTION VALUE…``, and the commands of
                        `softswitch.stf.script`;
                        ``#`` starts a comment. Commands that only show information do nothing.
======================  =======================================================================

Values are numbers (decimal, ``0x…``, ``0b…``), IPv4, IPv6 and MAC addresses.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from softswitch.compiler import ir
from softswitch.engine.entries import has_priorities
from softswitch.stf.control import Control, find, key_named, tables_of
from softswitch.stf.script import (
    COMMANDS,
    Add,
    ScriptCommand,
    ScriptError,
    ScriptOperand,
    SetDefault,
    parse_script,
)

SHOWS = re.compile(
    r"(table_(dump|info|num)\w*|show_\w+|port_info|help|switch_info|get_\w+|mc_dump|act_prof_dump)$"
)
"""Commands that only show information: they do nothing here."""
_FIRST = 1 << 24
"""Largest priority number that BMv2's own interface allows; there, the smallest number wins."""
_MAC = re.compile(r"[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}")

_Setting = Callable[[Control], object]
"""Applies one entry of a file to a switch."""
_Read = Iterator[tuple[str, Callable[[], _Setting]]]
"""For each entry of a file: its position in the file, and a function that parses the entry."""
_LINE = 0
"""Line number for the script's classes: unused, as errors of this module name the position in the file."""


class RuntimeFileError(Exception):
    """A file with table entries is malformed, or does not fit the program; the message names the position."""

    exit_code = 2


def configure(path: Path, control: Control) -> None:
    """Apply a file with table entries to a switch.

    Raises RuntimeFileError or OSError. Entries in front of an invalid entry stay applied.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    settings = (_json if path.suffix == ".json" else _commands)(path, text, control.program)
    for where, read in settings:
        try:
            read()(control)
        except ScriptError as error:
            raise RuntimeFileError(f"{path}: {where}: {error.message}") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RuntimeFileError(f"{path}: {where}: {type(error).__name__}: {error}") from error


# --------------------------------------------------------------------------- commands


def _commands(path: Path, text: str, program: ir.Program) -> _Read:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words and not SHOWS.match(words[0]):
            yield f"line {number}", partial(_command, words, program)


def _command(words: Sequence[str], program: ir.Program) -> _Setting:
    match words:
        case ["table_add", table, action, *rest]:
            adding = _added(program, table, action, rest)
            return lambda control: control.add(adding)
        case ["table_set_default", table, action, *values]:
            name = find("table", table, tables_of(program), _LINE)
            setting = SetDefault(_LINE, name, action, _given(program, name, action, values))
            return lambda control: control.set_default(setting)
        case [command, *_] if command in COMMANDS:
            (found,) = parse_script(" ".join(words))
            assert isinstance(found, ScriptCommand)
            return lambda control: control.command(found)
    known = ", ".join(("table_add", "table_set_default", *COMMANDS))
    raise ScriptError(f"{words[0]!r} with {len(words) - 1} arguments; want one of {known}", _LINE)


def _added(program: ir.Program, table: str, action: str, rest: Sequence[str]) -> Add:
    name = find("table", table, tables_of(program), _LINE)
    described = program.tables[name]
    split = rest.index("=>") if "=>" in rest else len(rest)
    keys, values = rest[:split], list(rest[split + 1 :])
    if len(keys) != len(described.keys):
        raise ScriptError(f"{len(keys)} keys for table {name}; it has {len(described.keys)}", _LINE)
    priority = None
    if has_priorities(described):
        if not values:
            raise ScriptError(f"table {name} needs a priority, after the action's values", _LINE)
        priority = _number(values.pop(), 24, "priority")
    matches = zip(
        (key.name for key in described.keys),
        map(_operand, described.keys, keys),
        strict=True,
    )
    urgency = None if priority is None else _FIRST - priority
    return Add(_LINE, name, urgency, _closed(matches), action, _given(program, name, action, values))


def _operand(key: ir.Key, text: str) -> ScriptOperand | None:
    width, what = ir.width_of(key.expr.type), f"key {key.name}"
    if key.match == "lpm":
        value, slash, length = text.partition("/")
        if not slash:
            raise ScriptError(f"{text!r} for {what}, which is lpm: want VALUE/LENGTH", _LINE)
        return ScriptOperand(_number(value, width, what), 0, 0, _number(length, 16, what))
    for sign, mark in (("ternary", "&&&"), ("range", "->")):
        if key.match == sign:
            first, found, second = text.partition(mark)
            if not found:
                raise ScriptError(f"{text!r} for {what}, which is {sign}: want A{mark}B", _LINE)
            return _pair(key, _number(first, width, what), _number(second, width, what))
    return ScriptOperand(_number(text, width, what), 0, 0)


def _pair(key: ir.Key, first: int, second: int) -> ScriptOperand | None:
    """Return the operand for two numbers given for `key`: the ends of a range, or a value and its mask.

    Return None for a mask of 0: the key then matches any value.
    """
    if key.match == "range":
        return ScriptOperand(first, 0, 0, high=second)
    return ScriptOperand(first & second, second, 1) if second else None


def _given(
    program: ir.Program, table: str, action: str, values: Sequence[object]
) -> tuple[tuple[str, int], ...]:
    """Return the (name, value) pairs of an action's parameters; `values` are in the parameters' order."""
    own = {ir.plain_name(ref.action): ref.action for ref in program.tables[table].actions}
    described = program.actions[own[find("action", action, own, _LINE)]]
    if len(values) != len(described.params):
        wanted = ", ".join(param.name for param in described.params) or "none"
        raise ScriptError(f"{len(values)} values for action {described.name}; it takes {wanted}", _LINE)
    pairs = zip(described.params, values, strict=True)
    return tuple(
        (param.name, _number(value, ir.width_of(param.type), f"parameter {param.name}"))
        for param, value in pairs
    )


def _closed(matches: Any) -> tuple[tuple[str, ScriptOperand], ...]:
    return tuple((name, operand) for name, operand in matches if operand is not None)


def _number(value: object, width: int, what: str) -> int:
    """Parse a number or address of `width` bits; `what` names it in errors. Raises ScriptError."""
    number: object = value
    if isinstance(value, str):
        try:
            if _MAC.fullmatch(value):
                number = int(re.sub("[:-]", "", value), 16)
            elif ":" in value or value.count(".") == 3:
                number = int(ipaddress.ip_address(value))
            else:
                number = int(value, 0 if value[:2].lower() in ("0x", "0b") else 10)
        except ValueError:
            number = None
    if not isinstance(number, int):
        raise ScriptError(f"{what} is {value!r}; want a number or an address", _LINE)
    if not -(1 << (width - 1)) <= number < 1 << width:
        raise ScriptError(f"{what} is {value}, which does not fit in its {width} bits", _LINE)
    return number & ((1 << width) - 1)


# --------------------------------------------------------------------------- JSON


def _json(path: Path, text: str, program: ir.Program) -> _Read:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise RuntimeFileError(f"{path}: the file is not JSON: {error}") from error
    if not isinstance(document, dict) or not _KINDS.keys() & document.keys():
        raise RuntimeFileError(f"{path}: want an object with {', '.join(_KINDS)}")
    for kind, read in _KINDS.items():
        for number, entry in enumerate(document.get(kind, ())):
            yield f"{kind}[{number}]", partial(read, program, entry)


def _table_entry(program: ir.Program, entry: Mapping[str, Any]) -> _Setting:
    name = find("table", entry["table"], tables_of(program), _LINE)
    described = program.tables[name]
    action = entry["action_name"]
    params = entry.get("action_params") or {}
    own = {ir.plain_name(ref.action): ref.action for ref in described.actions}
    widths = {
        param.name: ir.width_of(param.type)
        for param in program.actions[own[find("action", action, own, _LINE)]].params
    }
    args = tuple(
        (each, _number(_single(value), widths.get(each, 128), f"parameter {each}"))
        for each, value in params.items()
    )
    if entry.get("default_action"):
        setting = SetDefault(_LINE, name, action, args)
        return lambda control: control.set_default(setting)
    keys = {key.name: key for key in described.keys}
    matches = []
    for written, value in (entry.get("match") or {}).items():
        key = keys[key_named(written, list(keys), name, _LINE)]
        matches.append((key.name, _matched(key, value)))
    priority = entry.get("priority")
    if has_priorities(described) and (not isinstance(priority, int) or priority < 1):
        raise ScriptError(f"priority is {priority!r}; table {name} needs a priority of 1 or more", _LINE)
    adding = Add(_LINE, name, priority and priority - 1, _closed(matches), action, args)
    return lambda control: control.add(adding)


def _matched(key: ir.Key, value: object) -> ScriptOperand | None:
    width, what = ir.width_of(key.expr.type), f"key {key.name}"
    if key.match in ("lpm", "ternary", "range"):
        if not isinstance(value, list) or len(value) != 2:
            raise ScriptError(f"{what} is {value!r}; it is {key.match}: want a list of two values", _LINE)
        first = _number(value[0], width, what)
        if key.match == "lpm":
            return ScriptOperand(first, 0, 0, _number(value[1], 16, what))
        return _pair(key, first, _number(value[1], width, what))
    return ScriptOperand(_number(_single(value), width, what), 0, 0)


def _single(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _group(program: ir.Program, entry: Mapping[str, Any]) -> _Setting:
    group, members = int(entry["multicast_group_id"]), _replicas(entry)
    return lambda control: control.replication.set_multicast_group(group, members)


def _session(program: ir.Program, entry: Mapping[str, Any]) -> _Setting:
    session, members = int(entry["clone_session_id"]), _replicas(entry)
    cut = int(entry.get("packet_length_bytes", 0))
    return lambda control: control.replication.set_clone_session(session, members, cut)


def _replicas(entry: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(int(each["egress_port"]), int(each.get("instance", 0))) for each in entry["replicas"]]


_KINDS = {
    "table_entries": _table_entry,
    "multicast_group_entries": _group,
    "clone_session_entries": _session,
}
