"""The state of one compilation: the program so far, where statements are emitted, the architecture.

Declarations that may be used more than once (actions, tables, instances) are lowered at their first use, in
the scope of their declaration. This module also has queries of the syntax tree that need no types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum, auto
from typing import Any, TypeVar

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported, gathered
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.values import (
    AlreadySaid,
    Block,
    ExternDef,
    Object,
    PassedValues,
    Scope,
    Value,
)

_found: ContextVar[dict[ir.Remark, None]] = ContextVar("remarks")


@contextmanager
def collecting() -> Iterator[dict[ir.Remark, None]]:
    """Collect the warnings of `remark` in the ``with`` block, in order, without duplicates."""
    found: dict[ir.Remark, None] = {}
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def remark(message: str, pos: ir.Position) -> None:
    """Add a warning to the warnings that `collecting` collects."""
    _found.get({})[ir.Remark(message, pos=pos)] = None


class CodePlace(Enum):
    """The kind of code being lowered: it decides which calls and statements are allowed."""

    CONSTANT = "a constant expression"
    PARSER = "a parser"
    CONTROL = "a control"
    ACTION = "an action"
    FUNCTION = "a function"


class Stage(Enum):
    """The block of the pipeline that is being lowered: a block of v1model, or an additional one of Tofino."""

    NONE = auto()
    PARSER = auto()
    VERIFY = auto()
    INGRESS = auto()
    INGRESS_DEPARSER = auto()
    EGRESS_PARSER = auto()
    EGRESS = auto()
    COMPUTE = auto()
    DEPARSER = auto()


class Unit:
    """The state of a compilation: the parts of the program lowered so far, and the errors found so far."""

    def __init__(self, name: str, errors: ir.Enum, match_kinds: ir.Enum) -> None:
        self.name = name
        self.errors = errors
        self.match_kinds = match_kinds
        self.globals = Scope()
        self.variables: dict[str, ir.Type] = {}
        self.states: dict[str, ir.ParserState] = {}
        self.actions: dict[str, ir.Action] = {}
        self.called_actions: dict[str, ir.Action] = {}
        self.tables: dict[str, ir.Table] = {}
        self.registers: dict[str, ir.Register] = {}
        self.counters: dict[str, ir.Counter] = {}
        self.field_lists: dict[int, tuple[tuple[str, ...], ...]] = {}
        self.new_types: dict[str, ir.NewType] = {}
        self.action_profiles: dict[str, ir.ActionProfile] = {}
        self.register_arrays: dict[str, ir.RegisterArray] = {}
        self.meters: dict[str, ir.Meter] = {}
        self.digests: dict[str, ir.Digest] = {}
        self.controller_headers: dict[str, ir.ControllerHeader] = {}
        self.active: list[object] = []
        self.instantiated: set[int] = set()  # ids of used declarations of controls, parsers and functions
        # Functions of modules that import this one, for mutual recursion: `lower` sets them.
        self.call: Callable[[Body, ast.CallExpr], Value]
        self.make_object: Callable[[Body, ExternDef, ast.NamedType, ast.Instantiation, str], Object]
        self.architecture: Architecture
        self.packages: dict[
            str, ast.Instantiation
        ] = {}  # instances of packages that are part of another package
        self.statements: Callable[[Body, tuple[ast.Stmt, ...]], None]
        self._checking = False
        self._errors: list[CompileError] = []
        self._numbers: dict[str, int] = {}
        self._undo: list[Callable[[], object]] = []

    def report(self, error: CompileError) -> None:
        """Record an error, so that checks can continue; `raise_errors` raises the recorded errors."""
        if not isinstance(error, AlreadySaid):
            self._errors.append(error)

    def refuse(self, error: Unsupported) -> None:
        """Record valid but unsupported code as an error, except inside `only_checking`."""
        if not self._checking:
            self.report(error)

    @contextmanager
    def only_checking(self) -> Iterator[None]:
        """Ignore errors passed to `refuse` in the ``with`` block, which checks code that is not used."""
        outer, self._checking = self._checking, True
        try:
            yield
        finally:
            self._checking = outer

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Record a CompileError of the ``with`` block with `report`, instead of raising it."""
        try:
            yield
        except CompileError as error:
            self.report(error)

    def raise_errors(self) -> None:
        """Raise the recorded errors, if any, as one CompileError."""
        if self._errors:
            raise gathered(self._errors)

    def variable(self, name: str, type_: ir.Type) -> str:
        """Add a variable and return its name, which is `name` or, if that is taken, ``name#2`` and so on."""
        number = self._numbers.get(name, 0) + 1
        self._numbers[name] = number
        unique = name if number == 1 else f"{name}#{number}"
        self.variables[unique] = type_
        return unique

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Discard, at the end of the ``with`` block, everything that the block has added to the program.

        Use it to check unused code.
        """
        undo = len(self._undo)
        kept = [
            (registry, dict(registry))
            for registry in (
                self.variables,
                self.states,
                self.actions,
                self.called_actions,
                self.tables,
                self.registers,
                self.register_arrays,
                self.counters,
                self.action_profiles,
                self.meters,
                self.digests,
                self.field_lists,
            )
        ]
        try:
            yield
        finally:
            for registry, before in kept:
                registry.clear()
                registry.update(before)  # type: ignore[arg-type]  # the contents before the block
            while len(self._undo) > undo:
                self._undo.pop()()

    def on_forget(self, undo: Callable[[], object]) -> None:
        """Call `undo` at the end of the enclosing `scratch` block, if there is one."""
        self._undo.append(undo)

    @contextmanager
    def entered(self, decl: object, what: str, pos: ir.Position) -> Iterator[None]:
        """Mark a callable as being lowered during the ``with`` block.

        Raises CompileError if the callable is being lowered already: then it calls itself.
        """
        if any(decl is other for other in self.active):
            raise CompileError(f"{what} calls itself", pos, "no recursion, as P4 does not allow it")
        self.active.append(decl)
        try:
            yield
        finally:
            self.active.pop()


Fields = dict[str, Any]
"""Fields of `ir.Program` by name, as keyword arguments."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture's properties, which `lower` queries.

    Attributes:
        checks: Name and number of blocks of the package whose arguments `lower` checks itself; None: none.
        parts: Names of packages whose instances may be arguments of the main package.
        makers: For each extern, the function that adds an instance to the program, which gets an
            `extern_calls.Making`.
        methods: For an extern, or one of its methods (``register.read``), the function that lowers a call,
            which gets an `extern_calls.MethodCall`.
        functions: For each extern function, the function that lowers a call, which gets an
            `extern_calls.ExternCall`.
        lacks: End of the message that the architecture lacks an extern or extern function. If empty, the
            message lists those that the architecture has.
        check: Raises Unsupported if the main package is not one of the architecture's.
        lower: Lowers the blocks of ``main``. Returns a function that must be called after all other code has
            been checked, and which returns fields of the `ir.Program`. The function's argument: True to raise
            CompileError for a register that a packet may access twice.
    """

    checks: tuple[str, int] | None
    parts: tuple[str, ...]
    makers: Mapping[str, Callable[[Any], Object]]
    methods: Mapping[str, Callable[[Any], Value]]
    functions: Mapping[str, Callable[[Any], Value]]
    lacks: str
    check: Callable[[Unit, ast.Instantiation], None]
    lower: Callable[[Unit, ast.Instantiation], Callable[[bool], Fields]]

    def unsupported(self, what: str, known: Iterable[str], pos: ir.Position) -> Unsupported:
        """Return the error for an extern or extern function that this architecture lacks."""
        return Unsupported(what + self.lacks, pos, None if self.lacks else ", ".join(sorted(known)))


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """The type of a function's result, and the variable that receives its value (None for void)."""

    type: t.Type
    variable: ir.Var | None


@dataclass(slots=True)
class BodyUsage:
    """Facts about a lowered body: the number of its `Return` statements, and whether it may exit."""

    returns: int = 0
    exits: bool = False


@dataclass(slots=True)
class Body:
    """The code being lowered: its scope and context, and in `out` the statements emitted so far."""

    unit: Unit
    scope: Scope
    place: CodePlace
    stage: Stage
    prefix: str  # prefix of the names of new variables
    control: str = ""  # control-plane name of the enclosing control
    repeats: bool = False  # may run more than once per packet, so locals must be cleared
    result: FunctionResult | None = None
    out: list[ir.Stmt] = field(default_factory=list)
    usage: BodyUsage = field(default_factory=BodyUsage)
    # Assignments for `exit` to copy values back to callers, innermost first.
    copy_outs: tuple[ir.Assign, ...] = ()
    loops: int = 0  # number of enclosing loops in the same body

    def inside(
        self,
        *,
        scope: Scope,
        place: CodePlace,
        prefix: str,
        result: FunctionResult | None = None,
        copy_outs: tuple[ir.Assign, ...] = (),
    ) -> Body:
        """Return a new `Body` for the code of a control, parser, action or function that this code calls."""
        return replace(
            self,
            scope=scope,
            place=place,
            prefix=prefix,
            result=result,
            out=[],
            usage=BodyUsage(),
            copy_outs=copy_outs + self.copy_outs,
            loops=0,
        )

    @contextmanager
    def block(self) -> Iterator[list[ir.Stmt]]:
        """Open a nested scope for the ``with`` block; yield the list of statements that are emitted in it."""
        scope, out = self.scope, self.out
        self.scope, self.out = Scope(scope), []
        try:
            yield self.out
        finally:
            self.scope, self.out = scope, out

    def finished(self, pos: ir.Position) -> tuple[ir.Stmt, ...]:
        """Return the emitted statements, without a `Return` at their end.

        If other `Return` statements remain, the result is one `ir.Inlined` with all statements.
        """
        if self.out and isinstance(self.out[-1], ir.Return):
            self.out.pop()
            self.usage.returns -= 1
        statements = tuple(self.out)
        return (ir.Inlined(statements, pos=pos),) if self.usage.returns else statements

    def take_since(self, mark: int) -> tuple[ir.Stmt, ...]:
        """Remove from `out` all statements after the first `mark`, and return them."""
        taken = tuple(self.out[mark:])
        del self.out[mark:]
        return taken

    def temporary(self, type_: t.Type, hint: str, pos: ir.Position) -> ir.Var:
        """Return a new variable for a value of `type_`; `hint` is part of its name.

        Raises CompileError if the type's values do not exist at run time.
        """
        lowered = t.lowered(type_)
        if lowered is None:
            raise CompileError(
                f"no variable can hold {t.describe(type_)}", pos, "a type that exists at run time"
            )
        return ir.Var(lowered, self.unit.variable(f"{self.prefix}.{hint}", lowered), pos=pos)

    def held(self, value: ir.Expr, hint: str, pos: ir.Position) -> ir.Var:
        """Emit the copy of a value to a new variable, and return the variable; `hint` is part of its name."""
        variable = ir.Var(value.type, self.unit.variable(f"{self.prefix}.{hint}", value.type), pos=pos)
        self.out.append(ir.Assign(variable, value, pos=pos))
        return variable


def constant_body(unit: Unit, scope: Scope) -> Body:
    """Return a `Body` for expressions that must be known at compile time."""
    return Body(unit, scope, CodePlace.CONSTANT, Stage.NONE, "constant")


@dataclass(slots=True, eq=False)
class DeclaredAction:
    """A declared action; `owner` is the control that contains the declaration (None: it is global)."""

    decl: ast.ActionDecl
    name: str
    scope: Scope
    owner: Body | None
    lowered: ir.Action | None = None
    used: bool = False
    exits: bool = False
    specialised: list[tuple[tuple[str, ...], str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """The choice of a group's member in a table with a selector: ``slot = hash(data) % count``.

    `index` is the position of the group action in the table's actions.
    """

    algorithm: str
    data: tuple[ir.Expr, ...]
    count: ir.Var
    slot: ir.Var
    index: int


@dataclass(slots=True, eq=False)
class DeclaredTable:
    """A declared table.

    `prelude` are statements that compute its keys before each application; `names` are the actions' names in
    the source.
    """

    decl: ast.TableDecl
    name: str
    scope: Scope
    owner: Body
    lowered: ir.Table | None = None
    used: bool = False
    exits: bool = False
    prelude: tuple[ir.Stmt, ...] = ()
    names: tuple[str, ...] = ()
    selector: Selector | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ValueSet:
    """A value set: its members are the entries of table `name`. The table's keys, `keys`, are variables."""

    name: str
    keys: tuple[ir.Key, ...]


@dataclass(slots=True, eq=False)
class Instance:
    """An instance of a control or parser.

    `sites` is the number of the instance's applications. `copied` are the parameters whose arguments may
    differ between applications: they are passed in variables. The first application sets `passed` and `body`.
    """

    block: Block
    name: str
    scope: Scope
    sites: int = 1
    copied: frozenset[str] = frozenset()
    variables: dict[str, ir.Var] = field(default_factory=dict)
    passed: PassedValues | None = None
    body: tuple[ir.Stmt, ...] = ()
    exits: bool = False


_Named = TypeVar("_Named", bound=ir.ControlObject)


def add_named(registry: dict[str, _Named], item: _Named, kind: str = "objects") -> None:
    """Add an object to the program. Raises CompileError if another one has its control-plane name."""
    other = registry.setdefault(item.name, item)
    if other is not item:
        raise CompileError(
            f"two {kind} have the control-plane name {item.name!r}; the other is at {other.pos}",
            item.pos,
            "another @name for one of them",
        )


def walk(node: object) -> Iterator[object]:
    """Yield `node` and every node below it."""
    if isinstance(node, tuple):
        for item in node:
            yield from walk(item)
    elif is_dataclass(node) and not isinstance(node, ir.Position):
        yield node
        for field in fields(node):
            yield from walk(getattr(node, field.name))


def source_text(expr: ast.Expr) -> str | None:
    """Return the P4Info name of a key that is a path, slice, mask or ``isValid()``; None for other keys."""
    match expr:
        case ast.Name(name):
            return name
        case ast.MemberExpr(base, name):
            rest: str | None = f".{name}"
        case ast.IndexExpr(base, ast.IntLiteral(value)):
            rest = f"[{value}]"
        case ast.IndexExpr(base, index):
            inner = source_text(index)
            rest = None if inner is None else f"[{inner}]"
        case ast.BinaryExpr("&", base, ast.IntLiteral(mask)):
            rest = f" & {mask:#x}"
        case ast.SliceExpr(base, ast.IntLiteral(high), ast.IntLiteral(low)):
            rest = f"[{high}:{low}]"
        case ast.CallExpr(ast.MemberExpr(base, "isValid"), (), ()):
            rest = ".$valid$"
        case _:
            return None
    text = source_text(base)
    return None if text is None or rest is None else text + rest


def applications(node: object, name: str) -> list[ast.CallExpr]:
    """Return the calls ``name.apply(…)`` below a node."""
    return [
        call
        for call in walk(node)
        if isinstance(call, ast.CallExpr)
        and isinstance(call.callee, ast.MemberExpr)
        and call.callee.name == "apply"
        and isinstance(call.callee.base, ast.Name)
        and call.callee.base.name == name
    ]


def control_name(prefix: str, name: str, annotations: tuple[ast.SourceAnnotation, ...]) -> str:
    """Return a control-plane name: `prefix`, a dot, and the ``@name`` or, without ``@name``, `name`.

    A ``@name`` that begins with a dot is absolute: it gets no prefix.
    """
    for annotation in annotations:
        if annotation.name == "name":
            name = _string(annotation)
            if name.startswith("."):
                return name[1:]
    return f"{prefix}.{name}" if prefix else name


def _string(annotation: ast.SourceAnnotation) -> str:
    body = annotation.body
    if len(body) >= 2 and body[0] == body[-1] == '"':
        return body[1:-1]
    raise CompileError(f"@name({body}) is not a string", annotation.pos, '@name("…")')


def spelling(expr: object) -> str:
    """Return a node as text without positions: nodes that differ only in positions have equal texts."""
    match expr:
        case ir.Position():
            return ""
        case ast.StructExpr(members, dots):
            values = sorted((member.name or "", spelling(member.value)) for member in members)
            return f"StructExpr({values}, {dots})"
        case tuple():
            return "(" + ",".join(map(spelling, expr)) + ")"
        case _ if is_dataclass(expr):
            parts = ",".join(spelling(getattr(expr, f.name)) for f in fields(expr) if f.name != "pos")
            return f"{type(expr).__name__}({parts})"
        case _:
            return repr(expr)
