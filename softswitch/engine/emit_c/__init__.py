"""The C back end: translate an `ir.Program` to one C file that implements ``runtime/pipeline.h``.

====================  ===================================================================
module                output
====================  ===================================================================
`layout`              the storage of headers, metadata and variables
`unit`                shared data of all parts; registers, interleaved by slot
`packet`              headers and variables of a packet
`expressions`         expressions
`statements`          statements; `externs`: calls of externs
`lanes`               loops for code that the program repeats lane by lane, as separate functions
`wire`                headers from and to bytes, many fields at a time
`blocks`              actions and blocks; parser and deparser
`alike_tables`        consecutive tables with the same keys and entries, as one decision
`tables`              tables: entries, lookup, decision code; fetches ahead of a packet's turn
`v1model`, `tofino`   the architectures: the state of a packet, and the engine's entry points
====================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE, Unsupported
from softswitch.compiler.ir.walk import indirect_meters
from softswitch.engine.emit_c.alike_tables import with_joint_decisions
from softswitch.engine.emit_c.blocks import emit_actions, emit_block, emit_deparser, emit_parser, find_locals
from softswitch.engine.emit_c.packet import (
    declare_header,
    declare_varbits,
    declare_variables,
    emit_bring,
    emit_raw,
)
from softswitch.engine.emit_c.tables import (
    declare_table,
    describe_tables,
    emit_ahead,
    emit_apply,
    state_members,
)
from softswitch.engine.emit_c.text import Writer
from softswitch.engine.emit_c.tofino import TOFINO
from softswitch.engine.emit_c.unit import Translation, make_unit
from softswitch.engine.emit_c.v1model import V1MODEL
from softswitch.engine.emit_c.wire import emit_header_functions
from softswitch.engine.entries import TableLayout, lay_out_table

INCLUDES = ('#include "pipeline.h"', '#include "prelude.h"', '#include "tables.h"', "")
DECLARATIONS = """\
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

CREATE = """\
static void p4_destroy(struct p4_pipeline *s)
{
@free@
    for (const struct p4_table_kind *kind = p4_table_kinds; kind->name; kind++)
        p4_table_destroy(&s->tables[kind - p4_table_kinds]);
    free(s);
}

static struct p4_pipeline *p4_create(uint64_t seed)
{
    struct p4_pipeline *s = calloc(1, sizeof *s);
    int failed = 0;
    if (!s)
        return NULL;
    s->random = seed;
@allocate@
    for (const struct p4_table_kind *kind = p4_table_kinds; kind->name; kind++)
        failed |= p4_table_create(&s->tables[kind - p4_table_kinds], kind);
    if (failed) {
        p4_destroy(s);
        return NULL;
    }
@defaults@
@initial@
    return s;
}

extern const struct p4_program p4_program __attribute__((visibility("default")));
const struct p4_program p4_program = {
    .abi = P4_ABI,
    .packet_size = sizeof(struct p4_packet),
    .create = p4_create,
    .destroy = p4_destroy,
    .ingress = p4_ingress,
    .copy = p4_copy_packet,
    .lend = p4_lend_packet,
    .clone = p4_clone_packet,
    .egress = p4_egress,
    .waits = @waits@,
    .ahead = @ahead@,
    .metadata = p4_metadata,
};
"""


def declare_state(unit: Translation, tables: Sequence[TableLayout], out: Writer) -> None:
    """Write ``struct p4_pipeline`` and the tables through which the control plane accesses it."""
    out.template(DECLARATIONS)
    with out.block("struct p4_pipeline", "};"):
        out.line(
            "uint64_t random, now_us;",
            "struct p4_digests *digests;",
            f"struct p4_table tables[{max(1, len(tables))}];",
        )
        for table in tables:
            for member in state_members(unit, table):
                out.line(member)
        for group in unit.registers.groups:
            out.line(f"struct {group.name} *{group.name};  /* {group.size} */")
        for counter in _indirect_counters(unit):
            out.line(f"struct p4_count *counter_{unit.counter_names[counter.name]};  /* {counter.size} */")
        for meter in indirect_meters(unit.program):
            out.line(f"struct p4_meter *meter_{unit.meter_names[meter.name]};  /* {meter.size} */")
    out.line()
    describe_tables(unit, tables, out)
    unit.registers.describe(out)
    with out.block("static const struct p4_counter p4_counters[] =", "};"):
        for counter in _indirect_counters(unit):
            name = f"counter_{unit.counter_names[counter.name]}"
            out.line(f'{{"{counter.name}", offsetof(struct p4_pipeline, {name}), {counter.size}}},')
        out.line("{NULL, 0, 0},")
    out.line()
    with out.block("static const size_t p4_meters[] =", "};"):
        for meter in indirect_meters(unit.program):
            out.line(f"offsetof(struct p4_pipeline, meter_{unit.meter_names[meter.name]}),")
        out.line("0,")
    out.line()


def _needs_time(program: ir.Program) -> bool:
    return bool(program.meters) or any(table.idle_timeout for table in program.tables.values())


def _indirect_counters(unit: Translation) -> list[ir.Counter]:
    return [counter for counter in unit.program.counters.values() if counter.table is None]


# --------------------------------------------------------------------------- creation


def _emit_create(unit: Translation, tables: Sequence[TableLayout], out: Writer) -> None:
    memory = [(group.name, f"struct {group.name}", group.size) for group in unit.registers.groups]
    memory += [
        (f"meter_{unit.meter_names[meter.name]}", "struct p4_meter", meter.size)
        for meter in indirect_meters(unit.program)
    ]
    memory += [
        (f"counter_{unit.counter_names[counter.name]}", "struct p4_count", counter.size)
        for counter in _indirect_counters(unit)
    ]
    if unit.program.digests:
        memory.append(("digests", "struct p4_digests", 1))
    waits, ahead = emit_ahead(unit, tables, out)
    parts = {
        "free": [f"    free(s->{member});" for member, _, _ in memory],
        "allocate": [
            f"    failed |= !(s->{member} = p4_allocate({max(1, size)} * sizeof({c_type})));"
            for member, c_type, size in memory
        ],
        "defaults": [
            f"    s->default_{unit.table_names[layout.table.name]}.match.action = "
            f"{layout.actions.index(layout.table.default.action)};"
            for layout in tables
        ],
        "initial": unit.registers.initial_values(),
    }
    out.template(CREATE, parts=parts, waits=waits, ahead=ahead)


def emit_c(program: ir.Program) -> str:
    """Return the C text of `program`. Raises Unsupported for features that this back end lacks."""
    try:
        return _emit(with_joint_decisions(program))
    except RecursionError:
        raise Unsupported(f"expressions or statements of {program.name} nested too deeply", NOWHERE) from None


def _emit(program: ir.Program) -> str:
    architecture = TOFINO if program.tofino else V1MODEL
    unit = make_unit(program, architecture)
    tables = [lay_out_table(table) for table in program.tables.values()]
    out = Writer()
    out.line(f"/* Generated from the P4 program {program.name.replace('*/', '* /')}. */")
    out.line(*architecture.options, *INCLUDES)
    declare_varbits(program, out)
    for layout in unit.headers.values():
        declare_header(layout, out)
        emit_header_functions(layout, out)
    architecture.declare_packet(unit, out)
    locals_ = find_locals(program)
    declare_variables(unit, locals_.nowhere_else(program), out)
    unit.registers.declare(out)
    for table in tables:
        declare_table(unit, table, out)
    declare_state(unit, tables, out)
    for home in unit.homes.storage.large_homes:
        emit_bring(unit, home, out)
    for home in unit.homes.storage.raw_homes:
        emit_raw(home, out)
    emit_actions(unit, locals_, out)
    for number, table in enumerate(tables):
        emit_apply(unit, table, number, out)
    for parser in program.parsers:
        emit_parser(unit, locals_, parser, out)
    for block in architecture.blocks:
        emit_block(unit, locals_, block, out)
    for deparser in architecture.deparsers:
        emit_deparser(unit, locals_, deparser, out)
    architecture.emit_packet_functions(unit, out)
    architecture.emit_entries(unit, _needs_time(program), out)
    _emit_create(unit, tables, out)
    out.line('#include "control.h"')
    return out.text()
