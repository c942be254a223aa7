"""Statements that do not branch, on one path: assignments, headers, what may end the parser."""

from __future__ import annotations

from typing import assert_never

from softswitch.compiler import ir
from softswitch.compiler.undefined.conditions import assume
from softswitch.compiler.undefined.externs import Externs
from softswitch.compiler.undefined.paths import PARSER_ERROR, Leaves, Paths
from softswitch.compiler.undefined.reads import Reader, shown
from softswitch.compiler.undefined.state import State, headers_below


class Steps:
    """Does single statements."""

    def __init__(self, program: ir.Program, reader: Reader, paths: Paths) -> None:
        self._reader = reader
        self._paths = paths
        self.externs = Externs(program, reader)

    def straight(self, s: ir.Stmt, state: State, leaves: Leaves) -> None:
        """Do a statement that goes on with the next one, but for parser errors."""
        self._paths.steps += 1
        match s:
            case ir.Assign():
                self.may_fail(s.value, state, leaves)
                self._assign(s, state)
            case ir.Forget(target, pos):
                place = state.place(target)
                if place is not None:
                    state.assign(target, None)
                    state.unset[place] = pos
            case ir.SetValidity(header, valid, pos):
                self._reader.indices(header, state)
                if not (valid and state.is_valid(header)):
                    state.forget_fields(header, pos if valid else None)
                state.set_valid(header, valid)
            case ir.Shift(stack, count):
                state.shift(stack, count)
            case ir.Skip(stack):
                following = state.following(stack).only
                size = stack.type.size if isinstance(stack.type, ir.Stack) else 0
                state.set_following(stack, None if following is None else min(size, following + 1))
            case ir.Advance(bits):
                self._reader.reads(bits, state)
                leaves.stopped.append(state.copy())
            case ir.Emit(header):
                self._emit(header, s.pos, state)
            case ir.Extern():
                self.externs.call(s, state)
            case ir.If() | ir.Switch() | ir.Apply() | ir.Call() | ir.Scope() | ir.Loop() | ir.Return():
                raise TypeError(f"{s.pos}: not straight")
            case ir.Exit() | ir.Break() | ir.Continue() | ir.Verify() | ir.Extract():
                raise TypeError(f"{s.pos}: not straight")
            case _:
                assert_never(s)

    def may_fail(self, expr: ir.Expr, state: State, leaves: Leaves) -> None:
        """Note the packets that are too short for what an expression looks at."""
        if _looks_ahead(expr):
            leaves.stopped.append(state.copy())

    def verify(self, s: ir.Verify, states: list[State], leaves: Leaves) -> list[State]:
        """Return the paths on which a condition holds."""
        after = []
        for state in states:
            self._reader.reads(s.condition, state)
            self.may_fail(s.condition, state, leaves)
            for failed in assume(state.copy(), s.condition, False):
                failed.values[PARSER_ERROR] = failed.value(s.error)
                leaves.stopped.append(failed)
            after += assume(state, s.condition, True)
        return after

    def _assign(self, s: ir.Assign, state: State) -> None:
        if isinstance(s.target.type, ir.Struct | ir.Header | ir.Stack):
            source, target = state.place(s.value), state.place(s.target)
            if source is not None and target is not None:
                state.copy_tree(source, target)
            else:
                state.drop(s.target)
            return
        self._reader.indices(s.target, state)
        undefined = None
        if isinstance(s.value, ir.Var | ir.Member):
            self._reader.reads(s.value, state, copied=True)
            undefined = state.unset_at(s.value)
        else:
            self._reader.reads(s.value, state)
        state.assign(s.target, state.value(s.value) if isinstance(s.target.type, ir.Scalar) else None)
        place = state.place(s.target)
        if undefined is not None and place is not None:
            state.unset[place] = undefined

    def extract(self, header: ir.Expr, size: ir.Expr | None, state: State, leaves: Leaves) -> bool:
        """Extract a header, and return whether parsing goes on."""
        if size is not None:
            self._reader.reads(size, state)
        leaves.stopped.append(state.copy())
        if isinstance(header, ir.Next) and _is_full(header.base, state):
            return False
        state.set_valid(header, True)
        state.forget_fields(header, None)
        if isinstance(header, ir.Next):
            following = state.following(header.base).only
            state.set_following(header.base, None if following is None else following + 1)
        return True

    def _emit(self, header: ir.Expr, pos: ir.Position, state: State) -> None:
        places = list(headers_below(header.type, state.place(header) or ""))
        for place in places:
            below = place + "/"
            for name, since in state.unset.items():
                if name.startswith(below) and state.valid.get(place) is not False:
                    self._reader.report(f"{shown(name)} leaves in the packet, but nothing has set it", since)


def _is_full(stack: ir.Expr, state: State) -> bool:
    """Return True if a stack has no next element."""
    assert isinstance(stack.type, ir.Stack)
    return state.following(stack).low >= stack.type.size


def _looks_ahead(expr: ir.Expr) -> bool:
    match expr:
        case ir.Lookahead() | ir.Last():
            return True
        case ir.Slice(base=inner) | ir.Member(base=inner):
            return _looks_ahead(inner)
        case ir.Unary(operand=inner) | ir.Cast(operand=inner):
            return _looks_ahead(inner)
        case ir.Binary(left=left, right=right):
            return _looks_ahead(left) or _looks_ahead(right)
        case ir.Mux(condition=condition, then=then, otherwise=otherwise):
            return _looks_ahead(condition) or _looks_ahead(then) or _looks_ahead(otherwise)
        case _:
            return False
