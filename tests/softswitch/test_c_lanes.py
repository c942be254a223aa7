"""Statements spelled out lane by lane: they become loops over interleaved registers, and mean the same."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from softswitch.compiler import ir
from softswitch.engine.build import load
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c.program import emit_c
from softswitch.engine.pipeline import Copy, Pipeline
from tests.programs import p4src_program

from . import ir_programs as hand

OVERWRITE, ADD, FETCH = 1, 2, 3
SLOTS = 16


def packet(op: int, index: int, lanes: np.ndarray) -> bytes:
    return struct.pack(">BBI", op, 0, index) + lanes.astype(lanes.dtype.newbyteorder(">")).tobytes() + b"tail"


def through(pipeline: Pipeline, frame: bytes) -> bytes:
    made, _ = pipeline.ingress(frame, 1)
    out, _ = pipeline.egress(made, Copy(egress_port=2))
    assert out is not None
    return out


def lanes_of(frame: bytes, like: np.ndarray) -> np.ndarray:
    assert frame.endswith(b"tail")
    return np.frombuffer(frame[6:-4], dtype=like.dtype.newbyteorder(">")).astype(like.dtype)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("lanes", [7, 8, 33, 256])
def test_overwrite_add_and_fetch(lanes: int, width: int) -> None:
    pipeline = load(hand.lanes_program(lanes, slots=SLOTS, width=width), backend="compiled")
    random = np.random.default_rng(lanes + width)
    dtype = np.dtype(f"u{width // 8}")
    slots = np.zeros((SLOTS, lanes), dtype)
    for _ in range(60):
        op, index = int(random.integers(1, 4)), int(random.integers(0, SLOTS))
        values = random.integers(0, np.iinfo(dtype).max, lanes, dtype, endpoint=True)
        out = through(pipeline, packet(op, index, values))
        before = slots[index].copy()
        if op == OVERWRITE:
            slots[index] = values
            assert (lanes_of(out, values) == values).all()
            continue
        if op == ADD:
            slots[index] += values
            signs = (before ^ slots[index]) & (values ^ slots[index])
            assert out[1] == int((signs >> dtype.type(width - 1)).any())
        assert (lanes_of(out, values) == slots[index]).all()
    for index in range(SLOTS):
        stored = [pipeline.read_register(f"lane_{lane}", index) for lane in range(lanes)]
        assert stored == slots[index].tolist()


@pytest.mark.parametrize("op", [OVERWRITE, ADD, FETCH])
@pytest.mark.parametrize("index", [SLOTS, 2**32 - 1])
def test_a_slot_that_does_not_exist_reads_zero_and_keeps_nothing(op: int, index: int) -> None:
    pipeline = load(hand.lanes_program(64, slots=SLOTS), backend="compiled")
    values = np.arange(64, dtype=np.uint32)
    out = through(pipeline, packet(op, index, values))
    assert (lanes_of(out, values) == (0 if op == FETCH else values)).all()
    assert not any(pipeline.read_register(f"lane_{lane}", i) for lane in range(64) for i in range(SLOTS))


@pytest.mark.parametrize("op", [OVERWRITE, ADD, FETCH])
def test_a_packet_without_its_lanes_sees_them_as_zero(op: int) -> None:
    """The fields of a header that was never valid are zero, not those of the packet before."""
    pipeline = load(hand.lanes_program(64, slots=SLOTS), backend="compiled")
    values = np.arange(1, 65, dtype=np.uint32)
    through(pipeline, packet(OVERWRITE, 3, values))
    short = packet(op, 3, values)[:20]
    assert through(pipeline, short) == short
    kept = [pipeline.read_register(f"lane_{lane}", 3) for lane in range(64)]
    assert kept == ([0] * 64 if op == OVERWRITE else values.tolist())


def test_a_large_header_made_valid_is_zero_until_assigned() -> None:
    values = ir.Header("values_t", tuple((f"v{i}", hand.B32) for i in range(64)))
    hdr = ir.Struct("headers_t", (("mark", ir.Header("mark_t", (("x", hand.B8),))), ("values", values)))
    root = hand.var("hdr", hdr)
    grow = hand.binary("==", hand.path(root, "mark", "x"), hand.const(1, hand.B8), ir.Bool())
    body = (
        ir.SetValidity(hand.path(root, "values"), True, hand.POS),
        hand.assign(hand.path(root, "values", "v5"), hand.const(7)),
    )
    program = hand.program(hdr=hdr, extracts=["mark", "values"], ingress=[ir.If(grow, body, (), hand.POS)])
    pipeline = load(program, backend="compiled")
    whole = b"\0" + bytes(range(256))
    assert through(pipeline, whole) == whole
    grown = through(pipeline, b"\1")
    assert grown == b"\1" + struct.pack(">64I", *(7 if lane == 5 else 0 for lane in range(64)))


def test_copies_of_a_packet_have_their_own_lanes() -> None:
    pipeline = load(hand.lanes_program(64, slots=SLOTS), backend="compiled")
    values = np.arange(64, dtype=np.uint32)
    through(pipeline, packet(OVERWRITE, 1, values))
    summed, _ = pipeline.ingress(packet(ADD, 1, values), 1)
    twin = pipeline.copy_packet(summed)
    expected = packet(ADD, 1, 2 * values)
    assert pipeline.egress(summed, Copy(egress_port=2))[0] == expected
    assert pipeline.egress(twin, Copy(egress_port=3))[0] == expected


def test_a_loan_writes_its_own_lanes_and_its_lender_keeps_its() -> None:
    """Ingress has written a lane, egress writes another: into storage, which a loan takes from its lender."""
    values = ir.Header("values_t", tuple((f"v{i}", hand.B32) for i in range(64)))
    hdr = ir.Struct("headers_t", (("values", values),))
    first, second = (hand.path(hand.var("hdr", hdr), "values", f"v{i}") for i in (1, 2))
    program = hand.program(
        hdr=hdr,
        extracts=["values"],
        ingress=[hand.assign(first, hand.binary("+", first, hand.const(1)))],
        egress=[hand.assign(second, hand.binary("+", second, first))],
    )
    pipeline = load(program, backend="compiled")
    assert isinstance(pipeline, CompiledPipeline)
    lender, _ = pipeline.ingress(struct.pack(">64I", *range(64)), 1)
    loan, other = pipeline.lend_packet(lender), pipeline.lend_packet(lender)
    copy = pipeline.copy_packet(other)
    expected = struct.pack(">64I", 0, 2, 4, *range(3, 64))
    for each in (loan, copy, other, lender):
        assert pipeline.egress(each, Copy(egress_port=2))[0] == expected


def test_lanes_are_loops_over_one_slot() -> None:
    text = emit_c(hand.lanes_program(256))
    assert text.count("for (size_t i = 0; i < 256; i++)") >= 3
    assert "struct slots *slot = &s->slots[meta_index];" in text
    assert "uint32_t lane_0_to_lane_255[256] __attribute__((aligned(64)));" in text
    assert len(text.splitlines()) < 1000


@pytest.mark.parametrize("name", ["exclusive", "shared"])
@pytest.mark.parametrize("lanes", [32, 64, 256])
def test_a_program_keeps_a_slot_together(name: str, lanes: int) -> None:
    program = p4src_program(name, LANES=lanes)
    text = emit_c(program)
    slot = re.search(r"struct InaIngress_aggregator_slots \{(.*?)\n\}", text, re.DOTALL)
    assert slot is not None
    registers = [full.rsplit(".", 1)[-1] for full in program.registers]
    states = [register for register in registers if register.startswith("slot_")]
    moves = [register for register in registers if register.startswith("change_")]
    assert len(states) == len(registers) - lanes - len(moves) >= 6
    for state in states:
        assert f" {state};" in slot[1]
    assert f"lane_0_to_lane_{lanes - 1}[{lanes}]" in slot[1]
    assert len(text.splitlines()) < 5000  # lane by lane it would be tens of thousands


def test_a_register_that_every_lane_uses_is_carried_from_lane_to_lane() -> None:
    """Each lane adds to one running total, which the next lane reads: no loop may reorder that."""
    lanes = 64
    values = ir.Header("values_t", tuple((f"v{i}", hand.B32) for i in range(lanes)))
    hdr = ir.Struct("headers_t", (("values", values),))
    root, index, total = hand.var("hdr", hdr), hand.const(0), hand.var("total")
    body: list[ir.Stmt] = []
    for lane in range(lanes):
        value = hand.path(root, "values", f"v{lane}")
        body += [
            hand.read("sum", total, index),
            hand.assign(total, hand.binary("+", total, value)),
            hand.write("sum", index, total),
            hand.write(f"prefix_{lane}", index, total),
        ]
    registers = [
        ir.Register(name, hand.B32, 4, hand.POS) for name in ("sum", *(f"prefix_{i}" for i in range(lanes)))
    ]
    program = hand.program(
        hdr=hdr, extracts=["values"], ingress=body, variables={"total": hand.B32}, registers=registers
    )
    pipeline = load(program, backend="compiled")
    numbers = np.arange(1, lanes + 1, dtype=np.uint32)
    pipeline.ingress(numbers.astype(">u4").tobytes(), 1)
    prefixes = [pipeline.read_register(f"prefix_{lane}", 0) for lane in range(lanes)]
    assert prefixes == np.cumsum(numbers).tolist()


def test_what_is_read_behind_a_loop_comes_out_of_it_and_the_rest_stays() -> None:
    """`done` is read behind the loop, `total` on both sides, `doubled` only from statement to statement."""
    lanes = 64
    values = ir.Header("values_t", tuple((f"v{i}", hand.B32) for i in range(lanes)))
    hdr = ir.Struct("headers_t", (("values", values),))
    root, index = hand.var("hdr", hdr), hand.const(0)
    total, done, doubled = (hand.var(name) for name in ("total", "done", "doubled"))
    body: list[ir.Stmt] = [hand.assign(total, hand.const(7))]
    for lane in range(lanes):
        value = hand.path(root, "values", f"v{lane}")
        body += [
            hand.assign(doubled, hand.binary("+", value, value)),
            hand.assign(done, hand.binary("+", doubled, value)),
            hand.assign(total, hand.binary("+", total, done)),
            hand.write(f"lane_{lane}", index, doubled),
        ]
    body += [hand.write("total", index, total), hand.write("done", index, done)]
    names = ("total", "done", *(f"lane_{i}" for i in range(lanes)))
    program = hand.program(
        hdr=hdr,
        extracts=["values"],
        ingress=body,
        variables=dict.fromkeys(("total", "done", "doubled"), hand.B32),
        registers=[ir.Register(name, hand.B32, 4, hand.POS) for name in names],
    )
    text = emit_c(program)
    (result,) = set(re.findall(r"struct lanes_loop\w* \{\n(.*?)\n\};", text, re.DOTALL))
    assert re.findall(r"(\w+);", result) == ["done_2", "total"]
    pipeline = load(program, backend="compiled")
    pipeline.ingress(np.arange(1, lanes + 1, dtype=">u4").tobytes(), 1)
    assert pipeline.read_register("done", 0) == 3 * lanes
    assert pipeline.read_register("total", 0) == 7 + 3 * lanes * (lanes + 1) // 2
    assert [pipeline.read_register(f"lane_{i}", 0) for i in range(lanes)] == [2 * i + 2 for i in range(lanes)]


def test_whole_headers_compared_between_lanes_see_every_lane() -> None:
    """``a == b`` inside a run must see what the lanes before it have changed."""
    pair = ir.Header("pair_t", tuple((f"v{i}", hand.B32) for i in range(16)))
    hdr = ir.Struct("headers_t", (("a", pair), ("b", pair)))
    meta = ir.Struct("metadata_t", (("equal", hand.B32),))
    root, equal = hand.var("hdr", hdr), hand.path(hand.var("meta", meta), "equal")
    a, b = hand.path(root, "a"), hand.path(root, "b")
    body: list[ir.Stmt] = []
    for lane in range(16):
        same = hand.binary("==", a, b, ir.Bool())
        count = ir.Mux(hand.B32, same, hand.const(1), hand.const(0), hand.POS)
        body += [
            hand.assign(hand.path(root, "a", f"v{lane}"), hand.path(root, "b", f"v{lane}")),
            hand.assign(equal, hand.binary("+", equal, count)),
        ]
    body.append(hand.assign(hand.path(root, "a", "v0"), equal))
    program = hand.program(hdr=hdr, meta=meta, extracts=["a", "b"], ingress=body)
    pipeline = load(program, backend="compiled")
    out = np.frombuffer(through(pipeline, bytes(64) + b"\1" * 64), dtype=">u4")
    assert out[0] == 1
