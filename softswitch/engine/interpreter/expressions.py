"""Expressions of the IR as Python functions of a packet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from softswitch.compiler import ir
from softswitch.compiler.ir import fold
from softswitch.engine.interpreter.storage import (
    PacketState,
    ParserError,
    StackValue,
    blank,
    equal,
    wrapper,
)

Evaluate = Callable[[PacketState], Any]
Store = Callable[[PacketState, Any], None]


def compile_expression(expr: ir.Expr) -> Evaluate:
    """Return a function that evaluates `expr`.

    For a header, stack or struct, the function returns the packet's own object. It raises ParserError where
    P4 requires it: stacks used beyond their ends and lookahead beyond the frame.
    """
    match expr:
        case ir.Const(value=constant):
            return lambda packet: constant
        case ir.Var(name=name):
            return lambda packet: packet.variables[name]
        case ir.Member():
            return _member(expr)
        case ir.Index():
            return _index(expr)
        case ir.Next():
            base = compile_expression(expr.base)
            return lambda packet: _next_element(base(packet))
        case ir.Last():
            base = compile_expression(expr.base)
            return lambda packet: _last_element(base(packet))
        case ir.LastIndex():
            base = compile_expression(expr.base)
            wrap = wrapper(expr.type)
            return lambda packet: wrap(base(packet).next - 1)
        case ir.Slice():
            base = compile_expression(expr.base)
            low, mask = expr.low, (1 << (expr.high - expr.low + 1)) - 1
            return lambda packet: (base(packet) >> low) & mask
        case ir.Unary():
            return _unary(expr)
        case ir.Binary():
            return _binary(expr)
        case ir.Cast():
            operand = compile_expression(expr.operand)
            if isinstance(expr.type, ir.Bool):
                return lambda packet: int(operand(packet) != 0)
            wrap = wrapper(expr.type)
            return lambda packet: wrap(operand(packet))
        case ir.Mux():
            condition = compile_expression(expr.condition)
            then, otherwise = compile_expression(expr.then), compile_expression(expr.otherwise)
            return lambda packet: then(packet) if condition(packet) else otherwise(packet)
        case ir.IsValid():
            header = compile_expression(expr.header)
            return lambda packet: int(header(packet).valid)
        case ir.Lookahead():
            width, wrap = expr.type.width, wrapper(expr.type)
            return lambda packet: wrap(packet.read_bits(width))
        case ir.PacketLength():
            return lambda packet: len(packet.frame)
        case _:
            assert_never(expr)


def compile_store(target: ir.Expr) -> Store:
    """Return a function that assigns a canonical scalar to `target`."""
    match target:
        case ir.Var(name=name):

            def store_variable(packet: PacketState, value: Any) -> None:
                packet.variables[name] = value

            return store_variable
        case ir.Member(field=field):
            base = compile_expression(target.base)

            def store_field(packet: PacketState, value: Any) -> None:
                base(packet).fields[field] = value

            return store_field
        case ir.Slice():
            return _store_slice(target)
        case _:
            raise TypeError(f"{target.pos}: not an assignable scalar: {type(target).__name__}")


def _member(expr: ir.Member) -> Evaluate:
    field = expr.field
    # Most expressions are like hdr.ethernet.dst or meta.index: evaluate these in one call instead of three.
    match expr.base:
        case ir.Var(name=name):
            return lambda packet: packet.variables[name].fields[field]
        case ir.Member(base=ir.Var(name=name), field=outer):
            return lambda packet: packet.variables[name].fields[outer].fields[field]
    base = compile_expression(expr.base)
    return lambda packet: base(packet).fields[field]


def _index(expr: ir.Index) -> Evaluate:
    base, index = compile_expression(expr.base), compile_expression(expr.index)

    def element(packet: PacketState) -> Any:
        elements = base(packet).elements
        position = index(packet)
        if 0 <= position < len(elements):
            return elements[position]
        return blank(expr.type)  # reads zero; writes to it are lost

    return element


def _next_element(stack: StackValue) -> Any:
    if stack.next >= len(stack.elements):
        raise ParserError("StackOutOfBounds")
    return stack.elements[stack.next]


def _last_element(stack: StackValue) -> Any:
    if stack.next == 0:
        raise ParserError("StackOutOfBounds")
    return stack.elements[stack.next - 1]


def _store_slice(target: ir.Slice) -> Store:
    load, store = compile_expression(target.base), compile_store(target.base)
    wrap = wrapper(target.base.type)
    low = target.low
    hole = ~(((1 << (target.high - low + 1)) - 1) << low)

    def store_bits(packet: PacketState, value: Any) -> None:
        store(packet, wrap((load(packet) & hole) | (value << low)))

    return store_bits


# --------------------------------------------------------------------------- operators


def _unary(expr: ir.Unary) -> Evaluate:
    operand = compile_expression(expr.operand)
    wrap = wrapper(expr.type)
    match expr.op:
        case "-":
            return lambda packet: wrap(-operand(packet))
        case "~":
            return lambda packet: wrap(~operand(packet))
        case "!":
            return lambda packet: 1 - operand(packet)
        case _:
            raise ValueError(f"{expr.pos}: no such operator: {expr.op}")


def _binary(expr: ir.Binary) -> Evaluate:
    left, right = compile_expression(expr.left), compile_expression(expr.right)
    wrap = wrapper(expr.type)
    plain = fold.PLAIN.get(expr.op)
    if plain is not None:
        return lambda packet: wrap(plain(left(packet), right(packet)))
    match expr.op:
        case "/":
            return lambda packet: wrap(divide(left(packet), right(packet))[0])
        case "%":
            return lambda packet: wrap(divide(left(packet), right(packet))[1])
        case "|+|":
            clamp = _clamp(expr.type)
            return lambda packet: clamp(left(packet) + right(packet))
        case "|-|":
            clamp = _clamp(expr.type)
            return lambda packet: clamp(left(packet) - right(packet))
        case "<<":
            width = ir.width_of(expr.type)
            amount = _unsigned(expr.right)
            return lambda packet: wrap(left(packet) << min(amount(packet), width))
        case ">>":
            amount = _unsigned(expr.right)
            return lambda packet: left(packet) >> amount(packet)  # an arithmetic shift for negative numbers
        case "++":
            high, low = _unsigned(expr.left), _unsigned(expr.right)
            shift = ir.width_of(expr.right.type)
            return lambda packet: wrap((high(packet) << shift) | low(packet))
        case "==":
            return lambda packet: int(equal(left(packet), right(packet)))
        case "!=":
            return lambda packet: int(not equal(left(packet), right(packet)))
        case "<" | "<=" | ">" | ">=":
            compare = fold.COMPARISONS[expr.op]
            return lambda packet: int(compare(left(packet), right(packet)))
        case "&&":
            return lambda packet: right(packet) if left(packet) else 0
        case "||":
            return lambda packet: 1 if left(packet) else right(packet)
        case _:
            raise ValueError(f"{expr.pos}: no such operator: {expr.op}")


def divide(dividend: int, divisor: int) -> tuple[int, int]:
    """Return quotient (rounded towards zero) and remainder; both are 0 if the divisor is 0."""
    if divisor == 0:
        return 0, 0
    quotient = abs(dividend) // abs(divisor)
    if (dividend < 0) != (divisor < 0):
        quotient = -quotient
    return quotient, dividend - quotient * divisor


def _clamp(type_: ir.Scalar) -> Callable[[int], int]:
    assert isinstance(type_, ir.Bits)
    lowest, highest = fold.limits(type_)
    return lambda value: max(lowest, min(highest, value))


def _unsigned(expr: ir.Expr) -> Callable[[PacketState], int]:
    """Return a function that returns the unsigned bit pattern of `expr`, which may be signed."""
    evaluate = compile_expression(expr)
    mask = (1 << ir.width_of(expr.type)) - 1
    return lambda packet: evaluate(packet) & mask
