"""Replace undefined behaviour in a program according to one choice, so that all back ends agree.

==========  ==================================  =========================  ==================================
choice      fields of invalid headers           values never set           reads of registers beyond the end
==========  ==================================  =========================  ==================================
None        their old values                    zero, or the old value     zero
``zero``    zero, also after ``setValid``       zero                       zero
``random``  random, also after ``setValid``     random                     random
``bmv2``    their old values; zero in keys and  zero, or the old value     leave the target unchanged
            after ``setValid``
==========  ==================================  =========================  ==================================

"Zero in keys": in keys that are a field, or a field and a constant mask, but not in computed keys.
"Zero, or the old value": the scalars of an ``out`` argument of a parser or control may keep the values from
before the call; all other values start at zero. An element beyond the end of a stack is an invalid header.
Random values come from the generator of the extern ``random``; each possible read gets a new value. For an
enum, the last member is used instead of a random one. Values of more than 128 bits and varbits stay
undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeGuard

from softswitch.compiler import ir
from softswitch.compiler.choice import Choice
from softswitch.compiler.ir.verify import MAX_COMPUTED
from softswitch.compiler.ir.walk import TARGETED, with_expressions, with_operands, with_parts

_BOOL = ir.Bool()
_DRAW = 32
"""Number of bits of one random number."""


def settled(program: ir.Program, choice: Choice | None) -> ir.Program:
    """Return a program from `lower` without undefined behaviour; the module's docstring lists the choices."""
    return _Settler(program, choice).program()


class _Settler:
    def __init__(self, program: ir.Program, choice: Choice | None) -> None:
        self._program = program
        self._choice = choice
        self._variables = dict(program.variables)
        self._draws: list[ir.Stmt] = []  # statements that the current expression needs before it
        self._keys: dict[str, tuple[tuple[ir.Key, ...], tuple[ir.Stmt, ...]]] = {}

    def program(self) -> ir.Program:
        program = self._program
        self._keys = {name: self._table_keys(table) for name, table in program.tables.items()}
        changed = with_parts(
            program, body=self._body, state=self._state, keys=lambda table: self._keys[table.name][0]
        )
        return replace(changed, variables=self._variables)

    # ----------------------------------------------------------------- undefined values

    @property
    def _guards(self) -> bool:
        return self._choice in (Choice.ZERO, Choice.RANDOM)

    def _undefined(self, type_: ir.Scalar, pos: ir.Position) -> ir.Expr:
        """Return a value to use in place of an undefined value of `type_`: zero, or a random value.

        Statements that draw the random value are added to `_draws`. For an enum, the last member is used
        instead of a random value.
        """
        if self._choice is not Choice.RANDOM:
            return ir.Const(type_, 0, pos=pos)
        match type_:
            case ir.Bits(width, signed):
                return (
                    self._drawn(width, pos)
                    if not signed
                    else ir.Cast(type_, self._drawn(width, pos), pos=pos)
                )
            case ir.Bool():
                return ir.Cast(_BOOL, self._drawn(1, pos), pos=pos)
            case ir.Enum(_, members):
                return ir.Const(type_, len(members) - 1, pos=pos)

    def _drawn(self, width: int, pos: ir.Position) -> ir.Expr:
        drawn: ir.Expr | None = None
        while width:
            bits = min(width, _DRAW)
            type_ = ir.Bits(bits)
            variable = self._variable(type_, pos)
            low, high = ir.Const(type_, 0, pos=pos), ir.Const(type_, (1 << bits) - 1, pos=pos)
            self._draws.append(ir.Extern("random", "", ((variable,), (low,), (high,)), pos=pos))
            if drawn is None:
                drawn = variable
            else:
                assert isinstance(drawn.type, ir.Bits)
                drawn = ir.Binary(ir.Bits(drawn.type.width + bits), "++", drawn, variable, pos=pos)
            width -= bits
        assert drawn is not None
        return drawn

    def _variable(self, type_: ir.Type, pos: ir.Position) -> ir.Var:
        name = f"undefined#{len(self._variables)}"
        self._variables[name] = type_
        return ir.Var(type_, name, pos=pos)

    def _take_draws(self) -> tuple[ir.Stmt, ...]:
        taken, self._draws = tuple(self._draws), []
        return taken

    # ----------------------------------------------------------------- expressions

    def _expr(self, expr: ir.Expr) -> ir.Expr:
        """Return an expression that is read, with undefined values in it replaced."""
        if not self._guards:
            return expr
        expr = self._inside(expr)
        if isinstance(expr, ir.Member) and isinstance(expr.base.type, ir.Header) and _is_computed(expr.type):
            valid = ir.IsValid(_BOOL, expr.base, pos=expr.pos)
            return ir.Mux(expr.type, valid, expr, self._undefined(expr.type, expr.pos), pos=expr.pos)
        return expr

    def _inside(self, expr: ir.Expr) -> ir.Expr:
        """Return `expr` with undefined values in its operands replaced.

        If `expr` is an l-value, the value stored there stays as it is; only its indices change.
        """
        names = isinstance(expr, ir.Member | ir.IsValid | ir.Next | ir.Last | ir.LastIndex)

        def changed(field: str, operand: ir.Expr) -> ir.Expr:
            named = (names or field == "base") and not isinstance(expr, ir.Slice)
            return self._inside(operand) if named else self._expr(operand)

        return with_operands(expr, changed)

    def _target(self, expr: ir.Expr) -> ir.Expr:
        """Return `expr`, the target of an assignment, with undefined values in its indices replaced."""
        if not self._guards:
            return expr
        if isinstance(expr, ir.Slice):
            return replace(expr, base=self._target(expr.base))
        return self._inside(expr)

    def _table_keys(self, table: ir.Table) -> tuple[tuple[ir.Key, ...], tuple[ir.Stmt, ...]]:
        """Return a table's keys with undefined values replaced.

        Also return the statements that must run before the keys are evaluated.
        """
        zero = _Settler(replace(self._program, variables={}), Choice.ZERO)
        keys = tuple(
            replace(key, expr=(zero if self._is_zeroed(key.expr) else self)._expr(key.expr))
            for key in table.keys
        )
        return keys, self._take_draws()

    def _is_zeroed(self, key: ir.Expr) -> bool:
        """Return whether BMv2 reads zero for a key of an invalid header: a field, masked or not.

        p4c copies any other key, also a field of a stack's element, to a variable first.
        """
        match key:
            case ir.Binary(_, "&", field, ir.Const()) | ir.Binary(_, "&", ir.Const(), field):
                return self._is_zeroed(field)
        return (
            self._choice is Choice.BMV2 and isinstance(key, ir.Member) and not isinstance(key.base, ir.Index)
        )

    # ----------------------------------------------------------------- statements

    def _state(self, state: ir.ParserState) -> ir.ParserState:
        body = self._body(state.body)
        subjects = tuple(map(self._expr, state.transition.subjects))
        transition = replace(state.transition, subjects=subjects)
        return replace(state, body=(*body, *self._take_draws()), transition=transition)

    def _body(self, body: Iterable[ir.Stmt]) -> tuple[ir.Stmt, ...]:
        return tuple(inner for statement in body for inner in self._statement(statement))

    def _statement(self, s: ir.Stmt) -> Iterator[ir.Stmt]:
        match s:
            case ir.Forget(target, pos=pos):
                yield from self._forgotten(target, pos)
                return
            case ir.SetValidity(header, True, pos=pos) if self._choice is not None:
                yield from self._made_valid(s, header, pos)
                return
            case ir.Apply(table=table):
                yield from self._keys[table][1]
                yield s
                return
            case ir.Extern(function="register.read"):
                yield from self._read_register(s)
                return
            case _:
                settled_ = self._rewritten(s)
        yield from self._take_draws()
        yield settled_

    def _rewritten(self, s: ir.Stmt) -> ir.Stmt:
        written = _written(s.function, len(s.args)) if isinstance(s, ir.Extern) else "target"

        def changed(name: str, expr: ir.Expr) -> ir.Expr:
            return self._target(expr) if name in (written, "header", "stack") else self._expr(expr)

        def inside(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
            draws = self._take_draws()  # before the statement
            settled_ = self._body(body)
            self._draws += draws
            return settled_

        return with_expressions(s, changed, inside)

    def _forgotten(self, target: ir.Expr, pos: ir.Position) -> Iterator[ir.Stmt]:
        if self._guards and _is_computed(target.type):
            value = self._undefined(target.type, pos)
            yield from self._take_draws()
            yield ir.Assign(target, value, pos=pos)

    def _made_valid(self, s: ir.SetValidity, header: ir.Expr, pos: ir.Position) -> Iterator[ir.Stmt]:
        """Yield the statements that make a header valid, with undefined fields if it was not valid before."""
        header = self._target(header)
        assert isinstance(header.type, ir.Header)
        was_valid = self._variable(_BOOL, pos)
        yield ir.Assign(was_valid, ir.IsValid(_BOOL, header, pos=pos), pos=pos)
        yield replace(s, header=header)
        reset: list[ir.Stmt] = []
        for name, type_ in header.type.fields:
            if _is_computed(type_):
                value = self._undefined(type_, pos)
                reset += (
                    *self._take_draws(),
                    ir.Assign(ir.Member(type_, header, name, pos=pos), value, pos=pos),
                )
        yield ir.If(was_valid, (), tuple(reset), pos=pos)

    def _read_register(self, s: ir.Extern) -> Iterator[ir.Stmt]:
        """Yield the read of a register, with the chosen behaviour if the index is out of range."""
        (target,), (index,) = s.args
        target, index = self._target(target), self._expr(index)
        read = replace(s, args=((target,), (index,)))
        size = self._program.registers[s.instance].size
        within = _below(index, size)
        yield from self._take_draws()
        if within is None or self._choice in (None, Choice.ZERO):
            yield read
            return
        otherwise: tuple[ir.Stmt, ...] = ()
        if self._choice is Choice.RANDOM:
            assert isinstance(target.type, ir.Scalar)
            value = self._undefined(target.type, s.pos)
            otherwise = (*self._take_draws(), ir.Assign(target, value, pos=s.pos))
        yield ir.If(within, (read,), otherwise, pos=s.pos)


def _is_computed(type_: ir.Type) -> TypeGuard[ir.Scalar]:
    return isinstance(type_, ir.Bool | ir.Enum) or (
        isinstance(type_, ir.Bits) and type_.width <= MAX_COMPUTED
    )


def _below(index: ir.Expr, size: int) -> ir.Expr | None:
    """Return the condition ``index < size``; None if it holds for all values of the index's type."""
    assert isinstance(index.type, ir.Bits)
    type_ = ir.Bits(index.type.width)
    if 1 << type_.width <= size:
        return None
    bits = ir.Cast(type_, index, pos=index.pos) if index.type.signed else index
    return ir.Binary(_BOOL, "<", bits, ir.Const(type_, size, pos=index.pos), pos=index.pos)


def _written(function: str, count: int) -> str:
    """Return the number (from 0, as text) of the argument that a call of the extern `function` writes.

    `count` is the number of arguments of the call. Return "" if the call writes no argument.
    """
    if function in TARGETED:
        return "0"
    return str(count - 1) if function.startswith("update_checksum") else ""
