"""The externs of v1model: registers, counters, hashes, checksums, requests to the traffic manager.

Hash and checksum algorithms have BMv2's parameters. Each takes whole bytes and returns an unsigned number of
the algorithm's width.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

from softswitch.compiler import ir
from softswitch.compiler.ir.crc import STANDARD, Crc
from softswitch.engine.interpreter.expressions import (
    Evaluate,
    PacketState,
    Store,
    VarBitsValue,
    compile_expression,
    compile_store,
    wrapper,
)
from softswitch.engine.pipeline import DROP_PORT, GREEN, Event, PipelineError, TokenMeter, Trace


def csum16(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071): complement of the one's complement sum of 16-bit words."""
    total = sum(_words(data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    """Return the exclusive or of the 16-bit words of `data`."""
    result = 0
    for word in _words(data):
        result ^= word
    return result


def identity(data: bytes) -> int:
    """Return, as a number, the first 64 bits of `data`, or all bits if there are fewer."""
    return int.from_bytes(data[:8], "big")


def _words(data: bytes) -> list[int]:
    padded = data + b"\0" * (len(data) % 2)
    return [int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2)]


# BMv2's custom CRCs have the standard parameters until its control plane changes them.
ALGORITHMS: Mapping[str, Callable[[bytes], int]] = {
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "crc16": STANDARD["CRC16"].of,
    "crc16_custom": STANDARD["CRC16"].of,
    "csum16": csum16,
    "xor16": xor16,
    "identity": identity,
}


Effect = Callable[[PacketState], None]
Args = tuple[tuple[ir.Expr, ...], ...]

MASK_64 = (1 << 64) - 1
MAX_DIGESTS = 4096
"""Maximum number of digests waiting for the control plane; further ones are lost."""


class ExternState:
    """The externs' state that persists between packets: registers, counters, random numbers."""

    def __init__(self, program: ir.Program, seed: int, trace: Trace | None = None) -> None:
        self.trace = trace
        self.registers = {
            name: [register.initial] * register.size for name, register in program.registers.items()
        }
        self.counters = {
            name: [[0, 0] for _ in range(counter.size)]
            for name, counter in program.counters.items()
            if counter.table is None
        }
        self.meters = {
            name: [TokenMeter() for _ in range(meter.size)]
            for name, meter in program.meters.items()
            if meter.table is None
        }
        self.units = {name: meter.unit for name, meter in program.meters.items()}
        self.digests: list[tuple[str, tuple[int, ...]]] = []
        self.now_us = 0
        self._random = seed & MASK_64

    def next_random(self) -> int:
        """Return the next 64 bits of splitmix64."""
        self._random = (self._random + 0x9E3779B97F4A7C15) & MASK_64
        z = self._random
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK_64
        return z ^ (z >> 31)


def compile_extern(call: ir.Extern, state: ExternState) -> Effect:
    """Return a function that carries out a call of an extern. Raises PipelineError for unknown externs."""
    args = call.args
    match call.function:
        case "register.read":
            return _register_read(call, state, args)
        case "register.write":
            return _register_write(call, state, args)
        case "counter.count":
            return _count(state.counters[call.instance], args)
        case "meter.execute_meter":
            return _execute_meter(state, call.instance, args)
        case "digest":
            return _digest(state, call.instance, args)
        case "hash":
            return _hash(call)
        case "random":
            return _random(state, args)
        case "verify_checksum" | "verify_checksum_with_payload":
            return _verify_checksum(call)
        case "update_checksum" | "update_checksum_with_payload":
            return _update_checksum(call)
        case "mark_to_drop":
            return _mark_to_drop
        case "mirror":
            return _request(clone_session=_session(args[0]), mirrored=pack(args[1]))
        case "resubmit":
            return _request(resubmit_fields=lambda packet: -1, resubmitted=pack(args[0]))
        case "truncate":
            length = _value(args[0])
            return _request(truncate_to=lambda packet: min(packet.truncate_to, length(packet)))
        case "clone" | "clone_preserving_field_list":
            fields = _value(args[1]) if len(args) > 1 else lambda packet: -1
            return _request(clone_session=_session(args[0]), clone_fields=fields)
        case "resubmit_preserving_field_list":
            return _request(resubmit_fields=_value(args[0]))
        case "recirculate_preserving_field_list":
            return _request(recirculate_fields=_value(args[0]))
        case "direct_counter.count" | "log_msg" | "assert" | "assume":
            return lambda packet: None
        case _:
            raise PipelineError(f"{call.pos}: the interpreter has no extern {call.function!r}")


# --------------------------------------------------------------------------- registers and counters


def _register_read(call: ir.Extern, state: ExternState, args: Args) -> Effect:
    store, index = _target(args[0]), _value(args[1])
    cells, trace = state.registers[call.instance], state.trace

    def read(packet: PacketState) -> None:
        position = index(packet)
        found = cells[position] if 0 <= position < len(cells) else None
        store(packet, found or 0)
        if trace is not None:
            trace(Event("read", call.instance, {"index": position, "value": found}, call.pos))

    return read


def _register_write(call: ir.Extern, state: ExternState, args: Args) -> Effect:
    index, value = _value(args[0]), _value(args[1])
    cells, trace = state.registers[call.instance], state.trace

    def write(packet: PacketState) -> None:
        position, new = index(packet), value(packet)
        old = None
        if 0 <= position < len(cells):
            old, cells[position] = cells[position], new
        if trace is not None:
            trace(Event("write", call.instance, {"index": position, "old": old, "value": new}, call.pos))

    return write


def _count(cells: list[list[int]], args: Args) -> Effect:
    index = _value(args[0])

    def count(packet: PacketState) -> None:
        position = index(packet)
        if 0 <= position < len(cells):
            cells[position][0] += 1
            cells[position][1] += packet.counted

    return count


def cost(unit: str, bytes_: int) -> int:
    """Return the tokens that a packet of `bytes_` bytes takes from a meter that counts `unit`."""
    return bytes_ if unit == "bytes" else 1


def _execute_meter(state: ExternState, name: str, args: Args) -> Effect:
    store, index = _target(args[0]), _value(args[1])
    meters, unit = state.meters[name], state.units[name]
    wrap = wrapper(args[0][0].type)

    def execute(packet: PacketState) -> None:
        position, colour = index(packet), GREEN
        if 0 <= position < len(meters):
            colour = meters[position].colour(state.now_us, cost(unit, packet.counted), packet.counted)
        store(packet, wrap(colour))

    return execute


def _digest(state: ExternState, name: str, args: Args) -> Effect:
    values = [(compile_expression(expr), (1 << ir.width_of(expr.type)) - 1) for expr in args[0]]

    def send(packet: PacketState) -> None:
        if len(state.digests) < MAX_DIGESTS:
            state.digests.append((name, tuple(value(packet) & mask for value, mask in values)))

    return send


# --------------------------------------------------------------------------- hashes and checksums


def _hash(call: ir.Extern) -> Effect:
    args, algorithm = call.args, _algorithm(call)
    store, base, data, maximum = _target(args[0]), _value(args[1]), pack(args[2]), _value(args[3])
    wrap = wrapper(args[0][0].type)

    def run(packet: PacketState) -> None:
        # BMv2 computes this in 64 bits and treats a maximum of 0 as 1.
        number = (algorithm(data(packet)) % max(maximum(packet), 1) + base(packet)) & MASK_64
        store(packet, wrap(number))

    return run


def _random(state: ExternState, args: Args) -> Effect:
    store, low, high = _target(args[0]), _value(args[1]), _value(args[2])
    wrap = wrapper(args[0][0].type)

    def draw(packet: PacketState) -> None:
        lowest, highest = low(packet), high(packet)
        if highest < lowest:
            store(packet, lowest)
        else:
            store(packet, wrap(lowest + state.next_random() % (highest - lowest + 1)))

    return draw


def _verify_checksum(call: ir.Extern) -> Effect:
    condition, compute, checksum = _value(call.args[0]), _checksum(call), _value(call.args[2])

    def verify(packet: PacketState) -> None:
        if condition(packet) and compute(packet) != checksum(packet):
            packet.checksum_error = 1

    return verify


def _update_checksum(call: ir.Extern) -> Effect:
    condition, compute, store = _value(call.args[0]), _checksum(call), _target(call.args[2])
    wrap = wrapper(call.args[2][0].type)

    def update(packet: PacketState) -> None:
        if condition(packet):
            store(packet, wrap(compute(packet)))

    return update


def _checksum(call: ir.Extern) -> Callable[[PacketState], int]:
    data, algorithm = pack(call.args[1]), _algorithm(call)
    if call.function.endswith("payload"):
        return lambda packet: algorithm(data(packet) + packet.payload)
    return lambda packet: algorithm(data(packet))


def pack(exprs: Sequence[ir.Expr]) -> Callable[[PacketState], bytes]:
    """Return a function that concatenates the values, padded with zero bits to whole bytes."""
    parts = [(compile_expression(expr), ir.width_of(expr.type)) for expr in exprs]

    def run(packet: PacketState) -> bytes:
        number, bits = 0, 0
        for evaluate, width in parts:
            value = evaluate(packet)
            if isinstance(value, VarBitsValue):
                width, value = value
            number = (number << width) | (value & ((1 << width) - 1))
            bits += width
        padding = -bits % 8
        return (number << padding).to_bytes((bits + padding) // 8, "big")

    return run


# --------------------------------------------------------------------------- the traffic manager


def _mark_to_drop(packet: PacketState) -> None:
    fields = packet.variables["standard_metadata"].fields
    fields["egress_spec"] = DROP_PORT
    fields["mcast_grp"] = 0


def _request(**values: Evaluate) -> Effect:
    """Return a function that sets attributes of a packet to the values of expressions."""

    def request(packet: PacketState) -> None:
        for name, evaluate in values.items():
            setattr(packet, name, evaluate(packet))

    return request


def _session(arg: tuple[ir.Expr, ...]) -> Evaluate:
    session = _value(arg)
    return lambda packet: session(packet) & 0xFFFF


# --------------------------------------------------------------------------- arguments


def _value(arg: tuple[ir.Expr, ...]) -> Evaluate:
    return compile_expression(arg[0])


def _target(arg: tuple[ir.Expr, ...]) -> Store:
    return compile_store(arg[0])


def _algorithm(call: ir.Extern) -> Callable[[bytes], int]:
    name = call.instance
    if (crc := Crc.parse(name)) is not None:
        return crc.of
    if name not in ALGORITHMS:
        raise PipelineError(f"{call.pos}: no hash algorithm {name!r}; there are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]
