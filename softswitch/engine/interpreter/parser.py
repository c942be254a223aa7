"""Taking headers out of a frame and putting them back: extract, advance, emit and parser states."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from softswitch.compiler import ir
from softswitch.engine.interpreter.expressions import compile_expression
from softswitch.engine.interpreter.storage import (
    HeaderValue,
    PacketState,
    ParserError,
    VarBitsValue,
    wrapper,
)
from softswitch.engine.trace import Event, Trace

Effect = Callable[[PacketState], None]

MAX_STATES = 1000
"""Most states that a packet enters; after them its parser counts as looping."""


def fixed_width(header: ir.Header) -> int:
    """Return the width in bits of a header without its varbit field."""
    return sum(ir.width_of(type_) for _, type_ in header.fields if not isinstance(type_, ir.VarBits))


def current_width(header: ir.Header, value: HeaderValue) -> int:
    """Return the width in bits of a header, its varbit field as long as it is now."""
    varbits = [value.fields[name] for name, type_ in header.fields if isinstance(type_, ir.VarBits)]
    return fixed_width(header) + sum(int(varbit.width) for varbit in varbits)


def compile_extract(statement: ir.Extract) -> Effect:
    """Return the effect of ``packet.extract``; it raises ParserError and then changes nothing."""
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
        header_type: Its type.
        header: Its value, which is changed.
        bits: Its bits, as a number.
        width: Number of bits; those beyond the fixed width belong to the varbit.
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
    """Return the effect of ``packet.advance``."""
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
    """Return the effect of ``packet.emit``: the valid headers are added to the packet's output."""
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
    states: Mapping[str, ir.State],
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
    """Return a function that gives the next state's name."""
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


def pattern_matches(pattern: ir.Pattern, value: int, full: int) -> bool:
    """Return True if a canonical value of the type whose bits are `full` fits a pattern."""
    match pattern.kind:
        case "any":
            return True
        case "exact":
            return (value ^ pattern.value) & full == 0
        case "mask":
            return (value ^ pattern.value) & pattern.mask & full == 0
        case "range":
            return pattern.value <= value <= pattern.mask
        case _:
            raise ValueError(f"no such pattern: {pattern.kind}")
