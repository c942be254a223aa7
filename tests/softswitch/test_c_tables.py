"""Tables of the compiled pipeline against the interpreter's, through inserts, changes and deletions."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

import pytest

from softswitch.compiler import ir
from softswitch.engine.build import load
from softswitch.engine.pipeline import (
    BadEntry,
    Copy,
    EntryExists,
    NoSuchEntry,
    NoSuchObject,
    Pipeline,
    TableFull,
)
from tests.softswitch import ir_programs as hand

WIDTHS = {"short": (16, 9), "word": (48, 16), "long": (64, 64), "longer": (128, 33, 7)}
"""Keys of one word of 64 bits, exactly one, two, and three."""


def program(matches: tuple[str, ...], widths: tuple[int, ...], *, size: int = 5000) -> ir.Program:
    """Return a program whose one table sets the port, or 500 on a miss."""
    fields = tuple((f"k{i}", ir.Bits(width)) for i, width in enumerate(widths))
    padding = -sum(widths) % 8
    if padding:
        fields += (("padding", ir.Bits(padding)),)
    header = ir.Header("key_t", fields)
    hdr = ir.Struct("headers_t", (("key", header),))
    root = hand.var("hdr", hdr)
    port = hand.path(hand.var("standard_metadata", hand.STANDARD), "egress_spec")
    param = ir.Param("port", "set.port", hand.B9)
    table = ir.Table(
        name="t",
        keys=tuple(
            ir.Key(f"k{i}", hand.path(root, "key", f"k{i}"), match) for i, match in enumerate(matches)
        ),
        actions=(ir.ActionRef("set"),),
        default=ir.Invocation("set", (500,)),
        const_default=False,
        entries=(),
        const_entries=False,
        size=size,
        direct_counter="hits",
        pos=hand.POS,
    )
    return hand.program(
        hdr=hdr,
        extracts=["key"],
        ingress=[ir.Apply("t", None, None, pos=hand.POS)],
        variables={"set.port": hand.B9},
        actions=[hand.action("set", [hand.assign(port, hand.var("set.port", hand.B9))], [param])],
        tables=[table],
        counters=[ir.Counter("hits", "packets_and_bytes", 0, "t", pos=hand.POS)],
    )


def pattern(random: Random, match: str, width: int, *, near: int) -> ir.Pattern:
    """Return a random pattern; values share their upper bits so that entries overlap and collide."""
    full = (1 << width) - 1
    value = random.randrange(near) | (random.getrandbits(1) << (width - 1))
    match match:
        case "exact":
            return ir.Pattern("exact", value & full)
        case "lpm":
            length = random.choice((0, 1, width // 2, width - 2, width))
            mask = full ^ (full >> length)
            return ir.Pattern("mask", value & mask, mask) if mask else ir.Pattern("any")
        case "ternary":
            mask = random.choice((0, full, full - 3, 1, 1 << (width - 1)))
            return ir.Pattern("mask", value & full, mask)
        case "range":
            ends = sorted((random.randrange(near), random.randrange(near)))
            return ir.Pattern("range", ends[0] & full, max(ends[0] & full, ends[1] & full))
        case _:
            return random.choice((ir.Pattern("any"), ir.Pattern("exact", value & full)))


def entry(random: Random, matches: tuple[str, ...], widths: tuple[int, ...], near: int) -> ir.ConstEntry:
    patterns = tuple(
        pattern(random, match, width, near=min(near, 1 << (width - 1)))
        for match, width in zip(matches, widths, strict=True)
    )
    return ir.ConstEntry(patterns, ir.Invocation("set", (random.randrange(1, 499),)), random.randrange(1, 9))


def frame(random: Random, widths: tuple[int, ...], near: int) -> bytes:
    number = 0
    for width in widths:
        value = random.randrange(min(near, 1 << (width - 1))) | (random.getrandbits(1) << (width - 1))
        number = number << width | value
    padding = -sum(widths) % 8
    return (number << padding).to_bytes((sum(widths) + padding) // 8, "big")


def outcome(pipeline: Pipeline, operation: str, subject: ir.ConstEntry) -> str:
    try:
        getattr(pipeline, operation)("t", subject)
    except (BadEntry, EntryExists, NoSuchEntry, TableFull) as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize(
    "matches",
    [
        *(("exact", "exact", "exact"), ("exact", "lpm", "exact"), ("lpm", "exact", "exact")),
        *(("ternary", "exact", "lpm"), ("range", "ternary", "optional"), ("optional", "range", "range")),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
def test_tables_agree_with_the_interpreter(matches: tuple[str, ...], widths: tuple[int, ...]) -> None:
    matches = matches[: len(widths)]
    source = program(matches, widths)
    compiled, oracle = load(source, backend="compiled"), load(source, backend="interpreter")
    random, near = Random(str((matches, widths))), 24
    installed: list[ir.ConstEntry] = []
    for step in range(300):
        operation = random.choice(("insert", "insert", "modify", "delete"))
        known = operation != "insert" and installed and random.randrange(4)
        subject = random.choice(installed) if known else entry(random, matches, widths, near)
        if operation == "modify":
            subject = ir.ConstEntry(subject.patterns, ir.Invocation("set", (step % 499,)), subject.priority)
        expected = outcome(oracle, operation, subject)
        assert outcome(compiled, operation, subject) == expected
        if operation == "insert" and expected == "done":
            installed.append(subject)
        probe = frame(random, widths, near)
        assert bytes(compiled.ingress(probe, 1)[1]) == bytes(oracle.ingress(probe, 1)[1])
    assert compiled.entries("t") == oracle.entries("t")
    for present in compiled.entries("t"):
        assert compiled.read_direct_counter("t", present) == oracle.read_direct_counter("t", present)


@pytest.mark.parametrize(
    "matches",
    [
        *(("ternary", "exact"), ("exact", "lpm"), ("lpm", "exact")),
        *(("exact", "range"), ("range", "ternary"), ("range", "range")),
    ],
    ids="-".join,
)
def test_large_tables_agree_with_the_interpreter_through_changes(matches: tuple[str, ...]) -> None:
    """Enough entries for an index, enough look-ups for it to be made, enough deletions to make it anew.

    Entries that differ by their ranges only have none: they would all be in one place.
    """
    widths = WIDTHS["word"]
    source = program(matches, widths)
    compiled, oracle = load(source, backend="compiled"), load(source, backend="interpreter")
    random, near = Random(str(matches)), 1 << 9
    installed: list[ir.ConstEntry] = []
    for _ in range(12):
        for _ in range(60):
            subject = entry(random, matches, widths, near)
            if outcome(oracle, "insert", subject) == "done":
                installed.append(subject)
                compiled.insert("t", subject)
        for _ in range(25):
            gone = installed.pop(random.randrange(len(installed)))
            compiled.delete("t", gone)
            oracle.delete("t", gone)
        for _ in range(100):
            probe = frame(random, widths, near)
            assert bytes(compiled.ingress(probe, 1)[1]) == bytes(oracle.ingress(probe, 1)[1])
    assert len(installed) > 300


@pytest.mark.parametrize("widths", [(32, 4), (128, 16)], ids=["IPv4", "IPv6"])
def test_the_longest_prefix_wins_among_all_lengths(widths: tuple[int, int]) -> None:
    """More entries than one size of the table, every length, some deleted: a plain search says which wins."""
    pipeline, random, width = (
        load(program(("lpm", "exact"), widths), backend="compiled"),
        Random(7),
        widths[0],
    )
    known: dict[tuple[int, int, int], int] = {}

    def match(value: int, length: int, other: int) -> tuple[ir.Pattern, ...]:
        full = (1 << width) - 1
        mask = full ^ (full >> length)
        return ir.Pattern("mask", value, mask) if mask else ir.Pattern("any"), ir.Pattern("exact", other)

    for number in range(1, 499):
        length, other = random.randrange(width + 1), random.randrange(3)
        value = random.choice([0, *(known and [random.choice([*known])[0]]), random.getrandbits(width)])
        key = (value >> (width - length) << (width - length), length, other)
        if key not in known:
            pipeline.insert("t", ir.ConstEntry(match(*key), ir.Invocation("set", (number,)), 0))
            known[key] = number
    for key in random.sample([*known], len(known) // 3):
        pipeline.delete("t", ir.ConstEntry(match(*key), ir.Invocation("set", (1,)), 0))
        del known[key]
    for value, length, other in [*known] * 2:
        probe = value | (random.getrandbits(width) >> length)
        fits = [
            (at, port)
            for (v, at, o), port in known.items()
            if o == other and (v ^ probe) >> (width - at) == 0
        ]
        wire = (probe << widths[1] | other) << -sum(widths) % 8
        verdict = pipeline.ingress(wire.to_bytes((sum(widths) + 7) // 8, "big"), 1)[1]
        assert verdict.egress_spec == max(fits)[1]


def test_a_full_exact_table_finds_every_entry_and_forgets_deleted_ones() -> None:
    source = program(("exact", "exact"), (32, 16), size=4000)
    pipeline = load(source, backend="compiled")

    def key(number: int) -> tuple[ir.Pattern, ...]:
        return ir.Pattern("exact", number * 0x10001 & 0xFFFFFFFF), ir.Pattern("exact", number & 3)

    def port(number: int) -> int:
        wire = (number * 0x10001 & 0xFFFFFFFF).to_bytes(4, "big") + (number & 3).to_bytes(2, "big")
        return pipeline.ingress(wire, 1)[1].egress_spec

    for number in range(4000):
        pipeline.insert("t", ir.ConstEntry(key(number), ir.Invocation("set", (number % 499,)), 0))
    with pytest.raises(TableFull, match="its size is 4000"):
        pipeline.insert("t", ir.ConstEntry(key(4000), ir.Invocation("set", (1,)), 0))
    assert all(port(number) == number % 499 for number in range(4000))
    for number in range(0, 4000, 3):
        pipeline.delete("t", ir.ConstEntry(key(number), ir.Invocation("set", (0,)), 0))
    assert all(port(number) == (number % 499 if number % 3 else 500) for number in range(4000))


def test_the_default_action_can_be_set_and_put_back() -> None:
    pipeline = load(program(("exact",), (16,)), backend="compiled")
    assert pipeline.ingress(b"\0\1", 1)[1].egress_spec == 500
    pipeline.set_default("t", ir.Invocation("set", (77,)))
    assert pipeline.default("t") == ir.Invocation("set", (77,))
    assert pipeline.ingress(b"\0\1", 1)[1].egress_spec == 77
    pipeline.set_default("t", None)
    assert pipeline.ingress(b"\0\1", 1)[1].egress_spec == 500


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
@pytest.mark.parametrize(
    ("patterns", "invocation", "message"),
    [
        ((ir.Pattern("exact", 1 << 16),), ("set", (1,)), "has 16 bits; 0x10000 does not fit"),
        ((ir.Pattern("any"),), ("set", (1,)), "is exact and takes no any pattern"),
        ((ir.Pattern("exact", 1), ir.Pattern("exact", 1)), ("set", (1,)), "has 1 keys, the entry 2"),
        ((ir.Pattern("exact", 1),), ("fly", ()), "has no action fly; it has set"),
        ((ir.Pattern("exact", 1),), ("set", ()), "takes 1 parameters, not 0"),
        ((ir.Pattern("exact", 1),), ("set", (512,)), "parameter port of set is 0..511, not 512"),
    ],
)
def test_entries_that_do_not_fit_are_refused_with_the_reason(
    backend: str, patterns: tuple[ir.Pattern, ...], invocation: tuple[str, tuple[int, ...]], message: str
) -> None:
    pipeline = load(program(("exact",), (16,)), backend=backend)  # type: ignore[arg-type]
    with pytest.raises(BadEntry, match=message):
        pipeline.insert("t", ir.ConstEntry(patterns, ir.Invocation(*invocation), 0))
    assert pipeline.entries("t") == []


def test_an_lpm_mask_with_holes_is_refused() -> None:
    pipeline = load(program(("lpm",), (16,)), backend="compiled")
    with pytest.raises(BadEntry, match="mask 0xff0f is not a prefix"):
        pipeline.insert("t", ir.ConstEntry((ir.Pattern("mask", 0, 0xFF0F),), ir.Invocation("set", (1,)), 0))


def test_unknown_objects_are_named() -> None:
    pipeline = load(program(("exact",), (16,)), backend="compiled")
    with pytest.raises(NoSuchObject, match="no table nothing; there are t"):
        pipeline.entries("nothing")
    with pytest.raises(NoSuchObject, match="no indirect counter hits"):
        pipeline.read_counter("hits", 0)
    packet, _ = pipeline.ingress(b"\0\1", 1)
    assert pipeline.egress(packet, Copy(egress_port=1))[0] == b"\0\1"


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_counters_of_constant_entries_are_read_where_they_count(
    backend: Literal["compiled", "interpreter"],
) -> None:
    """Entries that are code had their counters read one field too far."""
    source = program(("exact", "exact"), (16, 9))
    (table,) = source.tables.values()
    constant = tuple(
        ir.ConstEntry((ir.Pattern("exact", n), ir.Pattern("exact", 0)), ir.Invocation("set", (n,)), 0)
        for n in range(3)
    )
    fixed = replace(table, entries=constant, const_entries=True)
    pipeline = load(replace(source, tables={"t": fixed}), backend=backend)
    for n in (0, 1, 1, 2, 2, 2):
        pipeline.ingress(n.to_bytes(2, "big") + bytes(2), 1)
    assert [pipeline.read_direct_counter("t", entry) for entry in constant] == [(1, 4), (2, 8), (3, 12)]
