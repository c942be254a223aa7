"""Statements and parser states of the IR as Python functions of a packet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import assert_never

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import written
from softswitch.engine.interpreter.expressions import (
    HeaderValue,
    PacketState,
    ParserError,
    TableState,
    VarBitsValue,
    blank,
    compile_expression,
    compile_store,
    overwrite,
    pattern_matches,
    wrapper,
)
from softswitch.engine.interpreter.externs import ExternState, compile_extern, cost
from softswitch.engine.pipeline import Event, Trace

Effect = Callable[[PacketState], None]

MAX_STATES = 1000
"""Maximum number of states that a packet may enter; after it the parser stops with ParserTimeout."""


def fixed_width(header: ir.Header) -> int:
    """Return the width in bits of a header without its varbit field."""
    return sum(ir.width_of(type_) for _, type_ in header.fields if not isinstance(type_, ir.VarBits))


def current_width(header: ir.Header, value: HeaderValue) -> int:
    """Return the width in bits of a header, with its varbit field's present length."""
    varbits = [value.fields[name] for name, type_ in header.fields if isinstance(type_, ir.VarBits)]
    return fixed_width(header) + sum(int(varbit.width) for varbit in varbits)


def compile_extract(statement: ir.Extract) -> Effect:
    """Return a function that performs an extract. If it raises ParserError, the packet is unchanged."""
    header_type = statement.header.type
    assert isinstance(header_type, ir.Header)
    locate = compile_expression(statement.header)
    size = compile_expression(statement.size) if statement.size is not None else lambda packet: 0
    stack = compile_expression(statement.header.base) if isinstance(statement.header, ir.Next) else None
    fixed = fixed_width(header_type)
    largest = max((t.max_width for _, t in header_type.fields if isinstance(t, ir.VarBits)), default=0)

    def extract(packet: PacketState) -> None:
        header = locate(packet)
        variable = size(packet)
        if variable % 8:
            raise ParserError("ParserInvalidArgument")
        bits = packet.read_bits(fixed + variable)
        if variable > largest:
            raise ParserError("HeaderTooShort")
        unpack(header_type, header, bits, fixed + variable)
        header.valid = True
        packet.cursor += fixed + variable
        if stack is not None:
            stack(packet).next += 1

    return extract


def unpack(header_type: ir.Header, header: HeaderValue, bits: int, width: int) -> None:
    """Fill the fields of a header.

    Args:
        header_type: The header's type.
        header: The header, which is changed.
        bits: The header's bits, as a number.
        width: Number of bits; the bits beyond the header's fixed width belong to its varbit.
    """
    variable = width - fixed_width(header_type)
    for name, type_ in header_type.fields:
        if isinstance(type_, ir.VarBits):
            width -= variable
            header.fields[name] = VarBitsValue(variable, (bits >> width) & ((1 << variable) - 1))
        else:
            width -= ir.width_of(type_)
            header.fields[name] = wrapper(type_)(bits >> width)


def compile_advance(statement: ir.Advance) -> Effect:
    """Return a function that does ``packet.advance``."""
    amount = compile_expression(statement.bits)

    def advance(packet: PacketState) -> None:
        bits = amount(packet)
        if bits % 8:
            raise ParserError("ParserInvalidArgument")
        if packet.cursor + bits > 8 * len(packet.frame):
            raise ParserError("PacketTooShort")
        packet.cursor += bits

    return advance


def compile_emit(statement: ir.Emit) -> Effect:
    """Return a function that does ``packet.emit``: it adds the valid headers to the packet's output."""
    type_ = statement.header.type
    locate = compile_expression(statement.header)
    if isinstance(type_, ir.Header):
        return lambda packet: emit(packet, type_, locate(packet))
    assert isinstance(type_, ir.Stack)

    def emit_stack(packet: PacketState) -> None:
        for element in locate(packet).elements:
            emit(packet, type_.element, element)

    return emit_stack


def emit(packet: PacketState, header_type: ir.Header, header: HeaderValue) -> None:
    """Append a header to the output of `packet` if it is valid."""
    if not header.valid:
        return
    number, bits = 0, 0
    for name, type_ in header_type.fields:
        value = header.fields[name]
        width, value = value if isinstance(value, VarBitsValue) else (ir.width_of(type_), value)
        number = (number << width) | (value & ((1 << width) - 1))
        bits += width
    packet.output = (packet.output << bits) | number
    packet.output_bits += bits


# --------------------------------------------------------------------------- states


def compile_parser(
    states: Mapping[str, ir.ParserState],
    body: Callable[[tuple[ir.Stmt, ...]], Callable[[PacketState], object]],
    trace: Trace | None = None,
) -> Effect:
    """Return a function that parses a packet from state ``start``; `body` compiles statements.

    It raises ParserError where the parser stops with an error.
    """
    compiled = {
        name: (body(state.body), compile_transition(state.transition)) for name, state in states.items()
    }

    def parse(packet: PacketState) -> None:
        name = "start"
        for _ in range(MAX_STATES):
            run, choose = compiled[name]
            if trace is not None:
                trace(Event("state", name, pos=states[name].pos))
            run(packet)
            name = choose(packet)
            if name == "accept":
                return
            if name == "reject":
                raise ParserError("NoError")
        raise ParserError("ParserTimeout")

    return parse


def compile_transition(transition: ir.Transition) -> Callable[[PacketState], str]:
    """Return a function that evaluates `transition` for a packet and returns the next state's name."""
    subjects = [(compile_expression(s), (1 << ir.width_of(s.type)) - 1) for s in transition.subjects]

    def choose(packet: PacketState) -> str:
        values = [evaluate(packet) for evaluate, _ in subjects]
        for patterns, target in transition.cases:
            if all(
                pattern_matches(pattern, value, full)
                for pattern, value, (_, full) in zip(patterns, values, subjects, strict=True)
            ):
                return target
        raise ParserError("NoMatch")

    return choose


class Leave(Enum):
    """The construct that a jump statement ends."""

    BODY = auto()  # return: leave the innermost scope, action or block
    BLOCK = auto()  # exit: leave ingress or egress
    LOOP = auto()  # break: end the innermost loop
    ROUND = auto()  # continue: end the loop's body and go to its update


MAX_ROUNDS = 1 << 20
"""Maximum number of iterations of a loop in the program; after them, the interpreter ends the loop."""


Execute = Callable[[PacketState], Leave | None]


class StatementCompiler:
    """Compiles the statements of one program to functions that use the program's tables and externs."""

    def __init__(self, program: ir.Program, tables: dict[str, TableState], externs: ExternState) -> None:
        self._program = program
        self._tables = tables
        self._externs = externs
        self._actions: dict[str, Execute] = {}

    def body(self, statements: Sequence[ir.Stmt]) -> Execute:
        """Return a function that runs statements in order until one leaves (`return`, `break` and so on)."""
        steps = [self._statement(statement) for statement in statements]

        def run(packet: PacketState) -> Leave | None:
            for step in steps:
                leave = step(packet)
                if leave is not None:
                    return leave
            return None

        return run

    def scope(self, statements: Sequence[ir.Stmt]) -> Execute:
        """Return a function that runs statements in order; a ``return`` ends only these statements."""
        run = self.body(statements)
        return lambda packet: Leave.BLOCK if run(packet) is Leave.BLOCK else None

    def action(self, name: str) -> Execute:
        """Return the function that runs an action's body."""
        if name not in self._actions:
            self._actions[name] = self.scope(self._program.actions[name].body)
        return self._actions[name]

    def _statement(self, statement: ir.Stmt) -> Execute:
        match statement:
            case ir.Assign():
                return self._assign(statement)
            case ir.Forget():
                return lambda packet: None
            case ir.If():
                condition = compile_expression(statement.condition)
                then, otherwise = self.body(statement.then), self.body(statement.otherwise)
                return lambda packet: then(packet) if condition(packet) else otherwise(packet)
            case ir.Switch():
                return self._switch(statement)
            case ir.Apply():
                return self._apply(statement)
            case ir.Call():
                return self._call(statement)
            case ir.Inlined():
                return self.scope(statement.body)
            case ir.Return():
                return lambda packet: Leave.BODY
            case ir.Exit():
                return lambda packet: Leave.BLOCK
            case ir.Loop():
                return self._loop(statement)
            case ir.Break():
                return lambda packet: Leave.LOOP
            case ir.Continue():
                return lambda packet: Leave.ROUND
            case ir.Skip():
                return self._skip(statement)
            case ir.SetValidity():
                return self._set_validity(statement)
            case ir.Shift():
                return self._shift(statement)
            case ir.Extract():
                return self._extract(statement)
            case ir.Advance():
                return compile_advance(statement)
            case ir.Verify():
                return self._verify(statement)
            case ir.Emit():
                return compile_emit(statement)
            case ir.Extern():
                return compile_extern(statement, self._externs)
            case _:
                assert_never(statement)

    def _assign(self, statement: ir.Assign) -> Execute:
        value = compile_expression(statement.value)
        if isinstance(statement.target.type, ir.Header | ir.Stack | ir.Struct):
            target = compile_expression(statement.target)
            return lambda packet: overwrite(target(packet), value(packet))
        store = compile_store(statement.target)
        return lambda packet: store(packet, value(packet))

    def _switch(self, statement: ir.Switch) -> Execute:
        subject = compile_expression(statement.subject)
        cases = [
            ({constant.value for constant in constants}, self.body(body))
            for constants, body in statement.cases
        ]

        def switch(packet: PacketState) -> Leave | None:
            value = subject(packet)
            for constants, run in cases:
                if value in constants or not constants:
                    return run(packet)
            return None

        return switch

    def _apply(self, statement: ir.Apply) -> Execute:
        state = self._tables[statement.table]
        table = state.table
        keys = [compile_expression(key.expr) for key in table.keys]
        positions = {reference.action: i for i, reference in enumerate(table.actions)}
        actions = {name: self.action(name) for name in (*positions, table.default.action)}
        params = {name: [p.variable for p in self._program.actions[name].params] for name in actions}
        hit = compile_store(statement.hit) if statement.hit is not None else None
        action = compile_store(statement.action) if statement.action is not None else None

        meter = self._program.meters[table.direct_meter] if table.direct_meter is not None else None
        externs, trace = self._externs, self._externs.trace
        names = {name: [p.name for p in self._program.actions[name].params] for name in actions}

        cells = [(compile_expression(cell.place), compile_store(cell.place)) for cell in table.cells]
        initial = [cell.initial for cell in table.cells]

        def apply(packet: PacketState) -> Leave | None:
            values = [key(packet) for key in keys]
            entry = state.lookup(values)
            invocation = state.default if entry is None else entry.invocation
            parts = state.parts[entry]
            parts.hit(packet.counted, externs.now_us)
            if meter is not None:
                colour = parts.meter.colour(externs.now_us, cost(meter.unit, packet.counted), packet.counted)
                packet.variables[meter.colour] = colour
            if trace is not None:
                trace(_applied(statement, table, values, entry is not None, invocation, names))
            if hit is not None:
                hit(packet, int(entry is not None))
            if action is not None:
                action(packet, positions[invocation.action])
            for variable, value in zip(params[invocation.action], invocation.args, strict=True):
                packet.variables[variable] = value
            if not cells:
                return actions[invocation.action](packet)
            held = initial if entry is None or parts.cells is None else parts.cells
            for (_, store), value in zip(cells, held, strict=True):
                store(packet, value)
            left = actions[invocation.action](packet)
            if entry is not None:
                parts.cells = [load(packet) for load, _ in cells]
            return left

        return apply

    def _call(self, statement: ir.Call) -> Execute:
        run, trace = self.action(statement.action), self._externs.trace
        if trace is None:
            return run
        event = Event("action", ir.plain_name(statement.action), pos=statement.pos)

        def called(packet: PacketState) -> Leave | None:
            trace(event)
            return run(packet)

        return called

    def _extract(self, statement: ir.Extract) -> Execute:
        run, trace = compile_extract(statement), self._externs.trace
        if trace is None:
            return run
        name, last = written(statement.header), isinstance(statement.header, ir.Next)
        base = statement.header.base if isinstance(statement.header, ir.Next) else statement.header
        locate = compile_expression(base)

        def extract(packet: PacketState) -> None:
            run(packet)
            found = locate(packet)
            header = found.elements[found.next - 1] if last else found
            fields = {field: int(getattr(value, "value", value)) for field, value in header.fields.items()}
            trace(Event("extract", name, fields, statement.pos))

        return extract

    def _set_validity(self, statement: ir.SetValidity) -> Execute:
        type_ = statement.header.type
        assert isinstance(type_, ir.Header)
        locate, valid = compile_expression(statement.header), statement.valid

        def set_validity(packet: PacketState) -> None:
            header = locate(packet)
            if header.valid != valid:
                change = current_width(type_, header) // 8
                packet.length += change if valid else -change
            header.valid = valid

        return set_validity

    def _shift(self, statement: ir.Shift) -> Execute:
        type_ = statement.stack.type
        assert isinstance(type_, ir.Stack)
        locate, size = compile_expression(statement.stack), type_.size
        count = max(-size, min(size, statement.count))

        def shift(packet: PacketState) -> None:
            stack = locate(packet)
            fresh = [blank(type_.element) for _ in range(abs(count))]
            if count >= 0:
                stack.elements = fresh + stack.elements[: size - count]
            else:
                stack.elements = stack.elements[-count:] + fresh
            stack.next = max(0, min(size, stack.next + count))

        return shift

    def _loop(self, statement: ir.Loop) -> Execute:
        body, update = self.body(statement.body), self.body(statement.update)

        def loop(packet: PacketState) -> Leave | None:
            for _ in range(MAX_ROUNDS):
                leave = body(packet)
                if leave is Leave.LOOP:
                    return None
                if leave is not None and leave is not Leave.ROUND:
                    return leave
                if update(packet) is Leave.LOOP:
                    return None
            return None

        return loop

    def _skip(self, statement: ir.Skip) -> Execute:
        type_ = statement.stack.type
        assert isinstance(type_, ir.Stack)
        locate, size = compile_expression(statement.stack), type_.size

        def skip(packet: PacketState) -> None:
            stack = locate(packet)
            stack.next = min(size, stack.next + 1)

        return skip

    def _verify(self, statement: ir.Verify) -> Execute:
        condition, error = compile_expression(statement.condition), compile_expression(statement.error)
        members = self._program.errors.members

        def verify(packet: PacketState) -> None:
            if not condition(packet):
                raise ParserError(members[error(packet)])

        return verify


def _applied(
    apply: ir.Apply,
    table: ir.Table,
    values: Sequence[int],
    hit: bool,
    invocation: ir.Invocation,
    params: Mapping[str, Sequence[str]],
) -> Event:
    """Return the trace event of a table's application."""
    action = invocation.action
    details = {
        "key": {key.name: value for key, value in zip(table.keys, values, strict=True)},
        "hit": hit,
        "action": ir.plain_name(action),
        "arguments": dict(zip(params[action], invocation.args, strict=True)),
    }
    return Event("table", table.name, details, apply.pos)
