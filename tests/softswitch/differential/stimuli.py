"""Random table entries and packets for any program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from random import Random

from softswitch.compiler import ir
from softswitch.engine.pipeline import EntryExists, Pipeline, TableFull

INTERESTING = (0, 1, 2, 3, 5, 7, 8, 0x10, 0x7F, 0x80, 0xFF)
"""Values that fields, keys and constants like to have, so that they meet."""


def internet_checksum(data: bytes) -> int:
    """Return the RFC 1071 checksum."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def number(random: Random, width: int) -> int:
    """Return an unsigned number of `width` bits: a small, an extreme or any one."""
    full = (1 << width) - 1
    match random.randrange(8):
        case 0 | 1 | 2 | 3:
            return random.choice(INTERESTING) & full
        case 4:
            return (full - random.choice((0, 1, 2, full >> 1))) & full
        case 5:
            return 1 << random.randrange(width)
        case _:
            return random.getrandbits(width)


def canonical(type_: ir.Type, value: int) -> int:
    """Return the number with these bits as the IR writes it."""
    if isinstance(type_, ir.Bits) and type_.signed and value >> (type_.width - 1):
        return value - (1 << type_.width)
    return value


def entries(random: Random, program: ir.Program, table: ir.Table, count: int) -> Iterator[ir.ConstEntry]:
    """Yield random entries that fit `table`."""
    usable = [ref.action for ref in table.actions if ref.scope != "default_only"]
    for i in range(count):
        patterns = tuple(pattern(random, key) for key in table.keys)
        yield ir.ConstEntry(patterns, invocation(random, program, random.choice(usable)), 1 + i % 7)


def invocation(random: Random, program: ir.Program, action: str) -> ir.Invocation:
    """Return `action` with random arguments."""
    args = (
        canonical(param.type, number(random, width_of(param.type)))
        for param in program.actions[action].params
    )
    return ir.Invocation(action, tuple(args))


def pattern(random: Random, key: ir.Key) -> ir.Pattern:
    """Return a random pattern of the key's kind."""
    width = width_of(key.expr.type)
    full = (1 << width) - 1
    value = number(random, width)
    if key.match != "exact" and random.randrange(6) == 0:
        return ir.Pattern("any")
    match key.match:
        case "lpm":
            mask = full ^ (full >> random.randint(0, width))
            return ir.Pattern("mask", value & mask, mask)
        case "ternary":
            mask = random.choice((full, number(random, width)))
            return ir.Pattern("mask", value & mask, mask)
        case "range":
            low, high = sorted((value, number(random, width)))
            return ir.Pattern("range", low, high)
        case _:
            return ir.Pattern("exact", value)


def width_of(type_: ir.Type) -> int:
    """Return the width of a key's or parameter's type."""
    return type_.width if isinstance(type_, ir.Bits) else 1 if isinstance(type_, ir.Bool) else 32


def install(random: Random, pipelines: Sequence[Pipeline], per_table: int) -> None:
    """Put the same random entries, defaults and register values into all `pipelines`."""
    program = pipelines[0].program
    for name, table in program.tables.items():
        wanted = [] if table.const_entries else list(entries(random, program, table, per_table))
        default = None
        if not table.const_default and random.randrange(2):
            usable = [ref.action for ref in table.actions if ref.scope != "table_only"]
            default = invocation(random, program, random.choice(usable))
        for pipeline in pipelines:
            for entry in wanted:
                with contextlib.suppress(EntryExists, TableFull):
                    pipeline.insert(name, entry)
            pipeline.set_default(name, default)
    for name, register in program.registers.items():
        for index in range(min(register.size, 8)):
            value = canonical(register.type, number(random, width_of(register.type)))
            for pipeline in pipelines:
                pipeline.write_register(name, index, value)


def disturb(random: Random, pipelines: Sequence[Pipeline]) -> None:
    """Delete, modify and add a few entries alike in all `pipelines`."""
    program = pipelines[0].program
    for name, table in program.tables.items():
        if table.const_entries:
            continue
        for entry in pipelines[0].entries(name):
            choice = random.randrange(6)
            usable = [ref.action for ref in table.actions if ref.scope != "default_only"]
            changed = entry._replace(invocation=invocation(random, program, random.choice(usable)))
            for pipeline in pipelines:
                if choice == 0:
                    pipeline.delete(name, entry)
                elif choice == 1:
                    pipeline.modify(name, changed)
        for entry in list(entries(random, program, table, 2)) if table.keys else []:
            for pipeline in pipelines:
                with contextlib.suppress(EntryExists, TableFull):
                    pipeline.insert(name, entry)


def frame(random: Random, longest: int) -> bytes:
    """Return random bytes; some of them are values that programs compare with."""
    length = random.choice((0, 1, longest, random.randint(0, longest), random.randint(longest // 2, longest)))
    return bytes(
        random.choice(INTERESTING) if random.randrange(3) else random.randrange(256) for _ in range(length)
    )


def mutated(random: Random, original: bytes) -> bytes:
    """Return a frame with a few bits flipped, cut short or made longer."""
    data = bytearray(original)
    for _ in range(random.choice((0, 0, 1, 1, 2, 8))):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    match random.randrange(8):
        case 0:
            return bytes(data[: random.randint(0, len(data))])
        case 1:
            return bytes(data) + random.randbytes(random.randint(1, 64))
        case _:
            return bytes(data)
