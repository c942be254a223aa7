"""Values of checked expressions."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t


@dataclass(frozen=True, slots=True)
class Number:
    """A compile-time ``int``."""

    value: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class Run:
    """Something that the IR can express; `expr` has the IR's version of `type`.

    `writable` tells whether it is an l-value; `why` explains if it looks like one but is not.
    """

    type: t.Type
    expr: ir.Expr
    writable: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A struct, header or tuple given by its parts, in order.

    Its type is a `Tuple` or `Record` as long as no context has said what it is to be; `rest` is
    set if it ended in ``...``. `places` says where the parts are in the source, if they are there.
    """

    type: t.Type
    parts: tuple[Value, ...]
    rest: bool = False
    places: tuple[ir.Position, ...] = ()


@dataclass(frozen=True, slots=True)
class Default:
    """``...``: the default value of the context's type."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """``{#}``, or the default value of a header; the type is None until a context gives it."""

    type: t.HeaderType | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The result of a call without a result."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of ``table.apply()``; `apply` is the statement that was emitted for it.

    Of a table with a selector more follows it, and its variables are there already.
    """

    apply: ir.Apply
    hit: ir.Var | None = None
    action: ir.Var | None = None


@dataclass(frozen=True, slots=True)
class Packet:
    """The ``packet_in`` or ``packet_out`` of a parser or deparser."""

    type: t.ExternType
    decl: ast.ExternDecl


OBJECTS = (
    *("register", "counter", "meter", "direct_counter", "direct_meter"),
    *("action_profile", "action_selector", "Checksum16"),
)
"""The externs of v1model with objects."""


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """An instance of an extern; `name` is its control-plane name.

    `unit` is what a counter or meter counts, or the algorithm of an action selector; `colour` the variable
    that a direct meter writes.
    """

    type: t.ExternType
    decl: ast.ExternDecl
    name: str
    pos: ir.Position
    unit: str = ""
    annotations: tuple[ir.Annotation, ...] = ()
    colour: str = ""
    details: object = None  # what the target knows of it besides


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """An instance of a control or parser before it is applied, with its constructor arguments."""

    decl: ast.ControlDecl | ast.ParserDecl
    args: tuple[tuple[str, object], ...]  # values, and instances of other blocks
    pos: ir.Position


Value = Number | Text | Run | Group | Default | Invalid | Nothing | Outcome | Packet | Object | Block


def type_of(value: Value) -> t.Type:
    """Return the type of a value."""
    match value:
        case Number():
            return t.INT
        case Text():
            return t.STRING
        case Run() | Group() | Packet() | Object():
            return value.type
        case Invalid():
            return value.type if value.type is not None else t.Rest()
        case Default():
            return t.Rest()
        case Nothing():
            return t.VOID
        case Outcome(apply):
            return t.ExternType(f"apply_result({apply.table})")
        case Block(decl):
            return t.BlockType("parser" if isinstance(decl, ast.ParserDecl) else "control", decl.name)


def show(value: Value) -> str:
    """Return the type of a value, and the value itself if it is known, for a message."""
    match value:
        case Number(number):
            return f"int {number}"
        case Run(t.BOOL, ir.Const(_, number)):
            return "true" if number else "false"
        case Run(type_, ir.Const(_, number)):
            return f"{t.describe(type_)} {number}"
        case _:
            return t.describe(type_of(value))


def is_constant(value: Value) -> bool:
    """Return True if a value is known at compile time."""
    match value:
        case Run(_, expr):
            return isinstance(expr, ir.Const)
        case Group(_, parts):
            return all(is_constant(part) for part in parts)
        case Nothing() | Outcome():
            return False
        case _:
            return True


def constant(type_: t.Type, number: int, pos: ir.Position) -> Run:
    """Return the constant `number` of a scalar type."""
    scalar = t.lowered(type_)
    assert isinstance(scalar, ir.Bits | ir.Bool | ir.Enum)
    return Run(type_, ir.Const(scalar, number, pos))


def zero(type_: t.Type, pos: ir.Position) -> Value:
    """Return the value that variables of the type start with."""
    match type_:
        case t.Int():
            return Number(0)
        case t.HeaderType():
            return Invalid(type_)
        case t.TypeVar() | t.ListType():
            return Group(type_, ())
        case t.StackType():
            return Group(type_, (zero(type_.element, pos),) * type_.size)
        case t.StructType() | t.UnionType() | t.Tuple():
            parts = (t.fields_of(type_) or {}).values()
            return Group(type_, tuple(zero(part, pos) for part in parts))
        case _:
            return constant(type_, 0, pos)


def parts_of(value: Value, pos: ir.Position) -> tuple[Value, ...]:
    """Return the elements of a stack or the fields of a header, struct or tuple."""
    if isinstance(value, Group):
        return value.parts
    assert isinstance(value, Run)
    return stored_parts(value, pos)


def stored_parts(value: Run, pos: ir.Position) -> tuple[Run, ...]:
    """Return the parts of something stored, as l-values if it is one."""
    shape = t.base(value.type)
    if isinstance(shape, t.StackType):
        element = shape.element
        exprs: list[tuple[t.Type, ir.Expr]] = [
            (element, ir.Index(element.ir, value.expr, ir.Const(t.BIT32, i, pos), pos))
            for i in range(shape.size)
        ]
    else:
        exprs = []
        for name, type_ in (t.fields_of(shape) or {}).items():
            lowered = t.lowered(type_)
            assert lowered is not None
            exprs.append((type_, ir.Member(lowered, value.expr, name, pos)))
    return tuple(Run(part, expr, value.writable, value.why) for part, expr in exprs)
