"""Replace header unions, stacks of unions, and structs in headers by types that the back ends support.

During lowering, ``hdr.h.s`` may be a struct inside a header, and ``hdr.us[i]`` a union inside a stack. Here
the struct becomes the header's fields ``s.a``, ``s.b``…, and the stack of unions becomes one stack for each
member of the union. At most one header of a union is valid: a statement that makes a header valid
(``setValid``, ``extract``, an assignment) also makes the union's other headers invalid; ``setInvalid`` leaves
them unchanged, as in BMv2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import with_expressions, with_operands, with_parts
from softswitch.compiler.lowering.convert import joined, negation

_BOOL = ir.Bool()


def flattened(program: ir.Program) -> ir.Program:
    """Return the program without unions, stacks of unions and structs in headers."""
    if not any(map(_concerned, _types(program))):
        return program
    return with_parts(
        program,
        body=_body,
        state=_state,
        keys=lambda table: tuple(replace(key, expr=_expr(key.expr)) for key in table.keys),
    )


def _types(program: ir.Program) -> Iterator[ir.Type]:
    yield from (program.hdr, program.meta, *program.variables.values())


def _concerned(type_: ir.Type) -> bool:
    match type_:
        case ir.Header(_, members):
            return any("." in name for name, _ in members)
        case ir.Stack(element):
            return _concerned(element)
        case ir.Struct(_, members):
            return type_.union or any(_concerned(member) for _, member in members)
        case _:
            return False


def _state(state: ir.ParserState) -> ir.ParserState:
    subjects = tuple(map(_expr, state.transition.subjects))
    return replace(state, body=_body(state.body), transition=replace(state.transition, subjects=subjects))


# --------------------------------------------------------------------------- expressions


def _is_virtual(expr: ir.Expr) -> bool:
    """Return True for a struct or union without storage of its own: each member has separate storage."""
    match expr:
        case ir.Member(ir.Struct(), base):
            return isinstance(base.type, ir.Header)
        case ir.Index(ir.Struct()) | ir.Next(ir.Struct()) | ir.Last(ir.Struct()):
            return True
        case _:
            return False


def _expr(expr: ir.Expr) -> ir.Expr:
    """Return `expr` with members of virtual structs (see `_is_virtual`) replaced by the stored values.

    If `expr` is itself a virtual struct, the result is one, too.
    """
    expr = with_operands(expr, lambda name, operand: _expr(operand))
    match expr:
        case ir.Member(type_, base, name, pos=pos) if _is_virtual(base):
            return _part(base, name, type_, pos)
        case ir.LastIndex(type_, base, pos=pos) if isinstance(base.type, ir.Struct):
            name, stack = base.type.fields[0]
            return ir.LastIndex(type_, ir.Member(stack, base, name, pos=pos), pos=pos)
        case ir.Binary(_, "==" | "!=" as op, left, right, pos=pos) if _is_virtual(left) or _is_virtual(right):
            equal = _equal(left, right, pos)
            return equal if op == "==" else negation(equal, pos)
        case _:
            return expr


def _part(base: ir.Expr, name: str, type_: ir.Type, pos: ir.Position) -> ir.Expr:
    """Return the stored value for the member `name` of a virtual struct (see `_is_virtual`)."""
    match base:
        case ir.Member(_, header, outer):
            return ir.Member(type_, header, f"{outer}.{name}", pos=pos)
        case ir.Index(_, stacks) | ir.Next(_, stacks) | ir.Last(_, stacks):
            return replace(base, type=_header(type_), base=_stack(stacks, name, pos), pos=pos)
        case _:
            raise TypeError(f"{pos}: this is not a virtual struct")


def _header(type_: ir.Type) -> ir.Header:
    assert isinstance(type_, ir.Header)
    return type_


def _stack(stacks: ir.Expr, name: str, pos: ir.Position) -> ir.Expr:
    assert isinstance(stacks.type, ir.Struct)
    return ir.Member(dict(stacks.type.fields)[name], stacks, name, pos=pos)


def _parts(expr: ir.Expr, pos: ir.Position) -> list[ir.Expr]:
    assert isinstance(expr.type, ir.Struct)
    return [_expr(ir.Member(type_, expr, name, pos=pos)) for name, type_ in expr.type.fields]


def _equal(left: ir.Expr, right: ir.Expr, pos: ir.Position) -> ir.Expr:
    result: ir.Expr = ir.Const(_BOOL, 1, pos=pos)
    for a, b in zip(_parts(left, pos), _parts(right, pos), strict=True):
        result = joined("&&", result, _expr(ir.Binary(_BOOL, "==", a, b, pos=pos)), pos)
    return result


# --------------------------------------------------------------------------- statements


def _body(statements: Iterable[ir.Stmt]) -> tuple[ir.Stmt, ...]:
    return tuple(inner for statement in statements for inner in _statement(statement))


def _statement(statement: ir.Stmt) -> Iterator[ir.Stmt]:
    """Yield the statements that replace a statement."""
    statement = with_expressions(statement, lambda name, expr: _expr(expr), _body)
    pos = statement.pos
    match statement:
        case ir.Assign(target, value) if _is_virtual(target) or _is_virtual(value):
            for part, given in zip(_parts(target, pos), _parts(value, pos), strict=True):
                yield from _statement(ir.Assign(part, given, pos=pos))
        case ir.Shift(stacks) if isinstance(stacks.type, ir.Struct):
            for name, _ in stacks.type.fields:
                yield replace(statement, stack=_stack(stacks, name, pos))
        case ir.SetValidity(header, True):
            yield from _invalidate(_siblings(header), pos)
            yield statement
        case ir.Extract(ir.Next(_, stack)):
            yield statement
            for sibling in _siblings(stack):
                yield ir.Skip(sibling, pos=pos)
                assert isinstance(sibling.type, ir.Stack)
                yield ir.SetValidity(ir.Last(sibling.type.element, sibling, pos=pos), False, pos=pos)
        case ir.Extract(header):
            yield statement
            yield from _invalidate(_siblings(header), pos)
        case ir.Assign(target) if isinstance(target.type, ir.Header) and (others := _siblings(target)):
            yield statement
            reset = tuple(_invalidate(others, pos))
            yield ir.If(ir.IsValid(_BOOL, target, pos=pos), reset, (), pos=pos)
        case _:
            yield statement


def _siblings(expr: ir.Expr) -> list[ir.Expr]:
    """Return the other headers of the union that contains the header `expr`; [] if there is no union.

    For a stack that holds one member of a stack of unions, return the stacks of the other members.
    """
    match expr:
        case ir.Member(_, base, name, pos=pos) if isinstance(base.type, ir.Struct) and base.type.union:
            others = [(other, type_) for other, type_ in base.type.fields if other != name]
            return [ir.Member(type_, base, other, pos=pos) for other, type_ in others]
        case ir.Index(_, base) | ir.Next(_, base) | ir.Last(_, base):
            return [replace(expr, type=_element(stack), base=stack) for stack in _siblings(base)]
        case _:
            return []


def _element(stack: ir.Expr) -> ir.Header:
    assert isinstance(stack.type, ir.Stack)
    return stack.type.element


def _invalidate(headers: Iterable[ir.Expr], pos: ir.Position) -> Iterator[ir.Stmt]:
    return (ir.SetValidity(header, False, pos=pos) for header in headers)
