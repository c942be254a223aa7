"""The slot of a packet as a C function: by what threads divide packets (`softswitch.compiler.slots`).

It looks at no ``struct p4_packet``: what it needs of the frame it reads where the parser would take it from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE
from softswitch.compiler.ir.walk import Path
from softswitch.compiler.slots import (
    Argument,
    Atom,
    Chosen,
    Definition,
    FieldValue,
    Found,
    FoundSlots,
    Hash,
    Hit,
    KeyLookup,
    OneThread,
    Port,
    Search,
    SlotChoice,
    SlotFlows,
    SlotPlace,
    TakenBranch,
    field_offset,
    header_type,
)
from softswitch.engine.emit_c.blocks import open_body, pattern_tests
from softswitch.engine.emit_c.expressions import load_bytes
from softswitch.engine.emit_c.statements import BodyWriter
from softswitch.engine.emit_c.tables import action_members, find_call, key_words, param_names, ranged_keys
from softswitch.engine.emit_c.text import Writer, c_integer, class_bits, literal, storage_type
from softswitch.engine.emit_c.unit import Translation
from softswitch.engine.entries import TableEntries, TableLayout

SLOTS = """\
static void p4_slots(struct p4_pipeline *s, const struct p4_arrival *arrivals, uint32_t count,
                     uint64_t *slots)
{
    for (uint32_t i = 0; i < count; i++)
        slots[i] = slot_of(s, arrivals[i].frame, arrivals[i].length, arrivals[i].port);
}
"""

FETCH_SLOT = """\
static void p4_fetch_slot(struct p4_pipeline *s, const uint8_t *frame, uint32_t length, uint16_t port)
{
    uint64_t slot = slot_of(s, frame, length, port);
    if (slot < @size@)
        p4_fetch_lines(&s->@group@[slot], sizeof s->@group@[slot]);
}
"""

Division = FoundSlots | SlotFlows | OneThread


def emit_slots(unit: Translation, division: Division, tables: list[TableLayout], out: Writer) -> list[str]:
    """Write what ``struct p4_program`` says about threads, and return the lines of its initializer."""
    if isinstance(division, OneThread):
        return [f"    .one_thread = {json.dumps(division.why)},"]
    if isinstance(division, SlotFlows):
        return []
    numbers = {layout.table.name: number for number, layout in enumerate(tables)}
    with out.block("static int p4_divides(const struct p4_pipeline *s)"):
        out.line("(void)s;")
        empty = [f"s->tables[{numbers[name]}].entries == 0" for name in division.empty]
        out.line(f"return {' && '.join(empty) or '1'};")
    out.line()
    parameters = "struct p4_pipeline *s, const uint8_t *frame, uint32_t length, uint16_t port"
    with out.block(f"P4_INLINE uint64_t slot_of({parameters})"):
        out.line("(void)s, (void)frame, (void)length, (void)port;")
        _SlotFunction(unit, division, tables, numbers, open_body(unit, out, (), leave="")).write()
    out.line()
    out.lines += [*SLOTS.splitlines(), ""]
    members = ["    .slots = p4_slots,", "    .divides = p4_divides,"]
    if not unit.registers.groups:  # slots of meters
        return members
    # Registers of the slot are side by side; others hold little.
    group = max(unit.registers.groups, key=lambda group: len(group.registers))
    text = FETCH_SLOT.replace("@group@", group.name).replace("@size@", str(group.size))
    out.lines += [*text.splitlines(), ""]
    return [*members, "    .fetch_slot = p4_fetch_slot,"]


class _SlotFunction:
    """Writes the body of the function."""

    def __init__(
        self,
        unit: Translation,
        slots: FoundSlots,
        tables: list[TableLayout],
        numbers: Mapping[str, int],
        body: BodyWriter,
    ) -> None:
        self._unit = unit
        self._slots = slots
        self._tables = tables
        self._numbers = numbers
        self._body = body
        self._out = body.out
        self._headers = {
            each.header for each in slots.definitions.values() if isinstance(each, FieldValue | TakenBranch)
        }
        body.expressions.locals.update({name: name for name in slots.definitions})

    def write(self) -> None:
        """Find the headers, then compute one definition after the other."""
        types = self._slots.types
        for name, definition in self._slots.definitions.items():
            if isinstance(definition, FieldValue | TakenBranch):
                self._out.line(f"{storage_type(types[name])} {name} = 0;")
        if self._headers:
            self._search(self._slots.search)
            self._out.line()
            self._out.line("found:;")
        for name, definition in self._slots.definitions.items():
            if not isinstance(definition, FieldValue | TakenBranch):
                self._define(name, definition, types[name])
        self._out.line(f"return {self._body.expressions.text(self._slots.index)};")

    # ----------------------------------------------------------------- the frame

    def _search(self, search: Search) -> None:
        out = self._out
        match search:
            case Found(headers):
                self._end(dict(headers))
            case SlotChoice(least, shorter, subjects, cases, none):
                if least:  # bytes
                    with out.block(f"if (length < {least})"):
                        self._end(dict(shorter.headers))
                texts = [self._subject(subject) for subject in subjects]
                for patterns, way in cases:
                    tests = pattern_tests(patterns, texts)
                    if not tests:
                        self._search(way)
                        return
                    with out.block(f"if ({' && '.join(tests)})"):
                        self._search(way)
                self._end(dict(none.headers))

    def _end(self, headers: Mapping[Path, int]) -> None:
        """Load what was found, and leave the search."""
        if self._slots.guarded and len(headers) < len(self._headers):
            self._out.line("return P4_NO_SLOT;")
            return
        for name, definition in self._slots.definitions.items():
            match definition:
                case FieldValue(header, field) if header in headers:
                    type_ = self._slots.types[name]
                    at = 8 * headers[header] + field_offset(header_type(self._unit.program, header), field)
                    text = _bits(SlotPlace(at, ir.width_of(type_)))
                    self._out.line(f"{name} = ({storage_type(type_)}){text};")
                case TakenBranch(header) if header in headers:
                    self._out.line(f"{name} = 1;")
                case _:
                    pass
        self._out.line("goto found;")

    def _subject(self, subject: SlotPlace | ir.Const) -> tuple[str, ir.Type]:
        if isinstance(subject, ir.Const):
            return literal(subject.value, ir.width_of(subject.type)), subject.type
        return _bits(subject), ir.Bits(subject.width)

    # ----------------------------------------------------------------- values

    def _define(self, name: str, definition: Definition, type_: ir.Scalar) -> None:
        out, expressions = self._out, self._body.expressions
        match definition:
            case KeyLookup(table, keys):
                self._look_up(name, self._tables[self._numbers[table]], keys)
                return
            case Hash(algorithm, base, data, maximum):
                out.line(f"{storage_type(type_)} {name} = 0;")
                args = ((ir.Var(type_, name, pos=NOWHERE),), (algorithm,), (base,), data, (maximum,))
                self._body.statement(ir.Extern("hash", "", args, pos=NOWHERE))
                return
            case Port():
                text = "port"
            case Hit(lookup):
                text = f"hit_{_name(lookup)}"
            case Chosen(lookup):
                text = f"action_{_name(lookup)}"
            case Argument(lookup, action, parameter):
                text = self._argument(_name(lookup), action, parameter)
            case ir.Unary() | ir.Binary() | ir.Cast() | ir.Slice() | ir.Mux():
                text = expressions.text(definition)
            case _:
                raise TypeError(f"not a value of a slot: {definition}")
        out.line(f"const {storage_type(type_)} {name} = ({storage_type(type_)})({text});")

    def _argument(self, lookup: str, action: str, parameter: str) -> str:
        definition = self._slots.definitions[lookup]
        assert isinstance(definition, KeyLookup)
        layout = self._tables[self._numbers[definition.table]]
        if layout.kind == "code":
            return self._of_code(lookup, action, parameter)
        member = action_members(layout)[layout.actions.index(action)]
        return f"args_{lookup}->{member}.{param_names(self._unit, action)[parameter]}"

    def _of_code(self, lookup: str, action: str, parameter: str) -> str:
        return f"{lookup}_{self._unit.action_names[action]}_{param_names(self._unit, action)[parameter]}"

    def _look_up(self, name: str, layout: TableLayout, keys: tuple[Atom, ...]) -> None:
        out, table = self._out, self._unit.table_names[layout.table.name]
        default = f"s->default_{table}"
        asked = replace(
            layout,
            parts=tuple(
                replace(part, key=replace(part.key, expr=key))
                for part, key in zip(layout.parts, keys, strict=True)
            ),
        )
        if layout.kind == "code":
            self._decide(name, asked)
            return
        if layout.kind == "none":
            out.line(
                f"const uint32_t hit_{name} = 0, action_{name} = {default}.match.action;",
                f"const union {table}_args *args_{name} = &{default}.args;",
            )
        else:
            words = ", ".join(key_words(self._body, asked))
            out.line(f"const uint64_t key_{name}[{layout.words}] = {{{words}}};")
            ranged = ranged_keys(self._body, asked)
            if layout.kind == "ordered":
                out.line(
                    f"const p4_u128 ranged_{name}[{max(1, len(ranged))}] = {{{', '.join(ranged) or '0'}}};"
                )
            find = find_call(layout, table, self._numbers[layout.table.name], f"key_{name}", f"ranged_{name}")
            out.line(
                f"const struct {table}_entry *entry_{name} = {find};",
                f"const uint32_t hit_{name} = entry_{name} != NULL;",
                f"const uint32_t action_{name} = hit_{name} ? entry_{name}->match.action"
                f" : {default}.match.action;",
                f"const union {table}_args *args_{name} ="
                f" hit_{name} ? &entry_{name}->args : &{default}.args;",
            )
        out.line(f"(void)hit_{name}, (void)action_{name}, (void)args_{name};")

    def _decide(self, name: str, layout: TableLayout) -> None:
        """A table of constant entries: its decision, with the arguments that are asked for."""
        out, program = self._out, self._unit.program
        table = self._unit.table_names[layout.table.name]
        asked: dict[str, list[tuple[str, str]]] = {}
        for each in self._slots.definitions.values():
            if isinstance(each, Argument) and _name(each.lookup) == name:
                text = self._of_code(name, each.action, each.parameter)
                asked.setdefault(each.action, []).append((each.parameter, text))
                params = {param.name: param for param in program.actions[each.action].params}
                out.line(f"{storage_type(params[each.parameter].type)} {text} = 0;")
        out.line(f"uint32_t hit_{name} = 0, action_{name} = s->default_{table}.match.action;")
        for action, wanted in asked.items():
            member = action_members(layout)[layout.actions.index(action)]
            with out.block(f"if (action_{name} == {layout.actions.index(action)})"):
                for parameter, text in wanted:
                    out.line(
                        f"{text} = s->default_{table}.args.{member}."
                        f"{param_names(self._unit, action)[parameter]};"
                    )
        keys = []
        for number, part in enumerate(layout.parts):
            text = self._body.expressions.text(part.key.expr)
            out.line(
                f"const {c_integer(class_bits(part.width))} key_{name}_{number} = {text};",
                f"(void)key_{name}_{number};",
            )
            keys.append((f"key_{name}_{number}", ir.Bits(part.width)))
        for entry in TableEntries(program, layout.table).ordered():
            tests = [f"!hit_{name}", *pattern_tests(entry.patterns, keys)]
            with out.block(f"if ({' && '.join(tests)})"):
                out.line(
                    f"hit_{name} = 1;",
                    f"action_{name} = {layout.actions.index(entry.invocation.action)};",
                )
                chosen = program.actions[entry.invocation.action].params
                values = {p.name: (p, v) for p, v in zip(chosen, entry.invocation.args, strict=True)}
                for parameter, text in asked.get(entry.invocation.action, ()):
                    param, value = values[parameter]
                    out.line(
                        f"{text} = ({storage_type(param.type)}){literal(value, ir.width_of(param.type))};"
                    )
        out.line(f"(void)hit_{name}, (void)action_{name};")


def _name(atom: Atom) -> str:
    assert isinstance(atom, ir.Var)
    return atom.name


def _bits(place: SlotPlace) -> str:
    """Return bits of the frame as C, at most 64 with those beside them in their first and last byte."""
    first, last = place.offset // 8, (place.offset + place.width - 1) // 8
    count, behind = last - first + 1, 7 - (place.offset + place.width - 1) % 8
    text = load_bytes(f"frame + {first}", count, class_bits(8 * count))
    if behind:
        text = f"({text} >> {behind})"
    if place.offset % 8:
        text = f"({text} & {literal(-1, place.width)})"
    return text
