"""The ``actions`` of a table: the actions of the program that they name, with their bound arguments."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering.blocks.actions import bound_action, formals_of, shared_action
from softswitch.compiler.lowering.items import Action
from softswitch.compiler.lowering.passing import Formal
from softswitch.compiler.lowering.scope import Local, unknown
from softswitch.compiler.lowering.syntax import ir_annotations, spelling
from softswitch.compiler.lowering.unit import Body

_SCOPES = {"defaultonly": "default_only", "tableonly": "table_only"}


@dataclass(frozen=True, slots=True)
class Listed:
    """One of a table's actions; `bound` are the texts of the arguments that the list gives it."""

    name: str
    action: Action
    lowered: ir.Action
    formals: tuple[Formal, ...]
    bound: tuple[str, ...]
    ref: ir.ActionRef

    @property
    def free(self) -> tuple[Formal, ...]:
        """The parameters that an entry gives."""
        return self.formals[len(self.bound) :]


class ActionList:
    """The actions of one table, in the order of the source."""

    def __init__(self, listed: list[Listed], table: str) -> None:
        self._listed = listed
        self._table = table

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the actions in the source."""
        return tuple(listed.name for listed in self._listed)

    @property
    def exits(self) -> bool:
        """True if one of the actions may exit."""
        return any(listed.action.exits for listed in self._listed)

    def refs(self) -> tuple[ir.ActionRef, ...]:
        """Return the actions for the IR."""
        return tuple(listed.ref for listed in self._listed)

    def find(self, name: str, pos: ir.Position) -> Listed:
        """Return the action that the source calls `name`. Raises CompileError."""
        for listed in self._listed:
            if listed.name == name:
                return listed
        raise unknown(f"action of table {self._table!r}", name, self.names, pos)

    def add_no_action(self, body: Body, pos: ir.Position) -> str:
        """Return the control-plane name of NoAction, listing it if need be.

        It is the default action of tables that name none.
        """
        for listed in self._listed:
            if listed.name == "NoAction":
                return listed.ref.action
        action = find_action(body, ast.ActionRef("NoAction", True, None, pos))
        if action.decl.params:
            message = f"NoAction, the default action of table {self._table!r}, has parameters"
            raise CompileError(message, action.decl.pos, "the NoAction of core.p4, or a default_action")
        lowered = shared_action(action, body, pos)
        annotation = ir.Annotation("defaultonly", "")
        ref = ir.ActionRef(lowered.name, "default_only", (annotation,))
        self._listed.append(Listed("NoAction", action, lowered, (), (), ref))
        return lowered.name


def action_list(body: Body, decl: ast.TableDecl) -> ActionList:
    """Return the actions of a table, lowered. Raises CompileError."""
    if decl.actions is None:
        raise CompileError(f"table {decl.name!r} has no actions", decl.pos, "actions = { … }")
    listed: list[Listed] = []
    for ref in decl.actions:
        item = _listed(body, ref)
        if any(item.lowered.name == other.lowered.name for other in listed):
            raise CompileError(f"action {ref.name!r} is listed twice", ref.pos, "each action once")
        listed.append(item)
    return ActionList(listed, decl.name)


def find_action(body: Body, ref: ast.ActionRef) -> Action:
    """Return the action that a name means here. Raises CompileError."""
    if body.scope.find(ref.name) is None:
        raise unknown("action", ref.name, _actions(body), ref.pos)
    symbol = body.scope.lookup(ref.name, ref.pos, absolute=ref.absolute)
    if isinstance(symbol, Local) and isinstance(symbol.item, Action):
        return symbol.item
    raise CompileError(f"{ref.name!r} is not an action", ref.pos, "the name of an action")


def _actions(body: Body) -> list[str]:
    """Return the names of the actions that can be seen here."""
    found = []
    for name in body.scope.visible():
        symbol = body.scope.find(name)
        if isinstance(symbol, Local) and isinstance(symbol.item, Action):
            found.append(name)
    return found


def _listed(body: Body, ref: ast.ActionRef) -> Listed:
    action = find_action(body, ref)
    formals = tuple(formals_of(body.unit, action.decl.params, action.scope))
    directional = [formal for formal in formals if formal.direction]
    args = ref.args or ()
    if len(args) != len(directional):
        names = ", ".join(formal.name for formal in directional) or "none"
        message = f"{len(args)} arguments bound for action {ref.name!r}"
        raise CompileError(message, ref.pos, f"one for each parameter with direction: {names}")
    if any(arg.name is not None for arg in args):
        raise Unsupported("arguments by name in an action list", ref.pos, "arguments in order")
    texts = tuple(spelling(arg.value) for arg in args)
    if args:
        lowered = bound_action(body, action, tuple(arg.value for arg in args), texts, ref.pos)
    else:
        lowered = shared_action(action, body, ref.pos)
    if action.owner is None and action.exits and body.copy_outs:
        raise Unsupported(
            f"action {ref.name!r} exits from a control whose parameters are copied back", ref.pos
        )
    scope = next((_SCOPES[a.name] for a in ref.annotations if a.name in _SCOPES), "")
    ir_ref = ir.ActionRef(lowered.name, scope, ir_annotations(ref.annotations))
    return Listed(ref.name, action, lowered, formals, texts, ir_ref)
