"""Values of checked expressions; names, their meanings, and scopes.

As P4 requires ("declare before use"), a scope sees only those names of its parent that were declared before
the scope was opened, even if its own names are declared much later.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
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
    """A value that the IR can express; the type of `expr` is the IR's version of `type`.

    `writable` is True for an l-value; `why` explains a value that looks like an l-value but is not.
    """

    type: t.Type
    expr: ir.Expr
    writable: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A struct, header or tuple that is given as a list of its parts.

    `type` is a `Tuple` or `RecordType` until a context determines the type. `rest` is True if the list ends
    in ``...``. `places` are the parts' positions in the source, or () if they are not in the source.
    """

    type: t.Type
    parts: tuple[Value, ...]
    rest: bool = False
    places: tuple[ir.Position, ...] = ()


@dataclass(frozen=True, slots=True)
class Default:
    """``...``: the default value of the type that the context expects."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """``{#}``, or the default value of a header. `type` is None until a context determines the type."""

    type: t.HeaderType | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The value of a call that returns nothing."""


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The result of ``table.apply()``; `apply` is the statement that was emitted for it.

    For a table with a selector, `hit` and `action` are the variables of `apply`; otherwise they are None.
    """

    apply: ir.Apply
    hit: ir.Var | None = None
    action: ir.Var | None = None


@dataclass(frozen=True, slots=True)
class PacketValue:
    """The ``packet_in`` or ``packet_out`` of a parser or deparser."""

    type: t.ExternType
    decl: ast.ExternDecl


OBJECTS = (
    *("register", "counter", "meter", "direct_counter", "direct_meter"),
    *("action_profile", "action_selector", "Checksum16"),
)
"""The externs of v1model that programs instantiate."""


@dataclass(frozen=True, slots=True, eq=False)
class Object(ir.SourceNode):
    """An instance of an extern; `name` is its control-plane name.

    `unit` is the unit of a counter or meter, or the algorithm of an action selector. `colour` is the name of
    the variable that a direct meter writes, or that holds the state of some of Tofino's externs.
    """

    type: t.ExternType
    decl: ast.ExternDecl
    name: str
    unit: str = ""
    annotations: tuple[ir.Annotation, ...] = ()
    colour: str = ""
    details: object = None  # further data, depending on the architecture and the extern


@dataclass(frozen=True, slots=True, eq=False)
class Block(ir.SourceNode):
    """An instance of a control or parser before it is applied, with its constructor arguments."""

    decl: ast.ControlDecl | ast.ParserDecl
    args: tuple[tuple[str, object], ...]  # values, and instances of other blocks


Value = (
    Number
    | Text
    | Run
    | GroupValue
    | Default
    | Invalid
    | Nothing
    | ApplyOutcome
    | PacketValue
    | Object
    | Block
)


def type_of(value: Value) -> t.Type:
    """Return the type of a value."""
    match value:
        case Number():
            return t.INT
        case Text():
            return t.STRING
        case Run() | GroupValue() | PacketValue() | Object():
            return value.type
        case Invalid():
            return value.type if value.type is not None else t.Rest()
        case Default():
            return t.Rest()
        case Nothing():
            return t.VOID
        case ApplyOutcome(apply):
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
    """Return True if a value is a compile-time constant."""
    match value:
        case Run(_, expr):
            return isinstance(expr, ir.Const)
        case GroupValue(_, parts):
            return all(is_constant(part) for part in parts)
        case Nothing() | ApplyOutcome():
            return False
        case _:
            return True


def number_of(value: Value) -> int | None:
    """Return the number that a value is; None if it is not a compile-time constant."""
    match value:
        case Number(number) | Run(_, ir.Const(_, number)):
            return number
        case _:
            return None


def constant(type_: t.Type, number: int, pos: ir.Position) -> Run:
    """Return the constant `number` of a scalar type."""
    scalar = t.lowered(type_)
    assert isinstance(scalar, ir.Bits | ir.Bool | ir.Enum)
    return Run(type_, ir.Const(scalar, number, pos=pos))


def zero(type_: t.Type, pos: ir.Position) -> Value:
    """Return the initial value of a variable of the type: scalars zero, headers invalid."""
    match type_:
        case t.Int():
            return Number(0)
        case t.HeaderType():
            return Invalid(type_)
        case t.TypeVar() | t.ListType():
            return GroupValue(type_, ())
        case t.StackType():
            return GroupValue(type_, (zero(type_.element, pos),) * type_.size)
        case t.StructType() | t.UnionType() | t.Tuple():
            parts = (t.fields_of(type_) or {}).values()
            return GroupValue(type_, tuple(zero(part, pos) for part in parts))
        case _:
            return constant(type_, 0, pos)


def parts_of(value: Value, pos: ir.Position) -> tuple[Value, ...]:
    """Return the elements of a stack or the fields of a header, struct or tuple."""
    if isinstance(value, GroupValue):
        return value.parts
    assert isinstance(value, Run)
    return stored_parts(value, pos)


def stored_parts(value: Run, pos: ir.Position) -> tuple[Run, ...]:
    """Return the elements or fields of a stored value; they are l-values if `value` is an l-value."""
    shape = t.base(value.type)
    if isinstance(shape, t.StackType):
        element = shape.element
        exprs: list[tuple[t.Type, ir.Expr]] = [
            (element, ir.Index(element.ir, value.expr, ir.Const(t.BIT32, i, pos=pos), pos=pos))
            for i in range(shape.size)
        ]
    else:
        exprs = []
        for name, type_ in (t.fields_of(shape) or {}).items():
            lowered = t.stored(type_)
            exprs.append((type_, ir.Member(lowered, value.expr, name, pos=pos)))
    return tuple(Run(part, expr, value.writable, value.why) for part, expr in exprs)


@dataclass(frozen=True, slots=True)
class Variable(ir.SourceNode):
    """A variable, parameter, constant or extern instance: anything that has a value."""

    value: Value


@dataclass(frozen=True, slots=True)
class TypeName(ir.SourceNode):
    """A name that denotes a type."""

    type: t.Type


@dataclass(frozen=True, slots=True)
class GenericType(ir.SourceNode):
    """A struct, header or header union with type parameters.

    `made` holds, by type arguments, each specialised type and the errors for its unsupported features.
    """

    decl: ast.FieldsDecl
    scope: Scope
    made: dict[tuple[t.Type, ...], tuple[t.Type, list[Unsupported]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExternDef(ir.SourceNode):
    """An extern that programs instantiate."""

    decl: ast.ExternDecl
    scope: Scope


@dataclass(frozen=True, slots=True)
class ExternFunctions(ir.SourceNode):
    """The overloads of an extern function."""

    overloads: list[ast.Prototype]
    scope: Scope


@dataclass(frozen=True, slots=True)
class Functions(ir.SourceNode):
    """The overloads of a function."""

    overloads: list[ast.FunctionDecl]
    scope: Scope


@dataclass(frozen=True, slots=True)
class BlockDef(ir.SourceNode):
    """A declared control or parser (with a body)."""

    decl: ast.ControlDecl | ast.ParserDecl
    scope: Scope


@dataclass(frozen=True, slots=True)
class Signature(ir.SourceNode):
    """A control, parser or package type."""

    decl: ast.ControlTypeDecl | ast.ParserTypeDecl | ast.PackageDecl


@dataclass(frozen=True, slots=True)
class Local(ir.SourceNode):
    """A name of an action, table, value set or instance; `item` is the named object."""

    item: object


@dataclass(frozen=True, slots=True)
class Broken(ir.SourceNode):
    """A name whose declaration has an error, which is already reported."""


class AlreadySaid(CompileError):
    """The error for a use of a `Broken` name; not reported, because the declaration's error was reported."""


Symbol = (
    Broken
    | Variable
    | TypeName
    | GenericType
    | ExternDef
    | ExternFunctions
    | Functions
    | BlockDef
    | Signature
    | Local
)


class Scope:
    """The names declared in one block, with the scope of the enclosing block as `parent`."""

    __slots__ = ("_limit", "names", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, tuple[int, Symbol]] = {}
        self._limit = len(parent.names) if parent is not None else 0

    def find(self, name: str) -> Symbol | None:
        """Return the symbol of `name` in this scope or an enclosing one; None if there is none."""
        scope: Scope | None = self
        limit = len(self.names)
        while scope is not None:
            entry = scope.names.get(name)
            if entry is not None and entry[0] < limit:
                return entry[1]
            limit = scope._limit
            scope = scope.parent
        return None

    def root(self) -> Scope:
        """Return the global scope, limited to the names that are visible from this scope."""
        scope = self
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        if scope.parent is None:
            return scope
        outer = Scope(scope.parent)
        outer._limit = scope._limit
        return outer

    def declare(self, name: str, symbol: Symbol) -> None:
        """Add a name. Raises CompileError if this scope (not an enclosing one) already has it."""
        if name in self.names:
            first = self.names[name][1].pos
            raise CompileError(
                f"{name!r} is already declared at {first}",
                symbol.pos,
                "a name of its own for each declaration",
            )
        self.names[name] = (len(self.names), symbol)

    def break_name(self, name: str, pos: ir.Position) -> None:
        """Declare a name whose declaration is wrong, so that its uses raise no errors."""
        self.names.setdefault(name, (len(self.names), Broken(pos=pos)))

    def lookup(self, name: str, pos: ir.Position, *, absolute: bool = False) -> Symbol:
        """Return the symbol of `name`. Raises CompileError, with similar names, if it is unknown."""
        symbol = (self.root() if absolute else self).find(name)
        if isinstance(symbol, Broken):
            raise AlreadySaid(f"{name!r} is declared wrongly", pos)
        if symbol is not None:
            return symbol
        later = self._declared_later(name)
        if later is not None:
            raise CompileError(
                f"{name!r} is used before its declaration at {later}",
                pos,
                "a declaration above its first use",
            )
        raise unknown("name", name, self.visible(), pos)

    def visible(self) -> Iterator[str]:
        """Yield every visible name."""
        scope: Scope | None = self
        limit = len(self.names)
        while scope is not None:
            for name, (order, _) in scope.names.items():
                if order < limit:
                    yield name
            limit = scope._limit
            scope = scope.parent

    def _declared_later(self, name: str) -> ir.Position | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name][1].pos
            scope = scope.parent
        return None


def unknown(what: str, name: str, candidates: Iterable[str], pos: ir.Position) -> CompileError:
    """Return the error for an unknown `name` of kind `what`. It lists similar names of `candidates`."""
    choices = list(dict.fromkeys(candidates))
    near = difflib.get_close_matches(name, choices, n=3)
    if near:
        return CompileError(f"unknown {what} {name!r}", pos, " or ".join(map(repr, near)))
    listed = ", ".join(sorted(choices)) if 0 < len(choices) <= 12 else None
    return CompileError(f"unknown {what} {name!r}", pos, f"one of {listed}" if listed else None)


@dataclass(frozen=True, slots=True)
class Formal(ir.SourceNode):
    """A parameter with its resolved type."""

    direction: str
    type: t.Type
    name: str
    default: ast.Expr | None = None

    @property
    def returns(self) -> bool:
        """True if the callee may change the argument."""
        return self.direction in ("out", "inout")


@dataclass(frozen=True, slots=True)
class PassedValues:
    """The values of parameters inside a callee, and the copy-out assignments to emit after its body."""

    values: Mapping[str, Value]
    copy_outs: tuple[ir.Assign, ...]
    # The variables of parameters that are not passed by name.
    variables: Mapping[str, ir.Var] = field(default_factory=dict)

    def declare(self, scope: Scope, formals: Sequence[Formal]) -> None:
        """Declare the parameters, with their values, in the callee's scope."""
        for formal in formals:
            scope.declare(formal.name, Variable(self.values[formal.name], pos=formal.pos))
