"""The state of one packet between parser and deparser, as C structs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import is_wide
from softswitch.engine.emit_c.layout import (
    CACHE_LINE,
    FieldRun,
    FieldSlot,
    HeaderHome,
    HeaderLayout,
    Members,
    Raw,
    ScalarHome,
    varbit_widths,
)
from softswitch.engine.emit_c.statements import where_name
from softswitch.engine.emit_c.text import Writer, c_integer, storage_type
from softswitch.engine.emit_c.unit import Translation
from softswitch.engine.emit_c.wire import CellBlock, declaration, items, load_slots, store_slots

REQUESTS = """\
/* A block's requests to the traffic manager so far. */
struct requests {
    uint32_t clone, clone_session, resubmit, recirculate;
    int32_t clone_fields, resubmit_fields, recirculate_fields;
};
"""


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
    with out.block(f"struct {layout.c_name}", "};"):
        if not layout.slots:
            out.line("char none;")
        for item in items(layout):
            match item:
                case CellBlock(cells):
                    for cell in sorted(cells, key=lambda cell: cell.place):
                        out.line(declaration(cell))
                case FieldRun(array, _, count, bits):
                    large = count * bits // 8 >= CACHE_LINE
                    aligned = f" __attribute__((aligned({CACHE_LINE})))" if large else ""
                    out.line(f"{c_integer(bits)} {array}[{count}]{aligned};")
                case FieldSlot(type=ir.VarBits(width)):
                    out.line(f"struct p4_varbit{width} {item.member};")
                case FieldSlot(type=type_) if is_wide(type_):
                    out.line(f"uint8_t {item.member}[{ir.width_of(type_) // 8}];")
                case FieldSlot(type=ir.Bits() | ir.Bool() as type_):
                    out.line(f"{storage_type(type_)} {item.member};  /* {ir.width_of(type_)} bits */")
    out.line()


def struct(name: str, members: Sequence[str], out: Writer, *, aligned: bool = False) -> None:
    """Write the declaration of the member `name`, a C struct with `members`."""
    attribute = f" __attribute__((aligned({CACHE_LINE})))" if aligned else ""
    with out.block("struct", f"}} {name}{attribute};"):
        for line in members or ["char none;"]:
            out.line(line)


def declare_flags(unit: Translation, out: Writer) -> None:
    """Write the state of headers: validity, next indices of stacks, and the places of large headers."""
    storage = unit.homes.storage
    struct("valid", storage.valid.lines, out)
    struct("next", storage.next.lines, out)
    struct("where", storage.where.lines, out)
    if unit.architecture.by_gress:
        struct("at", storage.at.lines, out)


def declare_variables(unit: Translation, local: Collection[str], out: Writer) -> None:
    """Write ``struct variables``: the storage of one run of ingress or egress, without C locals."""
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
                struct(kind, members.lines, out)
        for line in storage.variables.lines:
            if line.removesuffix(";").rpartition(" ")[2] not in absent:
                out.line(line)
    out.line()


def _scalar_member(unit: Translation, variable: str) -> str:
    home = unit.homes.home((variable,))
    assert isinstance(home, ScalarHome)
    return home.text.removeprefix("v->")


# --------------------------------------------------------------------------- large headers


def emit_bring(unit: Translation, home: HeaderHome, out: Writer) -> None:
    """Write the functions that load a large header into storage, and deparse it from storage or the frame."""
    name, layout = where_name(home), home.layout
    size = layout.fixed_bits // 8
    lends = not unit.architecture.by_gress
    # The state of one gress can be in registers, unless a function gets its address.
    kind = "P4_HELPER __attribute__((noinline))" if lends else "P4_INLINE"
    with out.block(f"{kind} void load_{name}(p4_state *p)"):
        if lends:
            with out.block(f"if ({home.where} == P4_LENT)"):
                out.line(
                    f"{home.text} = {lent(home)};",
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
            stored = f"{home.where} == P4_LENT ? &{lent(home)} : &{home.text}" if lends else f"&{home.text}"
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
    """Write the functions that load a header's used fields from the frame, and that deparse the header."""
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
    """Return the suffix in the names of the C functions that load and deparse a `Raw` header."""
    return raw.at.rsplit(".", 1)[-1]


def of(packet: str, place: str) -> str:
    """Return `place`, a C lvalue in this packet (``p``), as the lvalue in the packet `packet`."""
    return place.replace("p->", f"{packet}->", 1)


def lent(home: HeaderHome) -> str:
    """Return the C lvalue of the header at `home` in the packet that lends it to this packet."""
    return of("p->lender", home.text)


def describe_metadata(unit: Translation, out: Writer) -> None:
    """Write the table through which captures find metadata in a packet."""
    with out.block("static const struct p4_field p4_metadata[] =", "};"):
        for path, home in unit.homes.scalars_under("meta"):
            if isinstance(home.type, ir.VarBits) or ir.width_of(home.type) > 64:
                continue
            place = home.text.removeprefix("p->").removeprefix("packet->")
            name = ".".join(path[1:])
            out.line(
                f'{{"{name}", offsetof(struct p4_packet, {place}),'
                f" sizeof(((struct p4_packet *)0)->{place})}},"
            )
        out.line("{NULL, 0, 0},")
    out.line()
