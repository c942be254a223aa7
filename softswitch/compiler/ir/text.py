"""Paths as the source has them."""

from __future__ import annotations

from softswitch.compiler import ir


def written(expr: ir.Expr) -> str:
    """Return a path as the source has it."""
    match expr:
        case ir.Var(name=name):
            return ir.plain_name(name)
        case ir.Member(base=base, field=name):
            return f"{written(base)}.{name}"
        case ir.Index(base=base, index=ir.Const(value=value)):
            return f"{written(base)}[{value}]"
        case ir.Index(base=base):
            return f"{written(base)}[…]"
        case ir.Next(base=base):
            return f"{written(base)}.next"
        case ir.Last(base=base):
            return f"{written(base)}.last"
        case _:
            return "a value"
