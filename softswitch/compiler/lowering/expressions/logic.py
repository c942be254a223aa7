"""Negation, conjunction and disjunction of Bool expressions, simplified where one side is known."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.lowering import types as t


def negation(expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return ``!expr``."""
    if isinstance(expr, ir.Const):
        return ir.Const(t.BOOL, 1 - expr.value, pos)
    return ir.Unary(t.BOOL, "!", expr, pos)


def conjunction(left: ir.Expr, right: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return ``left && right``."""
    if isinstance(left, ir.Const):
        return right if left.value else left
    if isinstance(right, ir.Const) and right.value:
        return left
    return ir.Binary(t.BOOL, "&&", left, right, pos)


def disjunction(left: ir.Expr, right: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return ``left || right``."""
    if isinstance(left, ir.Const):
        return left if left.value else right
    if isinstance(right, ir.Const) and not right.value:
        return left
    return ir.Binary(t.BOOL, "||", left, right, pos)
