"""Statements of the IR as C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import child_expressions
from softswitch.engine.emit_c.expressions import Expressions, HeaderPlace
from softswitch.engine.emit_c.layout import HeaderHome
from softswitch.engine.emit_c.text import Writer, c_integer, class_bits, literal, unparenthesised
from softswitch.engine.emit_c.unit import Translation

Handler = Callable[["BodyWriter", Any], None]
"""A function that writes an extern call, or a statement that only parsers or deparsers have."""


@dataclass(slots=True)
class BodyWriter:
    """Writes the statements of one C function.

    `leave_body` is the C statement for a ``return`` that is not in inlined code, and `leave_block` the C
    statement for ``exit``. Parser functions have `at` and `end` in scope and leave with ``goto stop``.
    """

    unit: Translation
    out: Writer
    expressions: Expressions
    leave_body: str
    leave_block: str
    extern_handlers: dict[str, Handler]
    roll: Callable[[BodyWriter, Sequence[ir.Stmt]], None]
    in_parser: bool = False
    brought: set[str] = field(default_factory=set)  # large headers known to be in storage
    slots: dict[tuple[str, str], str] = field(default_factory=dict)  # (group, index) to a pointer in scope
    loops: Writer = field(default_factory=Writer)  # functions that have to come before this one
    reads: Counter[str] = field(default_factory=Counter)  # number of reads of each variable, if known
    summed: dict[int, int] = field(
        default_factory=dict
    )  # for the id of a checksum call over bytes before `at`: the number of these bytes
    _scopes: list[tuple[str, list[bool]]] = field(default_factory=list)
    _loops: list[int] = field(default_factory=list)
    _labels: list[int] = field(default_factory=lambda: [0])

    # ----------------------------------------------------------------- structure

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        """Write `body`. Outside parsers, whose expressions may fail, runs over lanes become loops."""
        if self.in_parser:
            self.plain(body)
        else:
            self.roll(self, body)

    def plain(self, body: Iterable[ir.Stmt]) -> None:
        """Write `body` statement by statement."""
        for statement in body:
            self.statement(statement)

    def statement(self, statement: ir.Stmt) -> None:
        """Write one statement."""
        match statement:
            case ir.Assign():
                self._assign(statement)
            case ir.Forget():
                pass
            case ir.If():
                self._if(statement)
            case ir.Switch():
                self._switch(statement)
            case ir.Apply():
                self._apply(statement)
            case ir.Call(action=action):
                call = f"action_{self.unit.action_names[action]}(s, p, v)"
                self._call(call, leaving=action in self.unit.leaving_actions)
            case ir.Inlined(body=body):
                self._scope(body)
            case ir.Return():
                if self._scopes:
                    label, used = self._scopes[-1]
                    used[0] = True
                    self.out.line(f"goto {label};")
                else:
                    self.out.line(self.leave_body)
            case ir.Exit():
                self.out.line(self.leave_block)
            case ir.Loop():
                self._loop(statement)
            case ir.Break():
                self.out.line(f"goto break_{self._loops[-1]};")
            case ir.Continue():
                self.out.line(f"goto continue_{self._loops[-1]};")
            case ir.Skip(stack=stack):
                home = self.expressions.stack(stack)
                self.out.line(f"{home.next} += {home.next} < {home.size};")
            case ir.SetValidity():
                self._set_validity(statement)
            case ir.Shift():
                self._shift(statement)
            case ir.Extern(function=function):
                handler = self.extern_handlers.get(function)
                if handler is None:
                    raise Unsupported(f"extern {function}", statement.pos)
                self.prepare(expr for arg in statement.args for expr in arg)
                handler(self, statement)
            case _:
                handler = self.extern_handlers.get(type(statement).__name__)
                if handler is None:
                    raise Unsupported(f"{type(statement).__name__.lower()} in this block", statement.pos)
                handler(self, statement)

    def _if(self, statement: ir.If) -> None:
        self.prepare([statement.condition])
        before = set(self.brought)
        with self.out.block(f"if ({self.expressions.text(statement.condition)})"):
            self.statements(statement.then)
        after = self.brought
        if statement.otherwise:
            self.brought = set(before)
            with self.out.block("else"):
                self.statements(statement.otherwise)
            after &= self.brought
        else:
            after &= before
        self.brought = after

    def _switch(self, statement: ir.Switch) -> None:
        self.prepare([statement.subject])
        width = ir.width_of(statement.subject.type)
        before = set(self.brought)
        after: set[str] | None = None
        with self.out.block(""):
            subject = self.expressions.text(statement.subject)
            self.out.line(
                f"{c_integer(class_bits(width))} subject = {subject};",
                "(void)subject;",
            )
            word = "if"
            for constants, body in statement.cases:
                self.brought = set(before)
                if constants:
                    tests = " || ".join(f"subject == {literal(c.value, width)}" for c in constants)
                    opening, word = f"{word} ({tests})", "else if"
                elif word == "if":
                    opening = ""
                else:
                    opening = "else"
                with self.out.block(opening):
                    self.statements(body)
                after = self.brought if after is None else after & self.brought
                if not constants:
                    break
        self.brought = before if after is None else before & after

    def _scope(self, body: Sequence[ir.Stmt]) -> None:
        self._labels[0] += 1
        label, used = f"leave_{self._labels[0]}", [False]
        before = set(self.brought)
        self._scopes.append((label, used))
        self.statements(body)
        self._scopes.pop()
        if used[0]:
            self.out.line(f"{label}:;")
            self.brought = before

    def _loop(self, statement: ir.Loop) -> None:
        self._labels[0] += 1
        number = self._labels[0]
        before = set(self.brought)
        self._loops.append(number)
        count = f"p4_round_{number}"
        with self.out.block(f"for (uint32_t {count} = 0; {count} < P4_MAX_ROUNDS; {count}++)"):
            with self.out.block(""):
                self.statements(statement.body)
            self.out.line(f"continue_{number}: __attribute__((unused));")
            self.brought = set(before)
            with self.out.block(""):
                self.statements(statement.update)
        self._loops.pop()
        self.out.line(f"break_{number}: __attribute__((unused));")
        self.brought = before

    def _call(self, call: str, *, leaving: bool) -> None:
        if leaving:
            self.out.when(call, self.leave_block)
        else:
            self.out.line(f"{call};")

    def _apply(self, statement: ir.Apply) -> None:
        name = self.unit.table_names[statement.table]
        leaving = statement.table in self.unit.leaving_tables
        with self.out.block(""):
            self.out.line(f"struct p4_outcome outcome = apply_{name}(s, p, v);")
            for target, value in ((statement.hit, "hit"), (statement.action, "action")):
                if target is not None:
                    self.out.line(f"{self.expressions.scalar(target).text} = outcome.{value};")
            if leaving:
                self.out.when("outcome.leave", self.leave_block)
            elif statement.hit is None and statement.action is None:
                self.out.line("(void)outcome;")

    # ----------------------------------------------------------------- before a statement

    def prepare(self, exprs: Iterable[ir.Expr]) -> None:
        """Write the parser checks that `exprs` need, and load the large headers that they mention."""
        exprs = list(exprs)
        if self.in_parser:
            self.check(exprs)
        self.bring(exprs)

    def check(self, exprs: Iterable[ir.Expr]) -> None:
        """Write the checks of `exprs` that may stop the parser."""
        for expr in exprs:
            for check in self.expressions.checks(expr):
                condition = " && ".join(
                    (*check.guards, f"({check.condition})" if check.guards else check.condition)
                )
                self.fail_if(unparenthesised(condition), check.error)

    def fail_if(self, condition: str, error: str) -> None:
        """Write code that stops the parser with `error` if `condition` holds."""
        with self.out.block(f"if ({condition})"):
            self.out.line(
                f"error = {self.unit.error(error)};  /* {error} */",
                "goto stop;",
            )

    def bring(self, exprs: Iterable[ir.Expr]) -> None:
        """Load the fields of the large headers that `exprs` mention into storage, if necessary."""
        for expr in exprs:
            for part in _fields_and_headers(expr):
                for home in self._large(part):
                    self.bring_home(home)

    def bring_but(self, exprs: Iterable[ir.Expr], exempt: HeaderHome) -> None:
        """Load the fields of large headers as `bring` does, but not the header `exempt`."""
        assert exempt.where is not None
        self.brought.add(exempt.where)
        self.bring(exprs)
        self.brought.discard(exempt.where)

    def bring_home(self, home: HeaderHome) -> None:
        """Load the fields of one large header into storage, if necessary."""
        assert home.where is not None
        if home.where not in self.brought:
            self.brought.add(home.where)
            self.out.line(f"bring_{where_name(home)}(p);")

    def _large(self, expr: ir.Expr) -> Iterable[HeaderHome]:
        match expr.type:
            case ir.Header():
                if not isinstance(expr, ir.Index | ir.Next | ir.Last):
                    home = self.expressions.header(expr).home
                    if home.where is not None:
                        yield home
            case ir.Struct(fields=fields):
                for name, type_ in fields:
                    yield from self._large(ir.Member(type_, expr, name, pos=expr.pos))
            case _:
                pass

    # ----------------------------------------------------------------- assignment

    def _assign(self, statement: ir.Assign) -> None:
        target, value = statement.target, statement.value
        match target.type:
            case ir.Header() | ir.Stack() | ir.Struct():
                self.prepare([target, value])
                self._assign_aggregate(target, value)
            case ir.VarBits():
                self.prepare([target, value])
                self._assign_varbit(target, value)
            case _ if is_wide(target.type):
                self.prepare([target, value])
                self._assign_wide(target, value)
            case _:
                self.prepare([value, target])
                self.store(target, self.expressions.text(value))

    def store(self, target: ir.Expr, text: str) -> None:
        """Write ``target = text``; `text` is a C value of the target's width."""
        if isinstance(target, ir.Slice):
            base = target.base
            width = ir.width_of(base.type)
            hole = ((1 << (target.high - target.low + 1)) - 1) << target.low
            bits = class_bits(width)
            shifted = f"({c_integer(bits)})({text})"
            if target.low:
                shifted = f"({shifted} << {target.low})"
            self.store(base, f"({self.expressions.wide(base)} & {literal(~hole, width)}) | {shifted}")
            return
        place = self.expressions.scalar(target)
        self._guarded(place.guard, f"{place.text} = {text};")

    def _guarded(self, guard: str | None, line: str) -> None:
        if guard is None:
            self.out.line(line)
        else:
            self.out.when(guard, line)

    def _assign_wide(self, target: ir.Expr, value: ir.Expr) -> None:
        place = self.expressions.scalar(target)
        size = (ir.width_of(target.type) + 7) // 8
        if isinstance(value, ir.Const):
            number = value.value & ((1 << ir.width_of(target.type)) - 1)
            digits = ", ".join(str(byte) for byte in number.to_bytes(size, "big"))
            self._guarded(place.guard, f"memcpy({place.text}, (const uint8_t[]){{{digits}}}, {size});")
            return
        if not isinstance(value, ir.Member | ir.Var):
            raise Unsupported("an expression of more than 128 bits", value.pos)
        source = self.expressions.scalar(value)
        copy = f"memmove({place.text}, {source.text}, {size});"
        if source.guard is not None:
            with self.out.block(f"if ({source.guard})"):
                self._guarded(place.guard, copy)
            with self.out.block("else"):
                self._guarded(place.guard, f"memset({place.text}, 0, {size});")
        else:
            self._guarded(place.guard, copy)

    def _assign_varbit(self, target: ir.Expr, value: ir.Expr) -> None:
        to, source = self.expressions.scalar(target), self.expressions.scalar(value)
        assert isinstance(target.type, ir.VarBits)
        text = source.text
        if source.guard is not None:
            text = f"{source.guard} ? {text} : (struct p4_varbit{target.type.max_width}){{0}}"
        self._guarded(to.guard, f"{to.text} = {text};")

    def _assign_aggregate(self, target: ir.Expr, value: ir.Expr) -> None:
        match target.type:
            case ir.Header():
                self._assign_header(self.expressions.header(target), self.expressions.header(value))
            case ir.Stack():
                to, source = self.expressions.stack(target), self.expressions.stack(value)
                for left, right in ((to.text, source.text), (to.valid, source.valid)):
                    self.out.line(f"memmove({left}, {right}, sizeof {left});")
                self.out.line(f"{to.next} = {source.next};")
            case ir.Struct(fields=fields):
                for name, type_ in fields:
                    to_field = ir.Member(type_, target, name, pos=target.pos)
                    field_of = ir.Member(type_, value, name, pos=value.pos)
                    if isinstance(type_, ir.Header | ir.Stack | ir.Struct):
                        self._assign_aggregate(to_field, field_of)
                    elif isinstance(type_, ir.VarBits):
                        self._assign_varbit(to_field, field_of)
                    elif is_wide(type_):
                        self._assign_wide(to_field, field_of)
                    else:
                        self.store(to_field, self.expressions.text(field_of))
            case _:
                raise TypeError(f"no aggregate: {target.type}")

    def _assign_header(self, to: HeaderPlace, source: HeaderPlace) -> None:
        fields, valid = source.home.text, source.home.valid
        if source.guard is not None:
            fields = f"{source.guard} ? {fields} : p4_zero_{source.home.layout.c_name}"
            valid = f"({source.guard} ? {valid} : 0)"
        with self.out.block(f"if ({to.guard})" if to.guard is not None else ""):
            self.out.line(
                f"{to.home.text} = {fields};",
                f"{to.home.valid} = {valid};",
            )

    # ----------------------------------------------------------------- headers and stacks

    def _set_validity(self, statement: ir.SetValidity) -> None:
        """Write a change of validity, which changes the packet's length in egress (as in BMv2)."""
        if self.in_parser:
            self.check([statement.header])
        header = self.expressions.header(statement.header)
        varbit = header.home.layout.varbit
        if varbit is not None:
            self.bring([statement.header])
        size = str(header.home.layout.fixed_bits // 8)
        if varbit is not None:
            size += f" + {header.home.text}.{varbit.member}.bits / 8"
        valid = header.home.valid
        sign, condition = ("+", f"!{valid}") if statement.valid else ("-", valid)
        guard = f"{header.guard} && " if header.guard is not None else ""
        with self.out.block(f"if ({guard}{condition})"):
            self.out.line(
                f"{valid} = {int(statement.valid)};",
                f"p->packet_length {sign}= {size};",
            )

    def _shift(self, statement: ir.Shift) -> None:
        stack = self.expressions.stack(statement.stack)
        count = min(abs(statement.count), stack.size)
        kept = stack.size - count
        if count == 0:
            return
        for array in (stack.text, stack.valid):
            to, source, free = (
                (f"&{array}[{count}]", f"&{array}[0]", f"&{array}[0]")
                if statement.count > 0
                else (f"&{array}[0]", f"&{array}[{count}]", f"&{array}[{kept}]")
            )
            if kept:
                self.out.line(f"memmove({to}, {source}, {kept} * sizeof {array}[0]);")
            self.out.line(f"memset({free}, 0, {count} * sizeof {array}[0]);")
        following = stack.next
        if statement.count > 0:
            moved = f"{following} + {count} < {stack.size} ? {following} + {count} : {stack.size}"
        else:
            moved = f"{following} > {count} ? {following} - {count} : 0"
        self.out.line(f"{following} = {moved};")

    # ----------------------------------------------------------------- registers

    def register(self, name: str, index: ir.Expr) -> tuple[str, str | None]:
        """Return the C lvalue of a register's cell, and the C condition that it exists (None: always)."""
        cell = self.unit.registers.cells[name]
        member = cell.member
        if cell.array is not None:
            member = self.expressions.elements.get(cell.array, member)
        text = self.expressions.index(index)
        slot = self.slots.get((cell.group, text))
        if slot is not None:
            return f"{slot}->{member}", None
        return f"s->{cell.group}[{text}].{member}", f"{text} < {cell.size}"


def where_name(home: HeaderHome) -> str:
    """Return the suffix in the names of the C functions that load and deparse a large header."""
    assert home.where is not None
    return home.where.rsplit(".", 1)[-1]


def _fields_and_headers(expr: ir.Expr) -> Iterable[ir.Expr]:
    """Yield the header and struct expressions whose fields `expr` reads or writes."""
    match expr:
        case ir.IsValid():
            return
        case ir.Member(base=base) if isinstance(base.type, ir.Header):
            yield base
            yield from _fields_and_headers(base)
        case ir.Var() | ir.Member():
            if isinstance(expr.type, ir.Header | ir.Struct):
                yield expr
            elif isinstance(expr, ir.Member):
                return
        case _:
            for child in child_expressions(expr):
                yield from _fields_and_headers(child)
