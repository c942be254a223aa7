"""Declarations of controls and parsers that may be used more than once: actions, tables, instances.

Each is lowered when it is first used, in the scope that it was declared in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from softswitch.compiler import ir
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering.scope import Scope
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Block

if TYPE_CHECKING:
    from softswitch.compiler.lowering.passing import Passed


@dataclass(slots=True, eq=False)
class Action:
    """An action; `owner` is the control that it is declared in (None: the program)."""

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
    """Chooses a member of a group: a hash of `data`, cut to `count`, is the `slot`."""

    algorithm: str
    data: tuple[ir.Expr, ...]
    count: ir.Var
    slot: ir.Var
    index: int


@dataclass(slots=True, eq=False)
class Table:
    """A table. `prelude` computes what its keys need and `names` are its actions as the source calls them."""

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
    """A value set: the table of its members, and that table's keys, which are variables."""

    name: str
    keys: tuple[ir.Key, ...]


@dataclass(slots=True, eq=False)
class Instance:
    """An instance of a control or parser.

    `sites` is how often it is applied, and `copied` which parameters differ between those sites:
    they must be variables. The first application fills `passed` and `body`.
    """

    block: Block
    name: str
    scope: Scope
    sites: int = 1
    copied: frozenset[str] = frozenset()
    variables: dict[str, ir.Var] = field(default_factory=dict)
    passed: Passed | None = None
    body: tuple[ir.Stmt, ...] = ()
    exits: bool = False
