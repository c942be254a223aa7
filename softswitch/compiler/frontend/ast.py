"""The abstract syntax tree of P4_16: the source before any name is looked up.

Nodes are close to the grammar of the P4_16 specification (1.2.5), with these simplifications:

* Parentheses leave no node, empty declarations and statements (``;``) neither.
* A constructor call ``Foo<T>(x)`` is a `Call` whose callee is a `Name`, as is a function call:
  which it is, only name resolution can tell.
* A keyset ``(a, b)`` is a tuple of its components, one key ``a`` a tuple of one.

Every node has a position `pos`. It is the one that an error about the node should point at:
of a declaration its name, of a binary or conditional expression its operator, of a member
access the member's name, of an index or slice its bracket, of a call its callee's position,
and of everything else its first token.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.ir import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The base of all nodes: where an error about one should point."""

    pos: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated(Node):
    """The base of nodes that may have annotations."""

    annotations: tuple[Annotation, ...] = ()


# --------------------------------------------------------------------------- annotations


@dataclass(frozen=True, slots=True)
class Annotation(Node):
    """``@name``, ``@name(body)`` or ``@name[elements]``.

    `body` is the source text between the parentheses (brackets), stripped, "" without any.
    `elements` is None except in the structured form with brackets.
    """

    name: str
    body: str
    elements: tuple[Argument, ...] | None


# --------------------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class BoolType(Node):
    """``bool``."""


@dataclass(frozen=True, slots=True)
class ErrorType(Node):
    """``error``."""


@dataclass(frozen=True, slots=True)
class MatchKindType(Node):
    """``match_kind``."""


@dataclass(frozen=True, slots=True)
class StringType(Node):
    """``string``."""


@dataclass(frozen=True, slots=True)
class VoidType(Node):
    """``void``."""


@dataclass(frozen=True, slots=True)
class DontCareType(Node):
    """``_`` as a type argument: to be inferred."""


@dataclass(frozen=True, slots=True)
class IntegerType(Node):
    """``int`` without width: compile-time integers."""


@dataclass(frozen=True, slots=True)
class BitsType(Node):
    """``bit<width>`` or ``int<width>``; plain ``bit`` has the literal width 1."""

    width: Expr
    signed: bool


@dataclass(frozen=True, slots=True)
class VarbitType(Node):
    """``varbit<width>``."""

    width: Expr


@dataclass(frozen=True, slots=True)
class TupleType(Node):
    """``tuple<A, B>``."""

    elements: tuple[TypeRef, ...]


@dataclass(frozen=True, slots=True)
class ListType(Node):
    """``list<A>``."""

    element: TypeRef


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """A type by name; `absolute` with a leading dot, `args` of ``Name<A, B>``."""

    name: str
    absolute: bool
    args: tuple[TypeRef, ...]


@dataclass(frozen=True, slots=True)
class StackType(Node):
    """``Element[size]``: a header stack, or an array in newer specifications."""

    element: TypeRef
    size: Expr


TypeRef = (
    BoolType
    | ErrorType
    | MatchKindType
    | StringType
    | VoidType
    | DontCareType
    | IntegerType
    | BitsType
    | VarbitType
    | TupleType
    | ListType
    | NamedType
    | StackType
)

# --------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class IntLiteral(Node):
    """A number; `width` is None without ``w`` or ``s`` in the literal."""

    value: int
    width: int | None
    signed: bool


@dataclass(frozen=True, slots=True)
class BoolLiteral(Node):
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class StringLiteral(Node):
    """A string; escaped quotes and backslashes are resolved in `value`."""

    value: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name of anything, types included; `absolute` with a leading dot."""

    name: str
    absolute: bool


@dataclass(frozen=True, slots=True)
class This(Node):
    """``this``."""


@dataclass(frozen=True, slots=True)
class TypeExpr(Node):
    """A type where only its members can follow: ``error.X``, ``Foo<T>.apply()``."""

    type: TypeRef


@dataclass(frozen=True, slots=True)
class Member(Node):
    """``base.name``."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    """``base[index]``."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """``base[high:low]``."""

    base: Expr
    high: Expr
    low: Expr


@dataclass(frozen=True, slots=True)
class PlusSlice(Node):
    """``base[low+:width]``."""

    base: Expr
    low: Expr
    width: Expr


@dataclass(frozen=True, slots=True)
class ListExpr(Node):
    """``{a, b}``; `dots` if it ends in ``...`` (defaults for the rest)."""

    elements: tuple[Expr, ...]
    dots: bool


@dataclass(frozen=True, slots=True)
class StructExpr(Node):
    """``{a = x, b = y}``; every field has a name; `dots` if it ends in ``...``."""

    fields: tuple[Argument, ...]
    dots: bool


@dataclass(frozen=True, slots=True)
class InvalidHeader(Node):
    """``{#}``."""


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``+ - ~ !``."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """``* / % + - |+| |-| ++ << >> < <= > >= == != & ^ | && ||``."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Mux(Node):
    """``condition ? then : otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """``(type) operand``."""

    type: TypeRef
    operand: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``callee<type_args>(args)``: function, method, action, ``apply`` or constructor."""

    callee: Expr
    type_args: tuple[TypeRef, ...]
    args: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class DontCare(Node):
    """``_`` as an argument or in a keyset."""


@dataclass(frozen=True, slots=True)
class Default(Node):
    """``default`` in a keyset or as a switch label."""


@dataclass(frozen=True, slots=True)
class Dots(Node):
    """``...``: the default value of the context's type."""


@dataclass(frozen=True, slots=True)
class Mask(Node):
    """``value &&& mask`` in a keyset."""

    value: Expr
    mask: Expr


@dataclass(frozen=True, slots=True)
class Range(Node):
    """``low .. high`` in a keyset or a ``for``."""

    low: Expr
    high: Expr


Expr = (
    IntLiteral
    | BoolLiteral
    | StringLiteral
    | Name
    | This
    | TypeExpr
    | Member
    | Index
    | Slice
    | PlusSlice
    | ListExpr
    | StructExpr
    | InvalidHeader
    | Unary
    | Binary
    | Mux
    | Cast
    | Call
    | DontCare
    | Default
    | Dots
    | Mask
    | Range
)


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """``value`` or ``name = value`` in a call, struct or annotation."""

    name: str | None
    value: Expr


# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """``target = value``, or a compound such as ``+=`` in `op`."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class CallStatement(Node):
    """A call for its effect."""

    call: Call


@dataclass(frozen=True, slots=True)
class Block(Annotated):
    """``{ … }``, a scope."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """``if (condition) then else otherwise``; an empty statement is an empty `Block`."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None


@dataclass(frozen=True, slots=True)
class SwitchCase(Node):
    """``label: body``; without a body it falls through to the next case's."""

    label: Expr
    body: Block | None


@dataclass(frozen=True, slots=True)
class Switch(Node):
    """``switch (subject) { … }``; labels are expressions, action names or `Default`."""

    subject: Expr
    cases: tuple[SwitchCase, ...]


@dataclass(frozen=True, slots=True)
class Return(Node):
    """``return value;``."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class Exit(Node):
    """``exit;``."""


@dataclass(frozen=True, slots=True)
class Break(Node):
    """``break;``."""


@dataclass(frozen=True, slots=True)
class Continue(Node):
    """``continue;``."""


@dataclass(frozen=True, slots=True)
class For(Annotated):
    """``for (init; condition; update) body``."""

    init: tuple[Stmt, ...]
    condition: Expr
    update: tuple[Stmt, ...]
    body: Stmt


@dataclass(frozen=True, slots=True)
class ForIn(Annotated):
    """``for (type name in collection) body``; with `type` None, `name` is an existing variable."""

    type: TypeRef | None
    name: str
    collection: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class VarDecl(Annotated):
    """``type name = value;``."""

    type: TypeRef
    name: str
    value: Expr | None


@dataclass(frozen=True, slots=True)
class ConstDecl(Annotated):
    """``const type name = value;``."""

    type: TypeRef
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Instantiation(Annotated):
    """``type(args) name = { initializer };``; the initialiser implements abstract methods."""

    type: TypeRef
    args: tuple[Argument, ...]
    name: str
    initializer: tuple[FunctionDecl | Instantiation, ...] | None


Stmt = (
    Assign
    | CallStatement
    | Block
    | If
    | Switch
    | Return
    | Exit
    | Break
    | Continue
    | For
    | ForIn
    | VarDecl
    | ConstDecl
    | Instantiation
)

# --------------------------------------------------------------------------- functions


@dataclass(frozen=True, slots=True)
class TypeParam(Node):
    """One of ``<A, B>`` behind a declared name."""

    name: str


@dataclass(frozen=True, slots=True)
class Param(Annotated):
    """A parameter; `direction` is "", "in", "out" or "inout"."""

    direction: str
    type: TypeRef
    name: str
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Prototype(Annotated):
    """A method or function without body; a constructor has no `result`."""

    result: TypeRef | None
    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    abstract: bool = False


@dataclass(frozen=True, slots=True)
class FunctionDecl(Node):
    """``result name<T>(…) { … }``."""

    prototype: Prototype
    body: Block


# --------------------------------------------------------------------------- types that have a name


@dataclass(frozen=True, slots=True)
class Field(Annotated):
    """A field of a header, struct or union."""

    type: TypeRef
    name: str


@dataclass(frozen=True, slots=True)
class HeaderDecl(Annotated):
    """``header name { … }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class StructDecl(Annotated):
    """``struct name { … }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class HeaderUnionDecl(Annotated):
    """``header_union name { … }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class EnumMember(Annotated):
    """A member; it has a value exactly if the enum has an underlying type."""

    name: str
    value: Expr | None


@dataclass(frozen=True, slots=True)
class EnumDecl(Annotated):
    """``enum name { … }`` or the serialisable ``enum underlying name { … }``."""

    underlying: TypeRef | None
    name: str
    members: tuple[EnumMember, ...]


@dataclass(frozen=True, slots=True)
class ErrorDecl(Node):
    """``error { … }``: adds members to the one error type."""

    members: tuple[EnumMember, ...]


@dataclass(frozen=True, slots=True)
class MatchKindDecl(Node):
    """``match_kind { … }``: adds members to the one match_kind type."""

    members: tuple[EnumMember, ...]


@dataclass(frozen=True, slots=True)
class TypedefDecl(Annotated):
    """``typedef type name;``, or with `distinct` ``type type name;`` (a new type)."""

    distinct: bool
    type: TypeRef | HeaderDecl | StructDecl | HeaderUnionDecl | EnumDecl
    name: str


# --------------------------------------------------------------------------- functions and externs


@dataclass(frozen=True, slots=True)
class ExternFunctionDecl(Node):
    """``extern result name<T>(…);``."""

    prototype: Prototype


@dataclass(frozen=True, slots=True)
class ExternDecl(Annotated):
    """``extern name<T> { … }``: constructors (no result) and methods."""

    name: str
    type_params: tuple[TypeParam, ...]
    methods: tuple[Prototype, ...]


@dataclass(frozen=True, slots=True)
class ActionDecl(Annotated):
    """``action name(…) { … }``."""

    name: str
    params: tuple[Param, ...]
    body: Block


# --------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class KeyElement(Annotated):
    """``expr : match;``."""

    expr: Expr
    match: str


@dataclass(frozen=True, slots=True)
class ActionRef(Annotated):
    """``name;`` or ``name(args);``; without parentheses `args` is None."""

    name: str
    absolute: bool
    args: tuple[Argument, ...] | None


@dataclass(frozen=True, slots=True)
class Entry(Annotated):
    """``const priority = p : keys : action;``; keys may be `DontCare`, `Default`, `Mask`, `Range`."""

    const: bool
    priority: Expr | None
    keys: tuple[Expr, ...]
    action: ActionRef


@dataclass(frozen=True, slots=True)
class Entries(Annotated):
    """The property ``entries = { … }``."""

    const: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Property(Annotated):
    """Any property ``name = value;`` but key, actions and entries.

    The value of ``default_action`` is a `Name` or a `Call`.
    """

    const: bool
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class TableDecl(Annotated):
    """``table name { … }``; each kind of property occurs at most once (None if absent)."""

    name: str
    keys: tuple[KeyElement, ...] | None
    actions: tuple[ActionRef, ...] | None
    entries: Entries | None
    properties: tuple[Property, ...]


# --------------------------------------------------------------------------- parsers, controls, packages


@dataclass(frozen=True, slots=True)
class SelectCase(Node):
    """``keys : target;``; keys as in `Entry`."""

    keys: tuple[Expr, ...]
    target: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """``transition select(subjects) { … }``."""

    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]


@dataclass(frozen=True, slots=True)
class Goto(Node):
    """``transition target;``."""

    target: str


@dataclass(frozen=True, slots=True)
class State(Annotated):
    """A parser state; a missing transition is None (it means reject)."""

    name: str
    body: tuple[Stmt, ...]
    transition: Select | Goto | None


@dataclass(frozen=True, slots=True)
class ValueSetDecl(Annotated):
    """``value_set<element>(size) name;``."""

    element: TypeRef
    size: Expr
    name: str


@dataclass(frozen=True, slots=True)
class ParserTypeDecl(Annotated):
    """``parser name<T>(…);``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class ParserDecl(Annotated):
    """``parser name<T>(params)(constructor_params) { locals states }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    constructor_params: tuple[Param, ...]
    locals: tuple[ConstDecl | VarDecl | Instantiation | ValueSetDecl, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class ControlTypeDecl(Annotated):
    """``control name<T>(…);``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class ControlDecl(Annotated):
    """``control name<T>(params)(constructor_params) { locals apply body }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    constructor_params: tuple[Param, ...]
    locals: tuple[ConstDecl | VarDecl | Instantiation | ActionDecl | TableDecl, ...]
    body: Block


@dataclass(frozen=True, slots=True)
class PackageDecl(Annotated):
    """``package name<T>(…);``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]


Decl = (
    ConstDecl
    | Instantiation
    | HeaderDecl
    | StructDecl
    | HeaderUnionDecl
    | EnumDecl
    | ErrorDecl
    | MatchKindDecl
    | TypedefDecl
    | ExternFunctionDecl
    | ExternDecl
    | FunctionDecl
    | ActionDecl
    | ParserTypeDecl
    | ParserDecl
    | ControlTypeDecl
    | ControlDecl
    | PackageDecl
)


@dataclass(frozen=True, slots=True)
class Program(Node):
    """A whole compilation unit: its top-level declarations in source order."""

    declarations: tuple[Decl, ...]
