"""The abstract syntax tree of P4_16: the source before any name is looked up.

Nodes are close to the grammar of the P4_16 specification (1.2.5), with these simplifications:

* Parentheses, empty declarations and empty statements (``;``) leave no node.
* A constructor call ``Foo<T>(x)`` is a `CallExpr` whose callee is a `Name`, as is a function call:
  only name resolution can distinguish them.
* A keyset ``(a, b)`` is a tuple of its components; a single key ``a`` is a tuple of one component.

Every node has a position `pos`, at which an error about the node should point:
the name of a declaration, the operator of a binary or conditional expression, the member's name of a member
access, the bracket of an index or slice, the callee of a call, and the first token of every other node.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.ir import SourceNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated(SourceNode):
    """The base of nodes that may have annotations."""

    annotations: tuple[SourceAnnotation, ...] = ()


# --------------------------------------------------------------------------- annotations


@dataclass(frozen=True, slots=True)
class SourceAnnotation(SourceNode):
    """``@name``, ``@name(body)`` or ``@name[elements]``.

    `body` is the source text in the parentheses or brackets, without white space at its ends; "" if there are
    neither. `elements` is None except in the structured form, which has brackets.
    """

    name: str
    body: str
    elements: tuple[GivenArgument, ...] | None


# --------------------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class BasicType(SourceNode):
    """``bool``, ``error``, ``match_kind``, ``string``, ``void``, ``int`` without width; or ``_``."""

    name: str


@dataclass(frozen=True, slots=True)
class BitsType(SourceNode):
    """``bit<width>`` or ``int<width>``; plain ``bit`` has the literal width 1."""

    width: Expr
    signed: bool


@dataclass(frozen=True, slots=True)
class VarbitType(SourceNode):
    """``varbit<width>``."""

    width: Expr


@dataclass(frozen=True, slots=True)
class TupleType(SourceNode):
    """``tuple<A, B>``."""

    elements: tuple[TypeRef, ...]


@dataclass(frozen=True, slots=True)
class ListTypeRef(SourceNode):
    """``list<A>``."""

    element: TypeRef


@dataclass(frozen=True, slots=True)
class NamedType(SourceNode):
    """A type by name. `absolute`: it has a leading dot; `args`: the type arguments of ``Name<A, B>``."""

    name: str
    absolute: bool
    args: tuple[TypeRef, ...]


@dataclass(frozen=True, slots=True)
class StackTypeRef(SourceNode):
    """``Element[size]``: a header stack, or an array in newer specifications."""

    element: TypeRef
    size: Expr


TypeRef = BasicType | BitsType | VarbitType | TupleType | ListTypeRef | NamedType | StackTypeRef

# --------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class IntLiteral(SourceNode):
    """A number; `width` is None if the literal gives no width (``8w5`` and ``8s5`` do)."""

    value: int
    width: int | None
    signed: bool


@dataclass(frozen=True, slots=True)
class BoolLiteral(SourceNode):
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class StringLiteral(SourceNode):
    """A string; escaped quotes and backslashes are resolved in `value`."""

    value: str


@dataclass(frozen=True, slots=True)
class Name(SourceNode):
    """A name of any kind, types included; `absolute` if it has a leading dot."""

    name: str
    absolute: bool


@dataclass(frozen=True, slots=True)
class Word(SourceNode):
    """``this``, ``{#}``, ``_``, ``default``, or ``...``, the default value of the context's type.

    ``_`` occurs as an argument or in a keyset, ``default`` in a keyset or as the label of a switch case.
    """

    text: str


def is_word(node: object, *texts: str) -> bool:
    """Return True if a node is one of the given words."""
    return isinstance(node, Word) and node.text in texts


@dataclass(frozen=True, slots=True)
class TypeExpr(SourceNode):
    """A type before a dot, as in ``error.X`` and ``Foo<T>.apply()``."""

    type: TypeRef


@dataclass(frozen=True, slots=True)
class MemberExpr(SourceNode):
    """``base.name``."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True)
class IndexExpr(SourceNode):
    """``base[index]``."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class SliceExpr(SourceNode):
    """``base[high:low]``."""

    base: Expr
    high: Expr
    low: Expr


@dataclass(frozen=True, slots=True)
class PlusSlice(SourceNode):
    """``base[low+:width]``."""

    base: Expr
    low: Expr
    width: Expr


@dataclass(frozen=True, slots=True)
class ListExpr(SourceNode):
    """``{a, b}``; `dots` if the list ends in ``...`` (default values for the remaining elements)."""

    elements: tuple[Expr, ...]
    dots: bool


@dataclass(frozen=True, slots=True)
class StructExpr(SourceNode):
    """``{a = x, b = y}``; every field has a name; `dots` if it ends in ``...``."""

    fields: tuple[GivenArgument, ...]
    dots: bool


@dataclass(frozen=True, slots=True)
class UnaryExpr(SourceNode):
    """``+ - ~ !``."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class BinaryExpr(SourceNode):
    """``* / % + - |+| |-| ++ << >> < <= > >= == != & ^ | && ||``."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class MuxExpr(SourceNode):
    """``condition ? then : otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class CastExpr(SourceNode):
    """``(type) operand``."""

    type: TypeRef
    operand: Expr


@dataclass(frozen=True, slots=True)
class CallExpr(SourceNode):
    """``callee<type_args>(args)``: function, method, action, ``apply`` or constructor."""

    callee: Expr
    type_args: tuple[TypeRef, ...]
    args: tuple[GivenArgument, ...]


@dataclass(frozen=True, slots=True)
class Mask(SourceNode):
    """``value &&& mask`` in a keyset."""

    value: Expr
    mask: Expr


@dataclass(frozen=True, slots=True)
class RangeExpr(SourceNode):
    """``low .. high`` in a keyset or a ``for``."""

    low: Expr
    high: Expr


Expr = (
    IntLiteral
    | BoolLiteral
    | StringLiteral
    | Name
    | Word
    | TypeExpr
    | MemberExpr
    | IndexExpr
    | SliceExpr
    | PlusSlice
    | ListExpr
    | StructExpr
    | UnaryExpr
    | BinaryExpr
    | MuxExpr
    | CastExpr
    | CallExpr
    | Mask
    | RangeExpr
)


@dataclass(frozen=True, slots=True)
class GivenArgument(SourceNode):
    """``value`` or ``name = value`` in a call, struct or annotation."""

    name: str | None
    value: Expr


# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class AssignStatement(SourceNode):
    """``target = value``, or a compound such as ``+=`` in `op`."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class CallStatement(SourceNode):
    """A call as a statement; its result, if any, is discarded."""

    call: CallExpr


@dataclass(frozen=True, slots=True)
class BlockStatement(Annotated):
    """``{ … }``: statements with a scope of their own."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class IfStatement(SourceNode):
    """``if (condition) then else otherwise``; an empty statement is an empty `BlockStatement`."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None


@dataclass(frozen=True, slots=True)
class SwitchCase(SourceNode):
    """``label: body``; a case without a body runs the body of the next case."""

    label: Expr
    body: BlockStatement | None


@dataclass(frozen=True, slots=True)
class SwitchStatement(SourceNode):
    """``switch (subject) { … }``; labels are expressions, action names or ``default``."""

    subject: Expr
    cases: tuple[SwitchCase, ...]


@dataclass(frozen=True, slots=True)
class ReturnStatement(SourceNode):
    """``return value;``."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class Jump(SourceNode):
    """``exit;``, ``break;`` or ``continue;``."""

    kind: str


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
class TypedName(Annotated):
    """The common base of declarations of variables, constants and fields."""

    type: TypeRef
    name: str


@dataclass(frozen=True, slots=True)
class VarDecl(TypedName):
    """``type name = value;``."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class ConstDecl(TypedName):
    """``const type name = value;``."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Instantiation(Annotated):
    """``type(args) name = { initializer };``; the initialiser implements abstract methods."""

    type: TypeRef
    args: tuple[GivenArgument, ...]
    name: str
    initializer: tuple[FunctionDecl | Instantiation, ...] | None


Stmt = (
    AssignStatement
    | CallStatement
    | BlockStatement
    | IfStatement
    | SwitchStatement
    | ReturnStatement
    | Jump
    | For
    | ForIn
    | VarDecl
    | ConstDecl
    | Instantiation
)

# --------------------------------------------------------------------------- functions


@dataclass(frozen=True, slots=True)
class TypeParam(SourceNode):
    """One of the type parameters ``<A, B>`` after a declared name."""

    name: str


@dataclass(frozen=True, slots=True)
class ParamDecl(Annotated):
    """A parameter; `direction` is "", "in", "out" or "inout"."""

    direction: str
    type: TypeRef
    name: str
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Prototype(Annotated):
    """A method or function without a body; `result` is None for a constructor."""

    result: TypeRef | None
    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[ParamDecl, ...]
    abstract: bool = False


@dataclass(frozen=True, slots=True)
class FunctionDecl(SourceNode):
    """``result name<T>(…) { … }``."""

    prototype: Prototype
    body: BlockStatement


# --------------------------------------------------------------------------- named types


@dataclass(frozen=True, slots=True)
class FieldDecl(TypedName):
    """A field of a header, struct or union."""


@dataclass(frozen=True, slots=True)
class FieldsDecl(Annotated):
    """``header name { … }``; `kind` is ``header``, ``struct`` or ``header_union``."""

    kind: str
    name: str
    type_params: tuple[TypeParam, ...]
    fields: tuple[FieldDecl, ...]


@dataclass(frozen=True, slots=True)
class EnumMember(Annotated):
    """A member; it has a value if and only if the enum has an underlying type."""

    name: str
    value: Expr | None


@dataclass(frozen=True, slots=True)
class EnumDecl(Annotated):
    """``enum name { … }`` or the serialisable ``enum underlying name { … }``."""

    underlying: TypeRef | None
    name: str
    members: tuple[EnumMember, ...]


@dataclass(frozen=True, slots=True)
class MembersDecl(SourceNode):
    """``error { … }`` or ``match_kind { … }``: adds members to the built-in type of that name."""

    name: str
    members: tuple[EnumMember, ...]


@dataclass(frozen=True, slots=True)
class TypedefDecl(Annotated):
    """``typedef type name;``, or with `distinct` ``type type name;`` (a new type)."""

    distinct: bool
    type: TypeRef | FieldsDecl | EnumDecl
    name: str


# --------------------------------------------------------------------------- functions and externs


@dataclass(frozen=True, slots=True)
class ExternFunctionDecl(SourceNode):
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
    params: tuple[ParamDecl, ...]
    body: BlockStatement


# --------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class KeyElement(Annotated):
    """``expr : match;``."""

    expr: Expr
    match: str


@dataclass(frozen=True, slots=True)
class ActionUse(Annotated):
    """``name;`` or ``name(args);``; without parentheses `args` is None."""

    name: str
    absolute: bool
    args: tuple[GivenArgument, ...] | None


@dataclass(frozen=True, slots=True)
class EntryDecl(Annotated):
    """``const priority = p : keys : action;``; keys may be a `Word`, `Mask` or `RangeExpr`."""

    const: bool
    priority: Expr | None
    keys: tuple[Expr, ...]
    action: ActionUse


@dataclass(frozen=True, slots=True)
class Entries(Annotated):
    """The property ``entries = { … }``."""

    const: bool
    entries: tuple[EntryDecl, ...]


@dataclass(frozen=True, slots=True)
class Property(Annotated):
    """A table property ``name = value;`` other than key, actions and entries.

    The value of ``default_action`` is a `Name` or a `CallExpr`.
    """

    const: bool
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class TableDecl(Annotated):
    """``table name { … }``; `keys`, `actions` and `entries` are None if the table has no such property."""

    name: str
    keys: tuple[KeyElement, ...] | None
    actions: tuple[ActionUse, ...] | None
    entries: Entries | None
    properties: tuple[Property, ...]


# --------------------------------------------------------------------------- parsers, controls, packages


@dataclass(frozen=True, slots=True)
class SelectCase(SourceNode):
    """``keys : target;``; keys as in `EntryDecl`."""

    keys: tuple[Expr, ...]
    target: str


@dataclass(frozen=True, slots=True)
class Select(SourceNode):
    """``transition select(subjects) { … }``."""

    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]


@dataclass(frozen=True, slots=True)
class Goto(SourceNode):
    """``transition target;``."""

    target: str


@dataclass(frozen=True, slots=True)
class StateDecl(Annotated):
    """A parser state; `transition` is None if missing, which means ``reject``."""

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
class BlockHead(Annotated):
    """The common base of declarations of parsers, controls and packages."""

    name: str
    type_params: tuple[TypeParam, ...]
    params: tuple[ParamDecl, ...]


@dataclass(frozen=True, slots=True)
class ParserTypeDecl(BlockHead):
    """``parser name<T>(…);``."""


@dataclass(frozen=True, slots=True)
class ParserDecl(BlockHead):
    """``parser name<T>(params)(constructor_params) { locals states }``."""

    constructor_params: tuple[ParamDecl, ...]
    locals: tuple[ConstDecl | VarDecl | Instantiation | ValueSetDecl, ...]
    states: tuple[StateDecl, ...]


@dataclass(frozen=True, slots=True)
class ControlTypeDecl(BlockHead):
    """``control name<T>(…);``."""


@dataclass(frozen=True, slots=True)
class ControlDecl(BlockHead):
    """``control name<T>(params)(constructor_params) { locals apply body }``."""

    constructor_params: tuple[ParamDecl, ...]
    locals: tuple[ConstDecl | VarDecl | Instantiation | ActionDecl | TableDecl, ...]
    body: BlockStatement


@dataclass(frozen=True, slots=True)
class PackageDecl(BlockHead):
    """``package name<T>(…);``."""


Decl = (
    ConstDecl
    | Instantiation
    | FieldsDecl
    | EnumDecl
    | MembersDecl
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
class SourceProgram(SourceNode):
    """A whole compilation unit: its top-level declarations in source order."""

    declarations: tuple[Decl, ...]
