"""The v1model architecture in C: packets that live from parser to deparser, and the engine's entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE, Unsupported
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import (
    all_statements,
    bodies,
    child_expressions,
    member_path,
    statement_expressions,
)
from softswitch.engine.emit_c.layout import ScalarHome
from softswitch.engine.emit_c.packet import declare_flags, describe_metadata, lent, of, struct
from softswitch.engine.emit_c.text import Writer, c_integer, storage_bits, storage_type
from softswitch.engine.emit_c.unit import CArchitecture, Translation

OPTIONS = """\
/* Keep paths separate, chosen by branches, which processors predict: that takes fewer instructions than to
   compute common parts of several paths ahead, or both sides of a condition. */
#ifndef __clang__
#pragma GCC optimize("no-code-hoisting", "no-if-conversion")
#endif
/* Also do not join two counts into a vector to raise both at once. */
#define P4_APART(place) __asm__("" : "+m"(place))
"""
"""C options that make v1model programs faster. They slow down Tofino programs, whose packets are C locals."""


ROOT = "standard_metadata"
_OURS = frozenset(("ingress_port", "egress_spec", "mcast_grp", "priority"))
"""Fields of standard metadata that the engine's entry points read."""


def told_fields(program: ir.Program) -> frozenset[str]:
    """Return the names of the standard metadata fields that `program` or the back end may read."""
    return _mentioned(program) | _OURS


def answered(program: ir.Program) -> Iterator[str]:
    """Yield the C assignments of standard metadata to the verdict, except for the destination."""
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


def tell(unit: Translation, told: Set[str], values: Mapping[str, str]) -> Iterator[str]:
    """Yield C assignments of `values` to fields of standard metadata that the program may read."""
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
    """Yield the longest paths into standard metadata that an expression mentions."""
    path = member_path(expr)
    if path is not None:
        if path[0] == ROOT:
            yield path
        return
    for child in child_expressions(expr):
        yield from _paths(child)


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
/* `restrict` is correct here: `previous`, which may be `p`, has been read. */
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
                            uint32_t instance_type, const uint8_t *frame, uint32_t length, int32_t field_list)
{
    struct variables variables = {0};
    struct kept_fields kept = {0};
    uint16_t port = from->standard_metadata.ingress_port;
    keep_fields(&kept, from, field_list);
    if (@clones@ && instance_type == P4_EGRESS_CLONE) {   /* as on BMv2, also headers in the metadata stay */
        p4_copy_packet(p, from);
        p->truncate_to = P4_MAX_FRAME;
@scalars@
    } else {
        start_packet(p, frame, length);
@given@
        (void)run_parser(s, p, &variables, frame);
        memset(&p->meta, 0, sizeof p->meta);
@flags@
    }
    memset(&p->standard_metadata, 0, sizeof p->standard_metadata);
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


def _declare_packet(unit: Translation, out: Writer) -> None:
    """Write ``struct p4_packet``, and ``p4_state`` as another name for it: the state that blocks change."""
    storage = unit.homes.storage
    with out.block("struct p4_packet", "} __attribute__((aligned(64)));"):
        out.line(
            "const uint8_t *frame;",
            "const struct p4_packet *lender;   /* the packet with the headers that are P4_LENT */",
            "uint32_t frame_length;",
            "uint32_t packet_length;   /* frame_length, changed by headers added and removed */",
            "uint32_t payload;         /* offset of the unparsed rest */",
            "uint32_t truncate_to;",
        )
        declare_flags(unit, out)
        for root, members in storage.structs.items():
            extra = storage.large if root == "hdr" else []
            struct(root, [*members.lines, *extra], out)
    out.line()
    out.line("typedef struct p4_packet p4_state;")
    out.line()
    first = storage.large_homes[0].text.removeprefix("p->") if storage.large_homes else ""
    cleared = f"offsetof(struct p4_packet, {first})" if first else "sizeof(struct p4_packet)"
    out.line(
        "/* The part of a packet in front of its large headers. */",
        f"enum {{ P4_CLEARED = {cleared} }};",
    )
    out.line()


def _emit_start(out: Writer) -> None:
    """Write the function that initialises a packet."""
    with out.block("static void start_packet(struct p4_packet *p, const uint8_t *frame, uint32_t length)"):
        out.line(
            "p4_clear_lines(p, P4_CLEARED);",
            "p->frame = frame;",
            "p->frame_length = length;",
            "p->packet_length = length;",
            "p->truncate_to = P4_MAX_FRAME;",
        )
    out.line()


def _emit_packet_functions(unit: Translation, out: Writer) -> None:
    """Write the functions that initialise, copy and lend a packet."""
    _emit_start(out)
    large = unit.homes.storage.large_homes
    with out.block("static void p4_copy_packet(struct p4_packet *to, const struct p4_packet *from)"):
        out.line("p4_copy_lines(to, from, P4_CLEARED);")
        for home in large:
            where = of("to", str(home.where))
            with out.block(f"if ({where} == P4_STORED || {where} == P4_LENT)"):
                lent_one, own = of("from", lent(home)), of("from", home.text)
                out.line(
                    f"{of('to', home.text)} = *({where} == P4_LENT ? &{lent_one} : &{own});",
                    f"{where} = P4_STORED;",
                )
    out.line()
    with out.block("static void p4_lend_packet(struct p4_packet *to, const struct p4_packet *from)"):
        out.line(
            "p4_copy_lines(to, from, P4_CLEARED);",
            "to->lender = from;",
        )
        for home in large:
            where = of("to", str(home.where))
            out.when(f"{where} == P4_STORED", f"{where} = P4_LENT;")
    out.line()


def _calls(program: ir.Program, *functions: str) -> bool:
    statements = (statement for body in bodies(program) for statement in all_statements(body))
    return any(isinstance(each, ir.Extern) and each.function in functions for each in statements)


def _emit_entries(unit: Translation, timed: bool, out: Writer) -> None:
    """Write ``p4_ingress``, ``p4_clone_packet``, ``p4_egress``; `timed`: the program needs the time."""
    _emit_field_lists(unit, out)
    describe_metadata(unit, out)
    fields = told_fields(unit.program)
    out.template(ANSWER, parts={"priority": answered(unit.program)})
    arrival = {
        "ingress_port": "port",
        "packet_length": "length",
        "instance_type": "instance_type",
        "ingress_global_timestamp": "now_us",
    }
    found = {"parser_error": "error"}
    clock = ["    s->now_us = now_us;"] if timed else []
    out.template(
        INGRESS, parts={"given": [*clock, *tell(unit, fields, arrival)], "found": tell(unit, fields, found)}
    )
    cleared = "        memset(&{0}, 0, sizeof {0});"
    out.template(
        CLONE,
        parts={
            "given": tell(unit, fields, {"ingress_port": "port"}),
            "scalars": [cleared.format(home.text) for _, home in unit.homes.scalars_under("meta")],
            "flags": map(cleared.format, unit.homes.flags_under("meta")),
        },
        # without clones no copy: its mere presence changes what the C compiler inlines, and costs 7 %
        clones=str(int(_calls(unit.program, "clone", "clone_preserving_field_list"))),
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
    if _calls(unit.program, "truncate"):
        length = f"{length} < p->truncate_to ? {length} : p->truncate_to"
    parts = {"given": [*clock, *tell(unit, fields, departure)], "length": [f"    return {length};"]}
    out.template(EGRESS, parts=parts)


# --------------------------------------------------------------------------- field lists


def _emit_field_lists(unit: Translation, out: Writer) -> None:
    """Write ``keep_fields`` and ``restore_fields``.

    ``keep_fields`` copies the fields of a packet to a struct, and ``restore_fields`` copies them from the
    struct to a packet. The struct is needed because both may be the same packet.
    """
    kept = {
        number: [_scalar_home(unit, path) for path in paths]
        for number, paths in unit.program.field_lists.items()
    }
    out.line("/* The metadata in field lists. */")
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
                            saved = f"kept->list_{number}_{position}"
                            if function == "keep_fields":
                                out.line(f"{saved} = {text};")
                            else:
                                out.line(f"{text} = {saved};")
                        out.line("break;")
                out.line("default:")
                with out.indented():
                    out.line("break;")
        out.line()


def _scalar_home(unit: Translation, path: tuple[str, ...]) -> tuple[str, ir.Scalar]:
    """Return the C lvalue and the type of the metadata scalar at `path`, a member of a field list."""
    try:
        home = unit.homes.home(path)
    except KeyError:
        home = None
    if not isinstance(home, ScalarHome) or isinstance(home.type, ir.VarBits) or is_wide(home.type):
        raise Unsupported(f"{'.'.join(path)} in a field list, which can have scalars only", NOWHERE)
    return home.text, home.type


V1MODEL = CArchitecture(
    by_gress=False,
    counted="p->frame_length",
    options=OPTIONS.splitlines(),
    blocks=("verify", "ingress", "egress", "compute"),
    deparsers=("deparser",),
    declare_packet=_declare_packet,
    emit_packet_functions=_emit_packet_functions,
    emit_entries=_emit_entries,
)
