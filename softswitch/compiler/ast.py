"""The abstract syntax tree of P4_16: what the source says, before any name is looked up.

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

# --------------------------------------------------------------------------- annotations


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@name``, ``@name(body)`` or ``@name[elements]``.

    `body` is the source text between the parentheses (brackets), stripped, "" without any.
    `elements` is None except in the structured form with brackets.
    """

    name: str
    body: str
    elements: tuple[Argument, ...] | None
    pos: Position


# --------------------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class BoolType:
    """``bool``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class ErrorType:
    """``error``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class MatchKindType:
    """``match_kind``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class StringType:
    """``string``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class VoidType:
    """``void``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class DontCareType:
    """``_`` as a type argument: to be inferred."""

    pos: Position


@dataclass(frozen=True, slots=True)
class IntegerType:
    """``int`` without width: compile-time integers."""

    pos: Position


@dataclass(frozen=True, slots=True)
class BitsType:
    """``bit<width>`` or ``int<width>``; plain ``bit`` has the literal width 1."""

    width: Expr
    signed: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class VarbitType:
    """``varbit<width>``."""

    width: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class TupleType:
    """``tuple<A, B>``."""

    elements: tuple[TypeRef, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class ListType:
    """``list<A>``."""

    element: TypeRef
    pos: Position


@dataclass(frozen=True, slots=True)
class NamedType:
    """A type by name; `absolute` with a leading dot, `args` of ``Name<A, B>``."""

    name: str
    absolute: bool
    args: tuple[TypeRef, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class StackType:
    """``Element[size]``: a header stack, or an array in newer specifications."""

    element: TypeRef
    size: Expr
    pos: Position


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
class IntLiteral:
    """A number; `width` is None without ``w`` or ``s`` in the literal."""

    value: int
    width: int | None
    signed: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class BoolLiteral:
    """``true`` or ``false``."""

    value: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class StringLiteral:
    """A string; escaped quotes and backslashes are resolved in `value`."""

    value: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Name:
    """A name of anything, types included; `absolute` with a leading dot."""

    name: str
    absolute: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class This:
    """``this``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class TypeExpr:
    """A type where only its members can follow: ``error.X``, ``Foo<T>.apply()``."""

    type: TypeRef
    pos: Position


@dataclass(frozen=True, slots=True)
class Member:
    """``base.name``."""

    base: Expr
    name: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Index:
    """``base[index]``."""

    base: Expr
    index: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Slice:
    """``base[high:low]``."""

    base: Expr
    high: Expr
    low: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class PlusSlice:
    """``base[low+:width]``."""

    base: Expr
    low: Expr
    width: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class ListExpr:
    """``{a, b}``; `dots` if it ends in ``...`` (defaults for the rest)."""

    elements: tuple[Expr, ...]
    dots: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class StructExpr:
    """``{a = x, b = y}``; every field has a name; `dots` if it ends in ``...``."""

    fields: tuple[Argument, ...]
    dots: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class InvalidHeader:
    """``{#}``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Unary:
    """``+ - ~ !``."""

    op: str
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Binary:
    """``* / % + - |+| |-| ++ << >> < <= > >= == != & ^ | && ||``."""

    op: str
    left: Expr
    right: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Mux:
    """``condition ? then : otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Cast:
    """``(type) operand``."""

    type: TypeRef
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Call:
    """``callee<type_args>(args)``: function, method, action, ``apply`` or constructor."""

    callee: Expr
    type_args: tuple[TypeRef, ...]
    args: tuple[Argument, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class DontCare:
    """``_`` as an argument or in a keyset."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Default:
    """``default`` in a keyset or as a switch label."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Dots:
    """``...``: the default value of the context's type."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Mask:
    """``value &&& mask`` in a keyset."""

    value: Expr
    mask: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Range:
    """``low .. high`` in a keyset or a ``for``."""

    low: Expr
    high: Expr
    pos: Position


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
class Argument:
    """``value`` or ``name = value`` in a call, struct or annotation."""

    name: str | None
    value: Expr
    pos: Position


# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign:
    """``target = value``, or a compound such as ``+=`` in `op`."""

    target: Expr
    op: str
    value: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class CallStatement:
    """A call for its effect."""

    call: Call
    pos: Position


@dataclass(frozen=True, slots=True)
class Block:
    """``{ … }``, a scope."""

    body: tuple[Stmt, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """``if (condition) then else otherwise``; an empty statement is an empty `Block`."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None
    pos: Position


@dataclass(frozen=True, slots=True)
class SwitchCase:
    """``label: body``; without a body it falls through to the next case's."""

    label: Expr
    body: Block | None
    pos: Position


@dataclass(frozen=True, slots=True)
class Switch:
    """``switch (subject) { … }``; labels are expressions, action names or `Default`."""

    subject: Expr
    cases: tuple[SwitchCase, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class Return:
    """``return value;``."""

    value: Expr | None
    pos: Position


@dataclass(frozen=True, slots=True)
class Exit:
    """``exit;``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Break:
    """``break;``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Continue:
    """``continue;``."""

    pos: Position


@dataclass(frozen=True, slots=True)
class For:
    """``for (init; condition; update) body``."""

    init: tuple[Stmt, ...]
    condition: Expr
    update: tuple[Stmt, ...]
    body: Stmt
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ForIn:
    """``for (type name in collection) body``; with `type` None, `name` is an existing variable."""

    type: TypeRef | None
    name: str
    collection: Expr
    body: Stmt
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class VarDecl:
    """``type name = value;``."""

    type: TypeRef
    name: str
    value: Expr | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ConstDecl:
    """``const type name = value;``."""

    type: TypeRef
    name: str
    value: Expr
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Instantiation:
    """``type(args) name = { initializer };``; the initialiser implements abstract methods."""

    type: TypeRef
    args: tuple[Argument, ...]
    name: str
    initializer: tuple[FunctionDecl | Instantiation, ...] | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


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

# --------------------------------------------------------------------------- types that have a name


@dataclass(frozen=True, slots=True)
class TypeParam:
    """One of ``<A, B>`` behind a declared name."""

    name: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter; `direction` is "", "in", "out" or "inout"."""

    direction: str
    type: TypeRef
    name: str
    default: Expr | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header, struct or union."""

    type: TypeRef
    name: str
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderDecl:
    """``header name { … }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[Field, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class StructDecl:
    """``struct name { … }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[Field, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderUnionDecl:
    """``header_union name { … }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[Field, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member; it has a value exactly if the enum has an underlying type."""

    name: str
    value: Expr | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class EnumDecl:
    """``enum name { … }`` or the serialisable ``enum underlying name { … }``."""

    underlying: TypeRef | None
    name: str
    members: tuple[EnumMember, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorDecl:
    """``error { … }``: adds members to the one error type."""

    members: tuple[EnumMember, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class MatchKindDecl:
    """``match_kind { … }``: adds members to the one match_kind type."""

    members: tuple[EnumMember, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class TypedefDecl:
    """``typedef type name;``, or with `distinct` ``type type name;`` (a new type)."""

    distinct: bool
    type: TypeRef | HeaderDecl | StructDecl | HeaderUnionDecl | EnumDecl
    name: str
    pos: Position
    annotations: tuple[Annotation, ...] = ()


# --------------------------------------------------------------------------- functions and externs


@dataclass(frozen=True, slots=True)
class Prototype:
    """A method or function without body; a constructor has no `result`."""

    result: TypeRef | None
    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()
    abstract: bool = False


@dataclass(frozen=True, slots=True)
class ExternFunctionDecl:
    """``extern result name<T>(…);``."""

    prototype: Prototype
    pos: Position


@dataclass(frozen=True, slots=True)
class ExternDecl:
    """``extern name<T> { … }``: constructors (no result) and methods."""

    name: str
    type_params: tuple[TypeParam, ...]
    methods: tuple[Prototype, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionDecl:
    """``result name<T>(…) { … }``."""

    prototype: Prototype
    body: Block
    pos: Position


@dataclass(frozen=True, slots=True)
class ActionDecl:
    """``action name(…) { … }``."""

    name: str
    params: tuple[Param, ...]
    body: Block
    pos: Position
    annotations: tuple[Annotation, ...] = ()


# --------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class KeyElement:
    """``expr : match;``."""

    expr: Expr
    match: str
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionRef:
    """``name;`` or ``name(args);``; without parentheses `args` is None."""

    name: str
    absolute: bool
    args: tuple[Argument, ...] | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """``const priority = p : keys : action;``; keys may be `DontCare`, `Default`, `Mask`, `Range`."""

    const: bool
    priority: Expr | None
    keys: tuple[Expr, ...]
    action: ActionRef
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Entries:
    """The property ``entries = { … }``."""

    const: bool
    entries: tuple[Entry, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Property:
    """Any property ``name = value;`` but key, actions and entries.

    The value of ``default_action`` is a `Name` or a `Call`.
    """

    const: bool
    name: str
    value: Expr
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class TableDecl:
    """``table name { … }``; each kind of property occurs at most once (None if absent)."""

    name: str
    keys: tuple[KeyElement, ...] | None
    actions: tuple[ActionRef, ...] | None
    entries: Entries | None
    properties: tuple[Property, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


# --------------------------------------------------------------------------- parsers, controls, packages


@dataclass(frozen=True, slots=True)
class SelectCase:
    """``keys : target;``; keys as in `Entry`."""

    keys: tuple[Expr, ...]
    target: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Select:
    """``transition select(subjects) { … }``."""

    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class Goto:
    """``transition target;``."""

    target: str
    pos: Position


@dataclass(frozen=True, slots=True)
class State:
    """A parser state; a missing transition is None (it means reject)."""

    name: str
    body: tuple[Stmt, ...]
    transition: Select | Goto | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueSetDecl:
    """``value_set<element>(size) name;``."""

    element: TypeRef
    size: Expr
    name: str
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ParserTypeDecl:
    """``parser name<T>(…);``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ParserDecl:
    """``parser name<T>(params)(constructor_params) { locals states }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    constructor_params: tuple[Param, ...]
    locals: tuple[ConstDecl | VarDecl | Instantiation | ValueSetDecl, ...]
    states: tuple[State, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlTypeDecl:
    """``control name<T>(…);``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlDecl:
    """``control name<T>(params)(constructor_params) { locals apply body }``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    constructor_params: tuple[Param, ...]
    locals: tuple[ConstDecl | VarDecl | Instantiation | ActionDecl | TableDecl, ...]
    body: Block
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class PackageDecl:
    """``package name<T>(…);``."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


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
class Program:
    """A whole compilation unit: its top-level declarations in source order."""

    declarations: tuple[Decl, ...]
    pos: Position
