"""The state of one packet between parser and deparser, as C structs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import is_wide
from softswitch.engine.emit_c.layout import (
    CACHE_LINE,
    GRESS_STRUCTS,
    LARGE_STRUCT,
    META_STRUCT,
    HeaderHome,
    HeaderLayout,
    Members,
    Raw,
    ScalarHome,
    varbit_widths,
)
from softswitch.engine.emit_c.statements import where_name
from softswitch.engine.emit_c.text import Writer, c_integer, storage_type
from softswitch.engine.emit_c.unit import Unit
from softswitch.engine.emit_c.wire import Block, declaration, items, load_slots, store_slots

REQUESTS = """\
/* What a block has asked of the traffic manager so far. */
struct requests {
    uint32_t clone, clone_session, resubmit, recirculate;
    int32_t clone_fields, resubmit_fields, recirculate_fields;
};
"""


PACKET_OF_TOFINO = """\
/* A packet outside of the blocks: its bytes, and what ingress asked for. */
struct p4_packet {
    const uint8_t *frame;       /* between ingress and egress with room in front for what egress is told */
    uint32_t frame_length, packet_length;   /* packet_length: without that room */
    uint32_t mirror_length, resubmit_length;
    uint16_t left_by;
    uint8_t queue, cos, bypass;
@meta@
    uint8_t mirror[P4_MIRROR_BYTES], resubmit[P4_RESUBMIT_BYTES];
    uint8_t bytes[P4_BEHIND + P4_MAX_FRAME];
} __attribute__((aligned(64)));
"""
STATE_OF_TOFINO = """\
const uint8_t *frame;
struct p4_packet *packet;
uint32_t frame_length, packet_length;
uint32_t payload;           /* offset of what the parser did not reach */
uint32_t counted;           /* bytes for counters and meters, without what is in front */"""


def declare_varbits(program: ir.Program, out: Writer) -> None:
    """Write a C struct for each width of varbit that the program has."""
    for width in sorted(varbit_widths(program)):
        with out.block(f"struct p4_varbit{width}", "};"):
            out.line(
                "uint32_t bits;",
                f"uint8_t data[{max(1, (width + 7) // 8)}];",
            )
        out.line()


def declare_header(layout: HeaderLayout, out: Writer) -> None:
    """Write the C struct of a header type."""
    starts = {layout.slots[run.first].name: run for run in layout.runs}
    with out.block(f"struct {layout.c_name}", "};"):
        if not layout.slots:
            out.line("char none;")
        for item in items(layout) if layout.dense else layout.slots:
            if isinstance(item, Block):
                for cell in sorted(item.cells, key=lambda cell: cell.place):
                    out.line(declaration(cell))
                continue
            run = starts.get(item.name)
            if run is not None:
                large = run.count * run.bits // 8 >= CACHE_LINE
                aligned = f" __attribute__((aligned({CACHE_LINE})))" if large else ""
                out.line(f"{c_integer(run.bits)} {run.array}[{run.count}]{aligned};")
            elif item.array is not None:
                continue
            elif isinstance(item.type, ir.VarBits):
                out.line(f"struct p4_varbit{item.type.max_width} {item.member};")
            elif is_wide(item.type):
                out.line(f"uint8_t {item.member}[{ir.width_of(item.type) // 8}];")
            else:
                out.line(f"{storage_type(item.type)} {item.member};  /* {ir.width_of(item.type)} bits */")
    out.line()


def _struct(name: str, members: Sequence[str], out: Writer, *, aligned: bool = False) -> None:
    attribute = f" __attribute__((aligned({CACHE_LINE})))" if aligned else ""
    with out.block("struct", f"}} {name}{attribute};"):
        for line in members or ["char none;"]:
            out.line(line)


def declare_packet(unit: Unit, out: Writer) -> None:
    """Write ``struct p4_packet``, and ``p4_state``, which the blocks work on."""
    if unit.program.tofino:
        _declare_tofino(unit, out)
        return
    storage = unit.homes.storage
    with out.block("struct p4_packet", "} __attribute__((aligned(64)));"):
        out.line(
            "const uint8_t *frame;",
            "const struct p4_packet *lender;   /* who has the headers that are P4_LENT */",
            "uint32_t frame_length;",
            "uint32_t packet_length;   /* the same, but for headers added and removed */",
            "uint32_t payload;         /* offset of what the parser did not reach */",
            "uint32_t truncate_to;",
        )
        _declare_flags(unit, out)
        for root, members in storage.structs.items():
            extra = storage.large if root == "hdr" else []
            _struct(root, [*members.lines, *extra], out)
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


def _declare_flags(unit: Unit, out: Writer) -> None:
    storage = unit.homes.storage
    _struct("valid", storage.valid.lines, out)
    _struct("next", storage.next.lines, out)
    _struct("where", storage.where.lines, out)
    if unit.program.tofino:
        _struct("at", storage.at.lines, out)


def _declare_tofino(unit: Unit, out: Writer) -> None:
    """The same for Tofino, where headers live no longer than a gress."""
    storage = unit.homes.storage
    for line in PACKET_OF_TOFINO.splitlines():
        if line != "@meta@":
            out.line(line)
            continue
        with out.indented():
            _struct("meta", storage.structs[META_STRUCT].lines, out)
    out.line()
    out.line("/* What the blocks of a gress work on. */")
    with out.block("typedef struct p4_state", "} p4_state;"):
        out.line(*STATE_OF_TOFINO.splitlines())
        _declare_flags(unit, out)
        for name, members in storage.structs.items():
            if name != META_STRUCT:
                _struct(name, members.lines, out, aligned=name in _first_structs())
        _struct(LARGE_STRUCT, storage.large, out, aligned=True)
    out.line()
    out.line(
        "/* Where the storages of the gresses begin and end: only that of the one that runs is cleared. */"
    )
    with out.block("enum", "};"):
        for name, place in zip(("INGRESS", "EGRESS", "LARGE"), _first_structs(), strict=True):
            out.line(f"P4_{name} = offsetof(struct p4_state, {place}),")
    out.line()


def _first_structs() -> tuple[str, ...]:
    """Return the first structs of each gress, and the one behind both."""
    return (*(struct for struct in GRESS_STRUCTS if struct.endswith("standard_metadata")), LARGE_STRUCT)


def declare_variables(unit: Unit, local: Collection[str], out: Writer) -> None:
    """Write ``struct variables``: the storage of one run of ingress or egress, but for C locals."""
    storage = unit.homes.storage
    absent = {_scalar_member(unit, name) for name in local}
    out.line(*REQUESTS.splitlines())
    out.line()
    out.line("/* Variables of the program that more than one function uses. */")
    with out.block("struct variables", "};"):
        out.line("struct requests request;")
        for kind in ("valid", "next"):
            members: Members = getattr(storage, f"variable_{kind}")
            if members.lines:
                _struct(kind, members.lines, out)
        for line in storage.variables.lines:
            if line.removesuffix(";").rpartition(" ")[2] not in absent:
                out.line(line)
    out.line()


def _scalar_member(unit: Unit, variable: str) -> str:
    home = unit.homes.home((variable,))
    assert isinstance(home, ScalarHome)
    return home.text.removeprefix("v->")


# --------------------------------------------------------------------------- large headers


def emit_bring(unit: Unit, home: HeaderHome, out: Writer) -> None:
    """Write the functions that load a large header into storage, and emit it from its place."""
    name, layout = where_name(home), home.layout
    size = layout.fixed_bits // 8
    lends = not unit.program.tofino
    # Where a packet's state ends with the gress, it is in registers, unless a function has its address.
    kind = "P4_HELPER __attribute__((noinline))" if lends else "P4_INLINE"
    with out.block(f"{kind} void load_{name}(p4_state *p)"):
        if lends:
            with out.block(f"if ({home.where} == P4_LENT)"):
                out.line(
                    f"{home.text} = {_lent(home)};",
                    f"{home.where} = P4_STORED;",
                    "return;",
                )
        if layout.varbit is None:
            with out.block(f"if ({home.where} >= P4_IN_FRAME)"):
                out.line(
                    f"p4_load_{layout.c_name}(&{home.text}, p->frame + ({home.where} - P4_IN_FRAME));",
                    f"{home.where} = P4_STORED;",
                    "return;",
                )
        out.line(
            f"memset(&{home.text}, 0, sizeof {home.text});",
            f"{home.where} = P4_STORED;",
        )
    out.line()
    with out.block(f"P4_INLINE void bring_{name}(p4_state *p)"):
        out.when(f"{home.where} != P4_STORED", f"load_{name}(p);")
    out.line()
    if layout.varbit is None:
        with out.block(f"P4_INLINE void emit_{name}(const p4_state *p, uint8_t *to)"):
            stored = f"{home.where} == P4_LENT ? &{_lent(home)} : &{home.text}" if lends else f"&{home.text}"
            out.when(
                f"{home.where} == P4_STORED{f' || {home.where} == P4_LENT' if lends else ''}",
                f"p4_store_{layout.c_name}(to, {stored});",
            )
            out.line(f"else if ({home.where} >= P4_IN_FRAME)")
            with out.indented():
                out.line(f"memcpy(to, p->frame + ({home.where} - P4_IN_FRAME), {size});")
            out.line("else")
            with out.indented():
                out.line(f"memset(to, 0, {size});")
        out.line()


def emit_raw(home: HeaderHome, out: Writer) -> None:
    """Write the functions that take a header from the frame, and give it to another."""
    raw, layout = home.raw, home.layout
    assert raw is not None
    name = raw_name(raw)
    with out.block(f"P4_INLINE void take_{name}(p4_state *restrict p, const uint8_t *restrict at)"):
        out.line(
            f"struct {layout.c_name} *h = &{home.text};",
            "(void)h;",
        )
        load_slots(raw.taken, out)
        out.line(f"{raw.at} = P4_IN_FRAME + (uint32_t)(at - p->frame);")
    out.line()
    with out.block(f"P4_INLINE void give_{name}(const p4_state *restrict p, uint8_t *restrict at)"):
        out.line(f"const struct {layout.c_name} *h = &{home.text};")
        with out.block(f"if (!{raw.at})"):
            out.line(
                f"p4_store_{layout.c_name}(at, h);",
                "return;",
            )
        out.line(f"memcpy(at, p->frame + ({raw.at} - P4_IN_FRAME), {layout.fixed_bits // 8});")
        for group in raw.given:
            store_slots(group, out)
    out.line()


def raw_name(raw: Raw) -> str:
    """Return the C name that a header's functions end in."""
    return raw.at.rsplit(".", 1)[-1]


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


def emit_packet_functions(unit: Unit, out: Writer) -> None:
    """Write the functions that initialise, copy and lend a packet."""
    _emit_start(out)
    large = unit.homes.storage.large_homes
    with out.block("static void p4_copy_packet(struct p4_packet *to, const struct p4_packet *from)"):
        out.line("p4_copy_lines(to, from, P4_CLEARED);")
        for home in large:
            where = _of("to", _where(home))
            with out.block(f"if ({where} == P4_STORED || {where} == P4_LENT)"):
                lent, own = _of("from", _lent(home)), _of("from", home.text)
                out.line(
                    f"{_of('to', home.text)} = *({where} == P4_LENT ? &{lent} : &{own});",
                    f"{where} = P4_STORED;",
                )
    out.line()
    with out.block("static void p4_lend_packet(struct p4_packet *to, const struct p4_packet *from)"):
        out.line(
            "p4_copy_lines(to, from, P4_CLEARED);",
            "to->lender = from;",
        )
        for home in large:
            where = _of("to", _where(home))
            out.when(f"{where} == P4_STORED", f"{where} = P4_LENT;")
    out.line()


def _of(packet: str, place: str) -> str:
    """Return the lvalue of another packet's `place`."""
    return place.replace("p->", f"{packet}->", 1)


def _lent(home: HeaderHome) -> str:
    return _of("p->lender", home.text)


def _where(home: HeaderHome) -> str:
    assert home.where is not None
    return home.where
