"""IR programs made by hand, for tests of the back end alone, and helpers to make more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softswitch.compiler import ir

POS = ir.Position("hand.p4", 1, 1)
B1, B8, B9, B16, B32 = (ir.Bits(width) for width in (1, 8, 9, 16, 32))
ERRORS = ir.Enum(
    "error",
    (
        *("NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort"),
        *("ParserTimeout", "ParserInvalidArgument"),
    ),
)
STANDARD = ir.Struct(
    "standard_metadata_t",
    (
        ("ingress_port", B9),
        ("egress_spec", B9),
        ("egress_port", B9),
        ("instance_type", B32),
        ("packet_length", B32),
        ("enq_timestamp", B32),
        ("enq_qdepth", ir.Bits(19)),
        ("deq_timedelta", B32),
        ("deq_qdepth", ir.Bits(19)),
        ("ingress_global_timestamp", ir.Bits(48)),
        ("egress_global_timestamp", ir.Bits(48)),
        ("mcast_grp", B16),
        ("egress_rid", B16),
        ("checksum_error", B1),
        ("parser_error", ERRORS),
        ("priority", ir.Bits(3)),
    ),
)


def const(value: int, type_: ir.Scalar = B32) -> ir.Const:
    return ir.Const(type_, value, pos=POS)


def var(name: str, type_: ir.Type = B32) -> ir.Var:
    return ir.Var(type_, name, pos=POS)


def path(root: ir.Expr, *names: str) -> ir.Member:
    """Return ``root.a.b`` with the types that the structs and headers give."""
    for name in names:
        root = ir.Member(dict(root.type.fields)[name], root, name, pos=POS)
    return root


def assign(target: ir.Expr, value: ir.Expr) -> ir.Assign:
    return ir.Assign(target, value, pos=POS)


def binary(op: str, left: ir.Expr, right: ir.Expr, type_: ir.Scalar | None = None) -> ir.Binary:
    return ir.Binary(type_ or left.type, op, left, right, pos=POS)


def read(register: str, target: ir.Expr, index: ir.Expr) -> ir.Extern:
    return ir.Extern("register.read", register, ((target,), (index,)), pos=POS)


def write(register: str, index: ir.Expr, value: ir.Expr) -> ir.Extern:
    return ir.Extern("register.write", register, ((index,), (value,)), pos=POS)


def action(name: str, body: Sequence[ir.Stmt], params: Sequence[ir.Param] = ()) -> ir.Action:
    return ir.Action(name, tuple(params), tuple(body), pos=POS)


def program(
    *,
    hdr: ir.Struct,
    meta: ir.Struct | None = None,
    extracts: Sequence[str] = (),
    ingress: Sequence[ir.Stmt] = (),
    egress: Sequence[ir.Stmt] = (),
    variables: Mapping[str, ir.Type] | None = None,
    actions: Sequence[ir.Action] = (),
    tables: Sequence[ir.Table] = (),
    registers: Sequence[ir.Register] = (),
    counters: Sequence[ir.Counter] = (),
) -> ir.Program:
    """Return a program that extracts headers in a row, runs ingress and egress, and emits what is valid."""
    root = var("hdr", hdr)
    accept = ir.Transition((), (((), "accept"),), pos=POS)
    extraction = tuple(ir.Extract(path(root, name), None, pos=POS) for name in extracts)
    return ir.Program(
        name="hand",
        hdr=hdr,
        meta=meta or ir.Struct("metadata_t", (("unused", B8),)),
        standard_metadata=STANDARD,
        errors=ERRORS,
        variables=variables or {},
        states={"start": ir.ParserState("start", extraction, accept, pos=POS)},
        verify=(),
        ingress=tuple(ingress),
        egress=tuple(egress),
        compute=(),
        deparser=tuple(ir.Emit(path(root, name), pos=POS) for name, _ in hdr.fields),
        actions={item.name: item for item in actions},
        tables={item.name: item for item in tables},
        registers={item.name: item for item in registers},
        counters={item.name: item for item in counters},
    )


# --------------------------------------------------------------------------- lanes


def lanes_program(lanes: int, *, slots: int = 16, width: int = 32) -> ir.Program:
    """Return a program that does to `lanes` registers what the 2-bit ``op`` of a packet says.

    Wire: ``op`` (8 bits), ``index`` (32 bits), the lanes. 1 overwrites the registers, 2 adds to them
    and reports whether a sum left the signed range, 3 fetches them, 0 leaves them alone.
    """
    lane = ir.Bits(width)
    head = ir.Header("head_t", (("op", B8), ("overflow", B8), ("index", B32)))
    values = ir.Header("values_t", tuple((f"v{i}", lane) for i in range(lanes)))
    hdr = ir.Struct("headers_t", (("head", head), ("values", values)))
    meta = ir.Struct("metadata_t", (("index", B32),))
    root, index = var("hdr", hdr), path(var("meta", meta), "index")
    old, total, signs = var("old", lane), var("sum", lane), var("signs", lane)
    overwrite, add, fetch = [], [assign(signs, const(0, lane))], []
    for i in range(lanes):
        value, register = path(root, "values", f"v{i}"), f"lane_{i}"
        overwrite.append(write(register, index, value))
        fetch.append(read(register, value, index))
        signs_here = binary("&", binary("^", old, total), binary("^", value, total))
        add += [
            read(register, old, index),
            assign(total, binary("+", old, value)),
            assign(signs, binary("|", signs, signs_here)),
            write(register, index, total),
            assign(value, total),
        ]
    sign = ir.Slice(B1, signs, width - 1, width - 1, pos=POS)
    add.append(assign(path(root, "head", "overflow"), ir.Cast(B8, sign, pos=POS)))
    actions = [action("overwrite", overwrite), action("add", add), action("fetch", fetch)]

    def when(op: int, name: str) -> ir.If:
        test = binary("==", path(root, "head", "op"), const(op, B8), ir.Bool())
        return ir.If(test, (ir.Call(name, pos=POS),), (), pos=POS)

    return program(
        hdr=hdr,
        meta=meta,
        extracts=["head", "values"],
        ingress=[
            assign(index, path(root, "head", "index")),
            when(1, "overwrite"),
            when(2, "add"),
            when(3, "fetch"),
        ],
        variables={"old": lane, "sum": lane, "signs": lane},
        actions=actions,
        registers=[ir.Register(f"lane_{i}", lane, slots, pos=POS) for i in range(lanes)],
    )
