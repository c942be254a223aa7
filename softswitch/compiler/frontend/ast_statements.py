"""The part of the syntax tree between expressions and declarations: statements and functions.

Use it through `softswitch.compiler.frontend.ast`.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.frontend.ast_expressions import Annotation, Argument, Call, Expr, TypeRef
from softswitch.compiler.ir import Position

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

# --------------------------------------------------------------------------- functions


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
class FunctionDecl:
    """``result name<T>(…) { … }``."""

    prototype: Prototype
    body: Block
    pos: Position
