"""Names: their meanings and their scopes.

A scope sees of its parent what was declared before the scope was opened, as P4 demands
("declare before use"), even if the scope is filled much later.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.values import Value


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, parameter, constant or extern instance: anything that has a value."""

    value: Value
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type."""

    type: t.Type
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class GenericType:
    """A struct, header or header union with type parameters.

    `made` holds its specialisations, each with what is not supported in it.
    """

    decl: ast.StructDecl | ast.HeaderDecl | ast.HeaderUnionDecl
    scope: Scope
    pos: ir.Position
    made: dict[tuple[t.Type, ...], tuple[t.Type, list[Unsupported]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExternDef:
    """An extern with objects."""

    decl: ast.ExternDecl
    scope: Scope
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class ExternFunctions:
    """The overloads of an extern function."""

    overloads: list[ast.Prototype]
    scope: Scope
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class Functions:
    """The overloads of a function."""

    overloads: list[ast.FunctionDecl]
    scope: Scope
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class BlockDef:
    """A control or parser with a body."""

    decl: ast.ControlDecl | ast.ParserDecl
    scope: Scope
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class Signature:
    """A control, parser or package type."""

    decl: ast.ControlTypeDecl | ast.ParserTypeDecl | ast.PackageDecl
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class Local:
    """An action, table or sub-block of a control or parser; `item` belongs to who declared it."""

    item: object
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class Broken:
    """A name whose declaration is wrong, which has been said already."""

    pos: ir.Position


class AlreadySaid(CompileError):
    """A use of something `Broken`: no error of its own."""


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
    """The names of one block, on top of those of the blocks around it."""

    __slots__ = ("_limit", "names", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, tuple[int, Symbol]] = {}
        self._limit = len(parent.names) if parent is not None else 0

    def find(self, name: str) -> Symbol | None:
        """Return the meaning of `name` here, or None."""
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
        """Return the global names as seen from here."""
        scope = self
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        if scope.parent is None:
            return scope
        outer = Scope(scope.parent)
        outer._limit = scope._limit
        return outer

    def declare(self, name: str, symbol: Symbol) -> None:
        """Add a name. Raises CompileError if this very scope has it already."""
        if name in self.names:
            first = self.names[name][1].pos
            raise CompileError(
                f"{name!r} is already declared at {first}",
                symbol.pos,
                "a name of its own for each declaration",
            )
        self.names[name] = (len(self.names), symbol)

    def break_name(self, name: str, pos: ir.Position) -> None:
        """Declare a name whose declaration is wrong, so that its uses are not."""
        self.names.setdefault(name, (len(self.names), Broken(pos)))

    def lookup(self, name: str, pos: ir.Position, *, absolute: bool = False) -> Symbol:
        """Return the meaning of `name`. Raises CompileError, with similar names."""
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
        """Yield every name that can be seen from here."""
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
    """Return the error that there is no such `what`, with the candidates that look like it."""
    choices = list(dict.fromkeys(candidates))
    near = difflib.get_close_matches(name, choices, n=3)
    if near:
        return CompileError(f"unknown {what} {name!r}", pos, " or ".join(map(repr, near)))
    listed = ", ".join(sorted(choices)) if 0 < len(choices) <= 12 else None
    return CompileError(f"unknown {what} {name!r}", pos, f"one of {listed}" if listed else None)
