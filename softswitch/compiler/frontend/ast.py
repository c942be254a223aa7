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

Annotations, types and expressions are defined in `ast_expressions`, statements and functions in
`ast_statements`.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.frontend.ast_expressions import (
    Annotation,
    Argument,
    Binary,
    BitsType,
    BoolLiteral,
    BoolType,
    Call,
    Cast,
    Default,
    DontCare,
    DontCareType,
    Dots,
    ErrorType,
    Expr,
    Index,
    IntegerType,
    IntLiteral,
    InvalidHeader,
    ListExpr,
    ListType,
    Mask,
    MatchKindType,
    Member,
    Mux,
    Name,
    NamedType,
    PlusSlice,
    Range,
    Slice,
    StackType,
    StringLiteral,
    StringType,
    StructExpr,
    This,
    TupleType,
    TypeExpr,
    TypeRef,
    Unary,
    VarbitType,
    VoidType,
)
from softswitch.compiler.frontend.ast_statements import (
    Assign,
    Block,
    Break,
    CallStatement,
    ConstDecl,
    Continue,
    Exit,
    For,
    ForIn,
    FunctionDecl,
    If,
    Instantiation,
    Param,
    Prototype,
    Return,
    Stmt,
    Switch,
    SwitchCase,
    TypeParam,
    VarDecl,
)
from softswitch.compiler.ir import Position

__all__ = [
    "ActionDecl",
    "ActionRef",
    "Annotation",
    "Argument",
    "Assign",
    "Binary",
    "BitsType",
    "Block",
    "BoolLiteral",
    "BoolType",
    "Break",
    "Call",
    "CallStatement",
    "Cast",
    "ConstDecl",
    "Continue",
    "ControlDecl",
    "ControlTypeDecl",
    "Decl",
    "Default",
    "DontCare",
    "DontCareType",
    "Dots",
    "Entries",
    "Entry",
    "EnumDecl",
    "EnumMember",
    "ErrorDecl",
    "ErrorType",
    "Exit",
    "Expr",
    "ExternDecl",
    "ExternFunctionDecl",
    "Field",
    "For",
    "ForIn",
    "FunctionDecl",
    "Goto",
    "HeaderDecl",
    "HeaderUnionDecl",
    "If",
    "Index",
    "Instantiation",
    "IntLiteral",
    "IntegerType",
    "InvalidHeader",
    "KeyElement",
    "ListExpr",
    "ListType",
    "Mask",
    "MatchKindDecl",
    "MatchKindType",
    "Member",
    "Mux",
    "Name",
    "NamedType",
    "PackageDecl",
    "Param",
    "ParserDecl",
    "ParserTypeDecl",
    "PlusSlice",
    "Program",
    "Property",
    "Prototype",
    "Range",
    "Return",
    "Select",
    "SelectCase",
    "Slice",
    "StackType",
    "State",
    "Stmt",
    "StringLiteral",
    "StringType",
    "StructDecl",
    "StructExpr",
    "Switch",
    "SwitchCase",
    "TableDecl",
    "This",
    "TupleType",
    "TypeExpr",
    "TypeParam",
    "TypeRef",
    "TypedefDecl",
    "Unary",
    "ValueSetDecl",
    "VarDecl",
    "VarbitType",
    "VoidType",
]

# --------------------------------------------------------------------------- types that have a name


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
