"""The C back end: an `ir.Program` to one C file that implements ``runtime/pipeline.h``.

====================  ===================================================================
module                what it writes
====================  ===================================================================
`layout`              where headers, metadata and variables live
`unit`                what all parts share; registers, interleaved by slot
`packet`              the state of a packet
`expressions`         expressions
`statements`          statements; `externs`: calls of externs
`lanes`               loops for what the program repeats lane by lane, as functions apart
`wire`                headers from and to bytes, many fields at a time
`blocks`              actions and blocks; parser and deparser
`alike_tables`        tables that decide the same, decided once
`tables`              tables: entries, lookup, decision code; what is fetched ahead of a packet's turn
`tofino`              what the engine calls of programs for Tofino
`slots`               by what packets are divided among threads
`program`             the state of the pipeline, and what the engine calls
====================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE, Unsupported
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import (
    all_statements,
    bodies,
    child_expressions,
    indirect_meters,
    member_path,
    statement_expressions,
)
from softswitch.compiler.slots import find_slots
from softswitch.engine.emit_c.alike_tables import with_joint_decisions
from softswitch.engine.emit_c.blocks import emit_actions, emit_block, emit_deparser, emit_parser, find_locals
from softswitch.engine.emit_c.layout import ScalarHome
from softswitch.engine.emit_c.packet import (
    declare_header,
    declare_packet,
    declare_varbits,
    declare_variables,
    emit_bring,
    emit_packet_functions,
    emit_raw,
)
from softswitch.engine.emit_c.slots import Division, emit_slots
from softswitch.engine.emit_c.tables import (
    declare_table,
    describe_tables,
    emit_ahead,
    emit_apply,
    state_members,
)
from softswitch.engine.emit_c.text import Writer, c_integer, storage_bits, storage_type
from softswitch.engine.emit_c.tofino import declare_sizes, emit_entries, emit_tofino
from softswitch.engine.emit_c.unit import Unit, make_unit
from softswitch.engine.emit_c.wire import emit_header_functions
from softswitch.engine.entries import TableLayout, lay_out_table

ROOT = "standard_metadata"
_OURS = frozenset(("ingress_port", "egress_spec", "mcast_grp", "priority"))
"""What the functions that the engine calls look at themselves."""


def told_fields(program: ir.Program) -> frozenset[str]:
    """Return the fields of standard metadata that a program, or its back end, may look at."""
    return _mentioned(program) | _OURS


def answered(program: ir.Program) -> Iterator[str]:
    """Yield the C assignments of standard metadata to what is told of a packet besides where it goes."""
    if "priority" in _mentioned(program):
        yield f"    verdict->priority = p->{ROOT}.priority;"


def _mentioned(program: ir.Program) -> frozenset[str]:
    names = {name for name, _ in program.standard_metadata.fields}
    found: set[str] = set()
    for expr in _outermost(program):
        for path in _paths(expr):
            found |= {path[1]} if len(path) > 1 else names
    for paths in program.field_lists.values():
        found |= {path[1] for path in paths if path[0] == ROOT}
    return frozenset(found)


def tell(unit: Unit, told: Set[str], values: Mapping[str, str]) -> Iterator[str]:
    """Yield the C assignments to those of some fields of standard metadata that are `told_fields`."""
    fields = dict(unit.program.standard_metadata.fields)
    for name, value in values.items():
        if name not in told:
            continue
        width = ir.width_of(fields[name])
        c_type = c_integer(storage_bits(width))
        text = value if width == storage_bits(width) else f"({value} & {hex((1 << width) - 1)})"
        yield f"    p->{ROOT}.{name} = ({c_type}){text};"


def _outermost(program: ir.Program) -> Iterator[ir.Expr]:
    for body in bodies(program):
        for statement in all_statements(body):
            yield from statement_expressions(statement)
    for states in program.parsers.values():
        for state in states.values():
            yield from state.transition.subjects
    for table in program.tables.values():
        yield from (key.expr for key in table.keys)
        yield from (cell.place for cell in table.cells)


def _paths(expr: ir.Expr) -> Iterator[tuple[str, ...]]:
    """Yield the paths into standard metadata that an expression mentions, the longest ones."""
    path = member_path(expr)
    if path is not None:
        if path[0] == ROOT:
            yield path
        return
    for child in child_expressions(expr):
        yield from _paths(child)


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

ANSWER = """\
static const struct p4_verdict nothing_asked = {
    .clone_fields = -1, .resubmit_fields = -1, .recirculate_fields = -1,
};

static void answer(const struct p4_packet *p, const struct requests *asked, struct p4_verdict *verdict)
{
    (void)p;
    *verdict = nothing_asked;
    if (asked->clone) {
        verdict->clone = 1;
        verdict->clone_session = (uint16_t)asked->clone_session;
        verdict->clone_fields = asked->clone_fields;
    }
    if (asked->resubmit) {
        verdict->resubmit = 1;
        verdict->resubmit_fields = asked->resubmit_fields;
    }
    if (asked->recirculate) {
        verdict->recirculate = 1;
        verdict->recirculate_fields = asked->recirculate_fields;
    }
@priority@
}
"""

INGRESS = """\
/* What `restrict` promises holds here: `previous`, which may be `p`, has been read. */
P4_INLINE void enter(struct p4_pipeline *restrict s, struct p4_packet *restrict p,
                     const uint8_t *restrict frame, uint32_t length, uint16_t port,
                     uint32_t instance_type, uint64_t now_us, struct p4_verdict *restrict verdict)
{
    struct variables variables = {0}, *v = &variables;
    (void)length, (void)instance_type, (void)now_us;
@given@
    uint32_t error = run_parser(s, p, v, frame);
    (void)error;
@found@
    run_verify(s, p, v);
    run_ingress(s, p, v);
    answer(p, &v->request, verdict);
    verdict->egress_spec = p->standard_metadata.egress_spec;
    verdict->mcast_grp = p->standard_metadata.mcast_grp;
    verdict->dropped = verdict->egress_spec == P4_DROP_PORT && verdict->mcast_grp == 0;
}

static void p4_ingress(struct p4_pipeline *s, struct p4_packet *p, const uint8_t *frame, uint32_t length,
                       uint16_t port, uint32_t instance_type, uint64_t now_us,
                       const struct p4_packet *previous, int32_t field_list, struct p4_verdict *verdict)
{
    if (previous) {
        struct kept_fields kept = {0};      /* `previous` may be `p` */
        keep_fields(&kept, previous, field_list);
        start_packet(p, frame, length);
        restore_fields(&kept, p, field_list);
    } else {
        start_packet(p, frame, length);
    }
    enter(s, p, frame, length, port, instance_type, now_us, verdict);
}
"""

CLONE = """\
static void p4_clone_packet(struct p4_pipeline *s, struct p4_packet *p, const struct p4_packet *from,
                            const uint8_t *frame, uint32_t length, int32_t field_list)
{
    struct variables variables = {0};
    struct kept_fields kept = {0};
    uint16_t port = from->standard_metadata.ingress_port;
    keep_fields(&kept, from, field_list);
    start_packet(p, frame, length);
@given@
    (void)run_parser(s, p, &variables, frame);
    memset(&p->meta, 0, sizeof p->meta);
    memset(&p->standard_metadata, 0, sizeof p->standard_metadata);
@cleared@
    restore_fields(&kept, p, field_list);
}
"""

EGRESS = """\
static uint32_t p4_egress(struct p4_pipeline *restrict s, struct p4_packet *restrict p,
                          const struct p4_copy *restrict copy, uint8_t *restrict out,
                          struct p4_verdict *restrict verdict)
{
    struct variables variables = {0}, *v = &variables;
    (void)copy;
@given@
    run_egress(s, p, v);
    answer(p, &v->request, verdict);
    if (p->standard_metadata.egress_spec == P4_DROP_PORT) {
        verdict->dropped = 1;
        return 0;
    }
    run_compute(s, p, v);
    uint32_t headers = (uint32_t)(run_deparser(s, p, v, out) - out);
    uint32_t payload = p->frame_length - p->payload;
    if (payload) {
        if (payload > P4_MAX_FRAME - headers)
            payload = P4_MAX_FRAME - headers;
        memcpy(out + headers, p->frame + p->payload, payload);
    }
@length@
}
"""

CREATE = """\
static void p4_destroy(struct p4_pipeline *s)
{
@free@
    if (!s->is_twin) {
@free_shared@
    }
    for (const struct p4_table_kind *kind = p4_table_kinds; kind->name; kind++)
        p4_table_destroy(&s->tables[kind - p4_table_kinds]);
    free(s);
}

/* With `of`, a pipeline for another thread, which shares registers and meters with that one. */
static struct p4_pipeline *make_pipeline(uint64_t seed, const struct p4_pipeline *of)
{
    struct p4_pipeline *s = calloc(1, sizeof *s);
    int failed = 0;
    if (!s)
        return NULL;
    s->random = seed;
    s->is_twin = of != NULL;
@allocate@
    if (of) {
@share@
    } else {
@allocate_shared@
    }
    for (const struct p4_table_kind *kind = p4_table_kinds; kind->name; kind++)
        failed |= p4_table_create(&s->tables[kind - p4_table_kinds], kind);
    if (failed) {
        p4_destroy(s);
        return NULL;
    }
@defaults@
    if (!of) {
@initial@
    }
    return s;
}

static struct p4_pipeline *p4_create(uint64_t seed)
{
    return make_pipeline(seed, NULL);
}

static struct p4_pipeline *p4_twin(const struct p4_pipeline *of, uint64_t seed)
{
    return make_pipeline(seed, of);
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
    .twin = p4_twin,
@threads@
};
"""


def declare_state(unit: Unit, tables: Sequence[TableLayout], out: Writer) -> None:
    """Write ``struct p4_pipeline`` and the tables by which the control plane finds its way in it."""
    out.template(DECLARATIONS)
    with out.block("struct p4_pipeline", "};"):
        out.line(
            "uint64_t random, now_us;",
            "int is_twin;",
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


def _truncates(program: ir.Program) -> bool:
    statements = (statement for body in bodies(program) for statement in all_statements(body))
    return any(isinstance(each, ir.Extern) and each.function == "truncate" for each in statements)


def _indirect_counters(unit: Unit) -> list[ir.Counter]:
    return [counter for counter in unit.program.counters.values() if counter.table is None]


def emit_entry_points(unit: Unit, tables: Sequence[TableLayout], threads: Sequence[str], out: Writer) -> None:
    """Write everything that ``struct p4_program`` points to, and it; `threads` are lines of it."""
    if not unit.program.tofino:
        _emit_field_lists(unit, out)
    _describe_metadata(unit, out)
    if unit.program.tofino:
        emit_entries(unit, timed=_needs_time(unit.program), out=out)
        _emit_create(unit, tables, threads, out)
        return
    told = told_fields(unit.program)
    out.template(ANSWER, parts={"priority": answered(unit.program)})
    arrival = {
        "ingress_port": "port",
        "packet_length": "length",
        "instance_type": "instance_type",
        "ingress_global_timestamp": "now_us",
    }
    found = {"parser_error": "error"}
    timed = _needs_time(unit.program)
    clock = ["    s->now_us = now_us;"] if timed else []
    out.template(
        INGRESS, parts={"given": [*clock, *tell(unit, told, arrival)], "found": tell(unit, told, found)}
    )
    out.template(
        CLONE,
        parts={
            "given": tell(unit, told, {"ingress_port": "port"}),
            "cleared": [f"    memset(&{text}, 0, sizeof {text});" for text in unit.homes.flags_under("meta")],
        },
    )
    departure = {
        "egress_spec": "0",
        "packet_length": "p->packet_length",
        "egress_global_timestamp": "copy->now_us",
    }
    copied = ("egress_port", "egress_rid", "instance_type", "enq_timestamp", "enq_qdepth", "deq_timedelta")
    departure |= {name: f"copy->{name}" for name in (*copied, "deq_qdepth")}
    clock = ["    s->now_us = copy->now_us;"] if timed else []
    length = "headers + payload"
    if _truncates(unit.program):
        length = f"{length} < p->truncate_to ? {length} : p->truncate_to"
    parts = {"given": [*clock, *tell(unit, told, departure)], "length": [f"    return {length};"]}
    out.template(EGRESS, parts=parts)
    _emit_create(unit, tables, threads, out)


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
            for position, (_, type_) in enumerate(homes):
                out.line(f"{storage_type(type_)} list_{number}_{position};")
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
                        for position, (text, _) in enumerate(homes):
                            there = f"kept->list_{number}_{position}"
                            if function == "keep_fields":
                                out.line(f"{there} = {text};")
                            else:
                                out.line(f"{text} = {there};")
                        out.line("break;")
                out.line("default:")
                with out.indented():
                    out.line("break;")
        out.line()


def _describe_metadata(unit: Unit, out: Writer) -> None:
    """Write the table by which captures find metadata in a packet."""
    with out.block("static const struct p4_field p4_metadata[] =", "};"):
        for path, home in unit.homes.scalars_under("meta"):
            place = home.text.removeprefix("p->").removeprefix("packet->")
            name = ".".join(path[1:])
            out.line(
                f'{{"{name}", offsetof(struct p4_packet, {place}),'
                f" sizeof(((struct p4_packet *)0)->{place})}},"
            )
        out.line("{NULL, 0, 0},")
    out.line()


def _scalar_home(unit: Unit, path: tuple[str, ...]) -> tuple[str, ir.Scalar]:
    """Return the C lvalue of metadata in a field list, and its type."""
    try:
        home = unit.homes.home(path)
    except KeyError:
        home = None
    if not isinstance(home, ScalarHome) or isinstance(home.type, ir.VarBits) or is_wide(home.type):
        raise Unsupported(f"{'.'.join(path)} in a field list: only scalars are", NOWHERE)
    return home.text, home.type


# --------------------------------------------------------------------------- creation


def _emit_create(unit: Unit, tables: Sequence[TableLayout], threads: Sequence[str], out: Writer) -> None:
    shared = [(group.name, f"struct {group.name}", group.size) for group in unit.registers.groups]
    shared += [
        (f"meter_{unit.meter_names[meter.name]}", "struct p4_meter", meter.size)
        for meter in indirect_meters(unit.program)
    ]
    own = [
        (f"counter_{unit.counter_names[counter.name]}", "struct p4_count", counter.size)
        for counter in _indirect_counters(unit)
    ]
    if unit.program.digests:
        own.append(("digests", "struct p4_digests", 1))
    waits, ahead = emit_ahead(unit, tables, out)
    parts = {
        "free": [f"    free(s->{member});" for member, _, _ in own],
        "free_shared": [f"        free(s->{member});" for member, _, _ in shared],
        "allocate": _allocations(own, "    "),
        "share": [f"        s->{member} = of->{member};" for member, _, _ in shared],
        "allocate_shared": _allocations(shared, "        "),
        "defaults": [
            f"    s->default_{unit.table_names[layout.table.name]}.match.action = "
            f"{layout.actions.index(layout.table.default.action)};"
            for layout in tables
        ],
        "initial": [f"    {line}" for line in unit.registers.initial_values()],
        "threads": threads,
    }
    out.template(CREATE, parts=parts, waits=waits, ahead=ahead)


def _allocations(memory: Sequence[tuple[str, str, int]], indent: str) -> list[str]:
    return [
        f"{indent}failed |= !(s->{member} = p4_allocate({max(1, size)} * sizeof({c_type})));"
        for member, c_type, size in memory
    ]


OPTIONS = """\
/* Paths stay apart and are chosen by branches, which processors predict: that takes fewer instructions than
   to compute what several of them need ahead, or both sides of a condition. */
#ifndef __clang__
#pragma GCC optimize("no-code-hoisting", "no-if-conversion")
#endif
/* Nor are two counts put into a vector in order to raise both at once. */
#define P4_APART(place) __asm__("" : "+m"(place))
"""
"""What makes programs for v1model faster and those for Tofino slower, whose packets are C locals."""


def emit_c(program: ir.Program) -> str:
    """Return the C text of `program`. Raises Unsupported for what this back end cannot do."""
    try:
        return _emit(with_joint_decisions(program), find_slots(program))
    except RecursionError:
        raise Unsupported(f"expressions or statements of {program.name} nested too deeply", NOWHERE) from None


def _emit(program: ir.Program, division: Division) -> str:
    unit = make_unit(program)
    tables = [lay_out_table(table) for table in program.tables.values()]
    out = Writer()
    out.line(f"/* Generated from the P4 program {program.name.replace('*/', '* /')}. */")
    if not program.tofino:
        out.line(*OPTIONS.splitlines())
    for header in ("pipeline.h", "prelude.h", "tables.h"):
        out.line(f'#include "{header}"')
    out.line()
    declare_varbits(program, out)
    for layout in unit.headers.values():
        declare_header(layout, out)
        emit_header_functions(layout, out)
    if program.tofino:
        declare_sizes(program, out)
    declare_packet(unit, out)
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
    for block in ("ingress", "egress") if program.tofino else ("verify", "ingress", "egress", "compute"):
        emit_block(unit, locals_, block, out)
    for deparser in ("ingress_deparser", "deparser") if program.tofino else ("deparser",):
        emit_deparser(unit, locals_, deparser, out)
    if program.tofino:
        emit_tofino(out)
    else:
        emit_packet_functions(unit, out)
    emit_entry_points(unit, tables, emit_slots(unit, division, tables, out), out)
    out.line('#include "control.h"')
    return out.text()
