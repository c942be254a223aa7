"""The C back end: an `ir.Program` to one C file that implements ``runtime/pipeline.h``.

===============================  ===================================================================
module                           what it writes
===============================  ===================================================================
`emit_c_layout`                  where headers, metadata and variables live
`emit_c_registers`               registers, interleaved by slot
`emit_c_expressions`             expressions
`emit_c_statements`              statements; `emit_c_externs`: calls of externs
`emit_c_roll`, `emit_c_lanes`    loops for what the program repeats lane by lane
`emit_c_wire`                    headers from and to bytes
`emit_c_parser`                  parser and deparser
`emit_c_functions`               actions and blocks
`emit_c_tables`                  tables: entries, lookup, decision code
`emit_c` (here)                  the state of packet and pipeline, and the entry points
===============================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.engine.emit_c_functions import emit_actions, emit_block, find_locals
from softswitch.engine.emit_c_layout import CACHE_LINE, HeaderHome, HeaderLayout, Members, ScalarHome
from softswitch.engine.emit_c_parser import emit_deparser, emit_parser
from softswitch.engine.emit_c_statements import where_name
from softswitch.engine.emit_c_tables import (
    TableLayout,
    declare_table,
    describe_tables,
    emit_apply,
    lay_out_table,
    state_members,
)
from softswitch.engine.emit_c_text import Writer, c_integer, is_wide, storage_bits, storage_type, width_of
from softswitch.engine.emit_c_unit import Unit, make_unit
from softswitch.engine.emit_c_walk import NOWHERE
from softswitch.engine.emit_c_wire import emit_header_functions

REQUESTS = """\
/* What a block has asked of the traffic manager so far. */
struct requests {
    uint32_t clone, clone_session, resubmit, recirculate;
    int32_t clone_fields, resubmit_fields, recirculate_fields;
};
"""

REGISTER = """\
struct p4_register {
    const char *name;
    size_t slots;              /* offset in struct p4_pipeline of the pointer to its slots */
    size_t cell, stride;       /* offset in a slot, size of a slot */
    uint64_t size;
    size_t bytes;
};

struct p4_counter {
    const char *name;
    size_t cells;              /* offset in struct p4_pipeline of the pointer to them */
    uint64_t size;
};
"""


def emit(program: ir.Program) -> str:
    """Return the C text of `program`. Raises Unsupported for what this back end cannot do."""
    unit = make_unit(program)
    tables = [lay_out_table(table) for table in program.tables.values()]
    out = Writer()
    out.line(f"/* Generated from the P4 program {program.name}. */")
    for header in ("pipeline.h", "prelude.h", "tables.h"):
        out.line(f'#include "{header}"')
    out.line()
    for layout in unit.headers.values():
        _declare_header(layout, out)
    for layout in unit.headers.values():
        emit_header_functions(layout, out)
    _declare_packet(unit, out)
    _declare_variables(unit, out)
    unit.registers.declare(out)
    for table in tables:
        declare_table(unit, table, out)
    _declare_state(unit, tables, out)
    for home in unit.homes.storage.large_homes:
        _emit_bring(home, out)
    locals_ = find_locals(program)
    emit_actions(unit, locals_, out)
    for number, table in enumerate(tables):
        emit_apply(unit, table, number, out)
    emit_parser(unit, locals_, out)
    for block in ("verify", "ingress", "egress", "compute"):
        emit_block(unit, locals_, block, out)
    emit_deparser(unit, locals_, out)
    _emit_packet_functions(unit, out)
    _emit_field_lists(unit, out)
    _emit_entry_points(unit, out)
    _emit_create(unit, tables, out)
    out.line('#include "control.h"')
    return out.text()


# --------------------------------------------------------------------------- storage


def _declare_header(layout: HeaderLayout, out: Writer) -> None:
    starts = {layout.slots[run.first].name: run for run in layout.runs}
    with out.block(f"struct {layout.c_name}", "};"):
        if not layout.slots:
            out.line("char none;")
        for slot in layout.slots:
            run = starts.get(slot.name)
            if run is not None:
                large = run.count * run.bits // 8 >= CACHE_LINE
                aligned = f" __attribute__((aligned({CACHE_LINE})))" if large else ""
                out.line(f"{c_integer(run.bits)} {run.array}[{run.count}]{aligned};")
            elif slot.array is not None:
                continue
            elif isinstance(slot.type, ir.VarBits):
                with out.block("struct", f"}} {slot.member};"):
                    out.line("uint32_t bits;")
                    out.line(f"uint8_t data[{max(1, slot.type.max_width // 8)}];")
            elif is_wide(slot.type):
                out.line(f"uint8_t {slot.member}[{width_of(slot.type) // 8}];")
            else:
                out.line(f"{storage_type(slot.type)} {slot.member};  /* {width_of(slot.type)} bits */")
    out.line()


def _struct(name: str, members: Sequence[str], out: Writer) -> None:
    with out.block("struct", f"}} {name};"):
        for line in members or ["char none;"]:
            out.line(line)


def _declare_packet(unit: Unit, out: Writer) -> None:
    """Everything that must be zero in a new packet comes before the large headers."""
    storage = unit.homes.storage
    with out.block("struct p4_packet", "} __attribute__((aligned(64)));"):
        out.line("const uint8_t *frame;")
        out.line("uint32_t frame_length;")
        out.line("uint32_t packet_length;   /* the same, but for headers added and removed */")
        out.line("uint32_t payload;         /* offset of what the parser did not reach */")
        out.line("uint32_t truncate_to;")
        _struct("valid", storage.valid.lines, out)
        _struct("next", storage.next.lines, out)
        _struct("where", storage.where.lines, out)
        for root, members in storage.structs.items():
            extra = storage.large if root == "hdr" else []
            _struct(root, [*members.lines, *extra], out)
    out.line()
    first = storage.large_homes[0] if storage.large_homes else None
    cleared = (
        f"offsetof(struct p4_packet, {first.text.removeprefix('p->')})"
        if first
        else "sizeof(struct p4_packet)"
    )
    out.line("/* The part of a packet in front of its large headers. */")
    out.line(f"enum {{ P4_CLEARED = {cleared} }};")
    out.line()


def _declare_variables(unit: Unit, out: Writer) -> None:
    storage = unit.homes.storage
    for line in REQUESTS.splitlines():
        out.line(line)
    out.line()
    out.line("/* Variables of the program that more than one function uses. */")
    with out.block("struct variables", "};"):
        out.line("struct requests request;")
        for kind in ("valid", "next"):
            members: Members = getattr(storage, f"variable_{kind}")
            if members.lines:
                _struct(kind, members.lines, out)
        for line in storage.variables.lines:
            out.line(line)
    out.line()


def _declare_state(unit: Unit, tables: Sequence[TableLayout], out: Writer) -> None:
    for line in REGISTER.splitlines():
        out.line(line)
    out.line()
    with out.block("struct p4_pipeline", "};"):
        out.line("uint64_t random;")
        out.line(f"struct p4_table tables[{max(1, len(tables))}];")
        for table in tables:
            for member in state_members(unit, table):
                out.line(member)
        for group in unit.registers.groups:
            out.line(f"struct {group.name} *{group.name};  /* {group.size} */")
        for counter in _indirect_counters(unit):
            out.line(f"struct p4_count *counter_{unit.counter_names[counter.name]};  /* {counter.size} */")
    out.line()
    describe_tables(unit, tables, out)
    unit.registers.describe(out)
    with out.block("static const struct p4_counter p4_counters[] =", "};"):
        for counter in _indirect_counters(unit):
            name = f"counter_{unit.counter_names[counter.name]}"
            out.line(f'{{"{counter.name}", offsetof(struct p4_pipeline, {name}), {counter.size}}},')
        out.line("{NULL, 0, 0},")
    out.line()


def _indirect_counters(unit: Unit) -> list[ir.Counter]:
    return [counter for counter in unit.program.counters.values() if counter.table is None]


# --------------------------------------------------------------------------- large headers


def _emit_bring(home: HeaderHome, out: Writer) -> None:
    """Write how a large header comes into storage, and how it is emitted from wherever it is."""
    name, layout = where_name(home), home.layout
    size = layout.fixed_bits // 8
    with out.block(f"P4_HELPER __attribute__((noinline)) void load_{name}(struct p4_packet *p)"):
        if layout.varbit is None:
            with out.block(f"if ({home.where} >= P4_IN_FRAME)"):
                out.line(f"p4_load_{layout.c_name}(&{home.text}, p->frame + ({home.where} - P4_IN_FRAME));")
                out.line(f"{home.where} = P4_STORED;")
                out.line("return;")
        out.line(f"memset(&{home.text}, 0, sizeof {home.text});")
        out.line(f"{home.where} = P4_STORED;")
    out.line()
    with out.block(f"P4_INLINE void bring_{name}(struct p4_packet *p)"):
        out.line(f"if ({home.where} != P4_STORED)")
        with out.indented():
            out.line(f"load_{name}(p);")
    out.line()
    if layout.varbit is None:
        with out.block(f"P4_INLINE void emit_{name}(const struct p4_packet *p, uint8_t *to)"):
            out.line(f"if ({home.where} == P4_STORED)")
            with out.indented():
                out.line(f"p4_store_{layout.c_name}(to, &{home.text});")
            out.line(f"else if ({home.where} >= P4_IN_FRAME)")
            with out.indented():
                out.line(f"memcpy(to, p->frame + ({home.where} - P4_IN_FRAME), {size});")
            out.line("else")
            with out.indented():
                out.line(f"memset(to, 0, {size});")
        out.line()


def _emit_packet_functions(unit: Unit, out: Writer) -> None:
    with out.block("static void start_packet(struct p4_packet *p, const uint8_t *frame, uint32_t length)"):
        out.line("memset(p, 0, P4_CLEARED);")
        out.line("p->frame = frame;")
        out.line("p->frame_length = length;")
        out.line("p->packet_length = length;")
        out.line("p->truncate_to = P4_MAX_FRAME;")
    out.line()
    with out.block("static void p4_copy_packet(struct p4_packet *to, const struct p4_packet *from)"):
        out.line("memcpy(to, from, P4_CLEARED);")
        for home in unit.homes.storage.large_homes:
            assert home.where is not None
            of_from = home.text.replace("p->", "from->")
            out.line(f"if ({home.where.replace('p->', 'from->')} == P4_STORED)")
            with out.indented():
                out.line(f"{home.text.replace('p->', 'to->')} = {of_from};")
    out.line()


# --------------------------------------------------------------------------- field lists


def _emit_field_lists(unit: Unit, out: Writer) -> None:
    """Write ``keep`` and ``restore``; through a struct, because both packets may be the same."""
    kept = {
        number: [_scalar_home(unit, path) for path in paths]
        for number, paths in unit.program.field_lists.items()
    }
    out.line("/* Metadata that field lists keep. */")
    with out.block("struct kept_fields", "};"):
        out.line("char none;")
        for number, homes in kept.items():
            for position, home in enumerate(homes):
                out.line(f"{storage_type(home.type)} list_{number}_{position};")
    out.line()
    for function, parameters in (
        ("keep_fields", "struct kept_fields *kept, const struct p4_packet *p, int32_t list"),
        ("restore_fields", "const struct kept_fields *kept, struct p4_packet *p, int32_t list"),
    ):
        with out.block(f"static void {function}({parameters})"):
            out.line("(void)kept, (void)p;")
            with out.block("switch (list)"):
                for number, homes in kept.items():
                    out.line(f"case {number}:")
                    with out.indented():
                        for position, home in enumerate(homes):
                            there = f"kept->list_{number}_{position}"
                            if function == "keep_fields":
                                out.line(f"{there} = {home.text};")
                            else:
                                out.line(f"{home.text} = {there};")
                        out.line("break;")
                out.line("default:")
                with out.indented():
                    out.line("break;")
        out.line()


def _scalar_home(unit: Unit, path: tuple[str, ...]) -> ScalarHome:
    try:
        home = unit.homes.home(path)
    except KeyError:
        home = None
    if not isinstance(home, ScalarHome) or is_wide(home.type):
        raise Unsupported(f"{'.'.join(path)} in a field list: only scalars are", NOWHERE)
    return home


# --------------------------------------------------------------------------- entry points


def _set_standard(unit: Unit, values: Iterable[tuple[str, str]], out: Writer) -> None:
    """Set those fields of standard metadata that the program has."""
    for name, value in values:
        type_ = dict(unit.program.standard_metadata.fields).get(name)
        if type_ is None:
            continue
        width = width_of(type_)
        text = value if width == storage_bits(width) else f"({value}) & {hex((1 << width) - 1)}"
        out.line(f"p->standard_metadata.{name} = ({c_integer(storage_bits(width))})({text});")


def _emit_entry_points(unit: Unit, out: Writer) -> None:
    with out.block(
        "static void answer(const struct p4_packet *p, const struct variables *v, struct p4_verdict *verdict)"
    ):
        out.line("*verdict = (struct p4_verdict){")
        with out.indented():
            out.line(".clone = (uint8_t)v->request.clone,")
            out.line(".clone_session = (uint16_t)v->request.clone_session,")
            out.line(".resubmit = (uint8_t)v->request.resubmit,")
            out.line(".recirculate = (uint8_t)v->request.recirculate,")
            for kind, asked in (("clone", "clone"), ("resubmit", "resubmit"), ("recirculate", "recirculate")):
                fields = f"{kind}_fields"
                out.line(f".{fields} = v->request.{asked} ? v->request.{fields} : -1,")
            if "priority" in dict(unit.program.standard_metadata.fields):
                out.line(".priority = p->standard_metadata.priority,")
        out.line("};")
        out.line("(void)p;")
    out.line()
    with out.block(
        "static void p4_ingress(struct p4_pipeline *s, struct p4_packet *p, const uint8_t *frame, uint32_t length,\n"
        "                       uint16_t port, uint32_t instance_type, uint64_t now_us,\n"
        "                       const struct p4_packet *previous, int32_t field_list,\n"
        "                       struct p4_verdict *verdict)"
    ):
        out.line("struct variables variables = {0}, *v = &variables;")
        with out.block("if (previous)"):
            out.line("struct kept_fields kept = {0};")
            out.line("keep_fields(&kept, previous, field_list);")
            out.line("start_packet(p, frame, length);")
            out.line("restore_fields(&kept, p, field_list);")
        with out.block("else"):
            out.line("start_packet(p, frame, length);")
        _set_standard(
            unit,
            (
                ("ingress_port", "port"),
                ("packet_length", "length"),
                ("instance_type", "instance_type"),
                ("ingress_global_timestamp", "now_us"),
                ("parser_error", "run_parser(s, p, v)"),
            ),
            out,
        )
        if "parser_error" not in dict(unit.program.standard_metadata.fields):
            out.line("(void)run_parser(s, p, v);")
        out.line("run_verify(s, p, v);")
        out.line("run_ingress(s, p, v);")
        out.line("answer(p, v, verdict);")
        out.line("verdict->egress_spec = p->standard_metadata.egress_spec;")
        out.line("verdict->mcast_grp = p->standard_metadata.mcast_grp;")
        out.line("verdict->dropped = verdict->egress_spec == P4_DROP_PORT && verdict->mcast_grp == 0;")
    out.line()
    with out.block(
        "static void p4_clone_packet(struct p4_pipeline *s, struct p4_packet *to, const struct p4_packet *from,\n"
        "                            const uint8_t *frame, uint32_t length, int32_t field_list)"
    ):
        out.line("struct variables variables = {0};")
        out.line("struct p4_packet *p = to;")
        out.line("struct kept_fields kept = {0};")
        out.line("uint16_t port = from->standard_metadata.ingress_port;")
        out.line("keep_fields(&kept, from, field_list);")
        out.line("start_packet(p, frame, length);")
        _set_standard(unit, (("ingress_port", "port"),), out)
        out.line("(void)run_parser(s, p, &variables);")
        for root in ("meta", "standard_metadata"):
            out.line(f"memset(&p->{root}, 0, sizeof p->{root});")
        for text in unit.homes.flags_under("meta"):
            out.line(f"memset(&{text}, 0, sizeof {text});")
        out.line("restore_fields(&kept, p, field_list);")
    out.line()
    with out.block(
        "static uint32_t p4_egress(struct p4_pipeline *s, struct p4_packet *p, const struct p4_copy *copy,\n"
        "                          uint8_t *out, struct p4_verdict *verdict)"
    ):
        out.line("struct variables variables = {0}, *v = &variables;")
        _set_standard(
            unit,
            (
                ("egress_spec", "0"),
                ("egress_port", "copy->egress_port"),
                ("egress_rid", "copy->egress_rid"),
                ("instance_type", "copy->instance_type"),
                ("packet_length", "p->packet_length"),
                ("enq_timestamp", "copy->enq_timestamp"),
                ("enq_qdepth", "copy->enq_qdepth"),
                ("deq_timedelta", "copy->deq_timedelta"),
                ("deq_qdepth", "copy->deq_qdepth"),
                ("egress_global_timestamp", "copy->now_us"),
            ),
            out,
        )
        out.line("run_egress(s, p, v);")
        out.line("answer(p, v, verdict);")
        with out.block("if (p->standard_metadata.egress_spec == P4_DROP_PORT)"):
            out.line("verdict->dropped = 1;")
            out.line("return 0;")
        out.line("run_compute(s, p, v);")
        out.line("uint8_t *to = run_deparser(s, p, v, out);")
        out.line("uint32_t headers = (uint32_t)(to - out);")
        out.line("uint32_t payload = p->frame_length - p->payload, room = P4_MAX_FRAME - headers;")
        out.line("if (payload > room)")
        with out.indented():
            out.line("payload = room;")
        out.line("memcpy(to, p->frame + p->payload, payload);")
        out.line("uint32_t length = headers + payload;")
        out.line("return length < p->truncate_to ? length : p->truncate_to;")
    out.line()


def _emit_create(unit: Unit, tables: Sequence[TableLayout], out: Writer) -> None:
    memory = [(group.name, f"struct {group.name}", group.size) for group in unit.registers.groups]
    memory += [
        (f"counter_{unit.counter_names[counter.name]}", "struct p4_count", counter.size)
        for counter in _indirect_counters(unit)
    ]
    with out.block("static void p4_destroy(struct p4_pipeline *s)"):
        for member, _, _ in memory:
            out.line(f"free(s->{member});")
        out.line("for (const struct p4_table_kind *kind = p4_table_kinds; kind->name; kind++)")
        with out.indented():
            out.line("p4_table_destroy(&s->tables[kind - p4_table_kinds]);")
        out.line("free(s);")
    out.line()
    with out.block("static struct p4_pipeline *p4_create(uint64_t seed)"):
        out.line("struct p4_pipeline *s = calloc(1, sizeof *s);")
        out.line("if (!s)")
        with out.indented():
            out.line("return NULL;")
        out.line("int failed = 0;")
        out.line("s->random = seed;")
        for member, c_type, size in memory:
            out.line(f"failed |= !(s->{member} = p4_allocate({max(1, size)} * sizeof({c_type})));")
        out.line("for (const struct p4_table_kind *kind = p4_table_kinds; kind->name; kind++)")
        with out.indented():
            out.line("failed |= p4_table_create(&s->tables[kind - p4_table_kinds], kind);")
        with out.block("if (failed)"):
            out.line("p4_destroy(s);")
            out.line("return NULL;")
        for table in tables:
            name = unit.table_names[table.table.name]
            number = table.actions.index(table.table.default.action)
            out.line(f"s->default_{name}.action = {number};")
        out.line("return s;")
    out.line()
    out.line('extern const struct p4_program p4_program __attribute__((visibility("default")));')
    with out.block("const struct p4_program p4_program =", "};"):
        out.line(".abi = P4_ABI,")
        out.line(".packet_size = sizeof(struct p4_packet),")
        out.line(f'.name = "{_c_string(unit.program.name)}",')
        for member, function in (
            ("create", "p4_create"),
            ("destroy", "p4_destroy"),
            ("ingress", "p4_ingress"),
            ("copy", "p4_copy_packet"),
            ("clone", "p4_clone_packet"),
            ("egress", "p4_egress"),
        ):
            out.line(f".{member} = {function},")
    out.line()


def _c_string(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
